//! Tests places where a recording cannot be made, or cannot be finished.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;

use pyobs_tests::{Case, Folder, Record, Workload, case, command, json, needs, workload};

use crate::python;
use crate::verb::{Outcome, pyobs, run};

pub fn cases() -> Vec<Case> {
    let unshare = || needs::program("unshare");
    vec![
        case("storage/a_full_disk_ends_the_recording_and_keeps_what_was_written", || {
            let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
            spin.wait_for("ready");
            let folder = Folder::new();
            let outcome = record_on_tmpfs(&folder, "size=400k", &["--rate", "5000", "--pid", &spin.pid().to_string()]);
            let sentence = outcome.fails_with(1);
            assert!(sentence.contains("full"), "{sentence}");
            assert!(sentence.contains("what was recorded") && sentence.contains("kept"), "{sentence}");
            let copy = folder.join("a.pyobs");
            let report = run(pyobs(["report".as_ref(), "--json".as_ref(), copy.as_os_str()]));
            let report = json::parse(report.succeeds().text());
            let samples = json::count(&report, "/stacks/samples");
            assert!(samples > 100, "only {samples} samples are in the file");
            let functions = json::list(&report, "/frames").iter().map(|row| &row["frame"]["function"]);
            assert!(functions.into_iter().any(|function| function == "hot_function"), "{:#}", report["stacks"]);
        })
        .needs(needs::root())
        .needs(unshare())
        .needs(python()),
        case("storage/a_disk_without_any_room_leaves_no_file", || {
            let folder = Folder::new();
            let outcome = record_on_tmpfs(&folder, "size=16k", &["--duration", "3"]);
            assert!(outcome.fails_with(1).contains("full"), "{outcome:?}");
            assert_eq!(names_in(&folder), Vec::<String>::new());
        })
        .needs(needs::root())
        .needs(unshare()),
        case("storage/a_limit_of_file_sizes_gives_a_sentence", || {
            let folder = Folder::new();
            let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
            spin.wait_for("ready");
            let mut shell = command("sh");
            shell.args(["-c", "ulimit -f 800; exec \"$0\" record -o \"$1\" --rate 5000 --pid \"$2\""]);
            shell.arg(pyobs_tests::pyobs()).arg(folder.join("a.pyobs")).arg(spin.pid().to_string());
            run(shell).fails_with(1);
            run(pyobs(["report".as_ref(), folder.join("a.pyobs").as_os_str()])).succeeds();
        })
        .needs(needs::root())
        .needs(python()),
        case("storage/a_disk_without_inodes_gives_a_sentence", || {
            let folder = Folder::new();
            record_on_tmpfs(&folder, "nr_inodes=1", &["--duration", "3"]).fails_with(1);
        })
        .needs(needs::root())
        .needs(unshare()),
        case("storage/a_read_only_file_system_gives_a_sentence", || {
            let outcome = record_on_tmpfs(&Folder::new(), "ro", &["--duration", "3"]);
            assert!(outcome.fails_with(1).contains("read-only"), "{outcome:?}");
        })
        .needs(needs::root())
        .needs(unshare()),
        case("storage/other_files_are_never_overwritten", || {
            let folder = Folder::new();
            let precious = folder.join("precious.txt");
            fs::write(&precious, "years of work").unwrap();
            assert!(record_to(&precious).fails_with(1).contains("precious.txt"));

            let database = folder.join("customers.db");
            rusqlite::Connection::open(&database).unwrap().execute_batch("CREATE TABLE customers (name)").unwrap();
            let before = fs::read(&database).unwrap();
            record_to(&database).fails_with(1);
            assert!(fs::read(&database).unwrap() == before, "the other database was changed");

            let link = folder.join("link.pyobs");
            symlink(&precious, &link).unwrap();
            record_to(&link).fails_with(1);
            let dangling = folder.join("dangling.pyobs");
            symlink(folder.join("elsewhere"), &dangling).unwrap();
            record_to(&dangling).fails_with(1);
            assert!(!folder.join("elsewhere").exists());
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(&precious).unwrap(), "years of work");
        })
        .needs(needs::root()),
        case("storage/a_path_that_cannot_be_a_file_gives_a_sentence", || {
            let folder = Folder::new();
            fs::create_dir(folder.join("folder")).unwrap();
            let made = run(command_of("mkfifo", &folder.join("pipe")));
            assert!(made.status.success());
            let missing = folder.join("missing/a.pyobs");
            let below_a_file = folder.join("file/a.pyobs");
            fs::write(folder.join("file"), "").unwrap();
            for place in [&folder.join("folder"), &folder.join("pipe"), &missing, &below_a_file] {
                let outcome = record_to(place);
                let name = place.file_name().unwrap().to_str().unwrap();
                assert!(outcome.fails_with(1).contains(name), "{outcome:?}");
            }
            for place in ["/dev/null", "/dev/full", "/", ".", "..", "/proc/a.pyobs", "/sys/a.pyobs"] {
                record_to(Path::new(place)).fails_with(1);
            }
            let long = folder.join("x".repeat(300));
            record_to(&long).fails_with(1);
            assert!(fs::metadata(folder.join("pipe")).unwrap().file_type().is_fifo());
            assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        })
        .needs(needs::root())
        .needs(needs::program("mkfifo")),
        case("storage/a_recording_that_is_being_written_is_not_replaced", || {
            let running = Record::new().start();
            let outcome = record_to(running.file());
            assert!(outcome.fails_with(1).contains("in use"), "{outcome:?}");
            let first = running.stop();
            assert!(first.status.success(), "{first:?}");
        })
        .needs(needs::root()),
        case("storage/a_finished_recording_is_replaced_completely", || {
            let first = Record::new().rate(999).seconds(1.0).run();
            record_to(&first.file).succeeds();
            let database = rusqlite::Connection::open(&first.file).unwrap();
            let whole: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(whole, "ok");
            let report = run(pyobs(["report".as_ref(), "--json".as_ref(), first.file.as_os_str()]));
            let report = json::parse(report.succeeds().text());
            assert_ne!(report["recording"]["started"], first.report["recording"]["started"]);
            assert_eq!(json::count(&report, "/recording/rate_hz"), 99);
        })
        .needs(needs::root()),
        case("storage/a_folder_that_vanishes_meanwhile_does_no_harm", || {
            let folder = Folder::new();
            fs::create_dir(folder.join("vanishes")).unwrap();
            let file = folder.join("vanishes/a.pyobs");
            let mut record = pyobs(["record", "--duration", "3", "-o"]);
            let mut running = Workload::start({
                record.arg(&file);
                record
            });
            while !file.exists() && running.is_alive() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            // pyobs may be creating another file meanwhile.
            while folder.join("vanishes").exists() {
                let _ = fs::remove_dir_all(folder.join("vanishes"));
            }
            let ended = running.wait();
            crate::verb::is_calm(&ended.stderr);
            assert!(matches!(ended.status.code(), Some(0 | 1)), "{ended:?}");
        })
        .needs(needs::root()),
    ]
}

/// Records this very process for a second.
#[track_caller]
fn record_to(file: &Path) -> Outcome {
    let own = std::process::id().to_string();
    let mut record = pyobs(["record", "--duration", "1", "--pid", &own, "-o"]);
    record.arg(file);
    run(record)
}

/// Runs `pyobs record` into a small file system of its own, and then copies its content into the folder.
#[track_caller]
fn record_on_tmpfs(folder: &Folder, options: &str, arguments: &[&str]) -> Outcome {
    const SCRIPT: &str = "\
        mount -t tmpfs -o \"$3\" none /mnt
        pyobs=$1 folder=$2
        shift 3
        code=0
        \"$pyobs\" record -o /mnt/a.pyobs \"$@\" || code=$?
        cp /mnt/* \"$folder\" 2>&- || :
        exit $code";
    let mut shell = command("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-ec", SCRIPT, "sh"]);
    shell.arg(pyobs_tests::pyobs()).arg(&**folder).arg(options).args(arguments);
    run(shell)
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn command_of(program: &str, argument: &Path) -> std::process::Command {
    let mut made = command(program);
    made.arg(argument);
    made
}
