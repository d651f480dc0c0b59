//! A recording whose writer was killed.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Program, every_event, meta, write};
use pyobs_model::Event;
use pyobs_recording::{Reader, Writer};

/// Set in a child of a test: what it shall do, and with which file.
const ROLE: &str = "PYOBS_TEST_ROLE";

/// Runs this binary again, as the test `children` with a role.
fn child(role: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "children", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, format!("{role}:{}", path.display())).stdout(Stdio::piped());
    command
}

/// Not a test of its own: what the children of the others do.
#[test]
fn children() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, path) = role.split_once(':').unwrap();
    let path = Path::new(path);
    match role {
        "write" => write_for_ever(path),
        "read" => match Reader::open(path).and_then(|mut reader| reader.model(None, None)) {
            Ok(model) => println!("samples {}", model.cpu().total()),
            Err(error) => println!("error {error}"),
        },
        other => panic!("no such role: {other}"),
    }
}

/// Appends as capture does, each 100 ms, and says how far it came.
fn write_for_ever(path: &Path) {
    let mut writer = Writer::create(path, &meta()).unwrap();
    let mut program = Program::new(1, 3, 30);
    writer.append(&program.start()).unwrap();
    let begun = Instant::now();
    println!("ready");
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let mut events = Vec::new();
        let now = begun.elapsed().as_nanos() as u64;
        program.at = program.at.max(now - 1000 * 1000);
        for _ in 0..20 {
            program.sample(1000, &mut events);
        }
        writer.append(&events).unwrap();
    }
}

#[track_caller]
fn wait_for(child: &mut Child, word: &str) {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The harness writes its own words, on the same line perhaps.
    assert!(lines.map_while(Result::ok).any(|line| line.contains(word)), "the child says {word}");
}

#[test]
fn a_recording_whose_writer_was_killed_lacks_at_most_the_last_second() {
    let folder = tempfile::tempdir().unwrap();
    for (round, life) in [300, 1100, 2350, 3050].into_iter().enumerate() {
        let path = folder.path().join(format!("{round}.pyobs"));
        let mut writer = child("write", &path).spawn().unwrap();
        wait_for(&mut writer, "ready");
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(life));
        writer.kill().unwrap();
        let lived = begun.elapsed();
        assert_eq!(writer.wait().unwrap().signal(), Some(9));
        let mut reader = Reader::open(&path).unwrap();
        assert!(!reader.is_finished());
        let now = Duration::from_nanos(reader.model(None, None).unwrap().now().0);
        assert!(now + Duration::from_secs(1) >= lived, "killed after {lived:?}, the recording ends at {now:?}");
        assert_eq!(reader.damage(), None);
        // Unless the kill hit a commit, which its journal undoes, the file alone is the recording.
        if is_hot(&path.with_extension("pyobs-journal")) {
            continue;
        }
        let alone = folder.path().join("alone.pyobs");
        std::fs::copy(&path, &alone).unwrap();
        assert_eq!(Duration::from_nanos(Reader::open(&alone).unwrap().model(None, None).unwrap().now().0), now);
    }
}

/// A journal is empty between two commits.
fn is_hot(journal: &Path) -> bool {
    std::fs::metadata(journal).is_ok_and(|file| file.len() > 0)
}

/// A recording with a commit that was cut in the middle: pages half written, the journal to undo them beside it.
fn half_committed(folder: &Path) -> std::path::PathBuf {
    let (whole, path) = (folder.join("whole.pyobs"), folder.join("half.pyobs"));
    write(&whole, &every_event());
    let database = rusqlite::Connection::open(&whole).unwrap();
    database
        .execute_batch(
            "PRAGMA foreign_keys = OFF; PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN IMMEDIATE;
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
             INSERT INTO samples SELECT i, 0, 1, 0, 0, 0, 0, NULL FROM n; DELETE FROM frames; DELETE FROM stacks;",
        )
        .unwrap();
    // As a kill leaves them: pages spilled into the file, the transaction not ended.
    std::fs::copy(&whole, &path).unwrap();
    std::fs::copy(folder.join("whole.pyobs-journal"), folder.join("half.pyobs-journal")).unwrap();
    drop(database);
    let _ = std::fs::remove_file(&whole);
    path
}

/// Wherever a file ends, what is read of it was written: SQLite takes what is missing of a page for zeros.
#[test]
fn a_file_that_is_cut_off_anywhere_adds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (folder.path().join("whole.pyobs"), folder.path().join("cut.pyobs"));
    let mut program = Program::new(3, 2, 20);
    let mut events = program.start();
    (0..2000).for_each(|_| program.sample(1_000_000, &mut events));
    write(&whole, &events);
    let written: HashSet<String> = common::read(&whole).iter().map(|event| format!("{event:?}")).collect();
    let bytes = std::fs::read(&whole).unwrap();
    let mut kept = 0;
    for length in (0..bytes.len()).step_by(211) {
        std::fs::write(&cut, &bytes[..length]).unwrap();
        let Ok(mut reader) = Reader::open(&cut) else { continue };
        // An error is an answer as well; what came before it has to be right.
        let _ = reader.replay(|event| {
            let event = format!("{event:?}");
            // What is missing before something that is there: a frame without a name, a stack without frames.
            let stands_in = event.contains("\"?\"") || event.contains("frames: []");
            assert!(stands_in || written.contains(&event), "cut off at {length}: {event}");
            kept += usize::from(!stands_in);
        });
        assert!(reader.damage().is_some(), "cut off at {length} in silence");
    }
    assert!(kept > 0, "nothing was ever readable");
}

#[test]
fn a_half_commit_is_undone_without_changing_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = half_committed(folder.path());
    let before = std::fs::read(&path).unwrap();
    assert_eq!(common::read(&path), every_event());
    assert!(std::fs::read(&path).unwrap() == before);
    assert!(folder.path().join("half.pyobs-journal").exists());
}

#[test]
fn a_half_commit_is_undone_for_a_stranger_in_a_read_only_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = half_committed(folder.path());
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        std::fs::set_permissions(entry.unwrap().path(), PermissionsExt::from_mode(0o444)).unwrap();
    }
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o555)).unwrap();
    let mut reader = child("read", &path);
    let executable = folder.path().join("../").join(format!("pyobs-test-{}", std::process::id()));
    if rustix::process::geteuid().is_root() {
        // Root has all rights to everything; nobody has none, but must reach the test's program.
        std::fs::copy(std::env::current_exe().unwrap(), &executable).unwrap();
        std::fs::set_permissions(&executable, PermissionsExt::from_mode(0o755)).unwrap();
        let inherited = reader;
        reader = Command::new(&executable);
        reader.args(inherited.get_args()).stdout(Stdio::piped()).current_dir("/").uid(65534).gid(65534);
        reader.env(ROLE, format!("read:{}", path.display()));
    }
    let output = reader.output().unwrap();
    let _ = std::fs::remove_file(&executable);
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let samples = every_event().iter().filter(|event| matches!(event, Event::Sample(_))).count();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(words.contains(&format!("samples {samples}\n")), "{words}");
}

#[test]
fn a_journal_that_would_delete_another_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = half_committed(folder.path());
    let journal = folder.path().join("half.pyobs-journal");
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes.extend([0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
    std::fs::write(&journal, bytes).unwrap();
    let error = Reader::open(&path).unwrap_err().to_string();
    assert!(error.contains("the journal beside it is not pyobs's"), "{error}");
}

#[test]
fn nothing_is_left_in_the_folder_for_temporary_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = half_committed(folder.path());
    drop(Reader::open(&path).unwrap());
    let own = format!("pyobs-{}-", std::process::id());
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap().filter_map(Result::ok);
    let mut left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own)).collect();
    // Tests of this process run beside this one; theirs last for moments, or seconds on a busy machine.
    for _ in 0..200 {
        left.retain(|entry| entry.path().exists());
        if left.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{left:?}");
}
