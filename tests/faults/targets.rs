//! Tests processes that cannot be watched, or not for long.

use std::fs;
use std::process::{Command, Stdio};

use pyobs_tests::{Case, Folder, Record, Workload, case, command, json, needs, workload};

use crate::python;
use crate::verb::{Outcome, is_calm, pyobs, run};

pub fn cases() -> Vec<Case> {
    vec![
        case("targets/a_pid_that_does_not_exist_gives_a_sentence", || {
            let outcome = record_in(&Folder::new(), &["--pid", &free_pid().to_string()]);
            assert!(outcome.fails_with(1).contains("process"), "{outcome:?}");
            let known_and_not = [std::process::id(), free_pid()].map(|pid| pid.to_string());
            record_in(&Folder::new(), &["--pid", &known_and_not[0], "--pid", &known_and_not[1]]).fails_with(1);
        })
        .needs(needs::root()),
        case("targets/a_pid_that_does_not_exist_leaves_no_file", || {
            let folder = Folder::new();
            record_in(&folder, &["--pid", &free_pid().to_string()]).fails_with(1);
            assert_eq!(fs::read_dir(&*folder).unwrap().count(), 0, "{}", folder.display());
        })
        .needs(needs::root()),
        case("targets/a_process_that_ends_ends_the_recording", || {
            let mut spin = python().unwrap().script(workload("fault_spin.py"));
            spin.arg("3");
            let mut spin = Workload::start(spin);
            spin.wait_for("ready");
            let recording = Record::new().pid(spin.pid()).run();
            assert!(recording.status.success(), "{recording:?}");
            is_calm(&recording.stderr);
            assert!(recording.stderr.contains("ended"), "the reason for the end is missing: {}", recording.stderr);
            assert!(recording.process(spin.pid())["ended_s"].is_number(), "{:#}", recording.report["processes"]);
            assert!(has_frame(&recording.report, "hot_function"), "{:#}", recording.report["stacks"]);
            assert!(spin.wait().status.success());
        })
        .needs(needs::root())
        .needs(python()),
        case("targets/a_process_that_is_killed_ends_the_recording", || {
            let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
            spin.wait_for("ready");
            let running = Record::new().pid(spin.pid()).start();
            std::thread::sleep(std::time::Duration::from_millis(500));
            spin.kill();
            let recording = running.wait();
            assert!(recording.status.success(), "{recording:?}");
            is_calm(&recording.stderr);
            assert_is_complete(&recording.file);
        })
        .needs(needs::root())
        .needs(python()),
        case("targets/a_process_that_is_not_python_is_recorded_and_reported", || {
            let mut busy = command("sh");
            busy.args(["-c", "echo ready; while :; do :; done"]);
            let mut busy = Workload::start(busy);
            busy.wait_for("ready");
            let recording = Record::new().pid(busy.pid()).seconds(1.5).run();
            assert!(recording.status.success(), "{recording:?}");
            is_calm(&recording.stderr);
            let sentences: Vec<_> = recording.stderr.lines().filter(|line| line.contains("no CPython")).collect();
            assert_eq!(sentences.len(), 1, "expected one sentence: {}", recording.stderr);
            assert!(sentences[0].contains(&busy.pid().to_string()), "{sentences:?}");
            assert!(recording.process(busy.pid())["python"].is_null());
            assert_eq!(json::count(&recording.report, "/stacks/complete"), 0, "{:#}", recording.report["stacks"]);
        })
        .needs(needs::root()),
        case("targets/the_first_process_and_kernel_threads_do_no_harm", || {
            let folder = Folder::new();
            for pid in ["1", "2"] {
                let outcome = record_in(&folder, &["--pid", pid, "--duration", "1"]);
                outcome.succeeds();
                run(pyobs(["report".as_ref(), folder.join("a.pyobs").as_os_str()])).succeeds();
            }
        })
        .needs(needs::root()),
        case("targets/pyobs_itself_may_be_watched", || {
            let folder = Folder::new();
            let mut shell = command("sh");
            shell.args(["-c", "exec \"$0\" record -o \"$1\" --pid $$ --duration 1"]);
            shell.arg(pyobs_tests::pyobs()).arg(folder.join("a.pyobs"));
            run(shell).succeeds();
        })
        .needs(needs::root()),
        case("targets/a_zombie_does_not_keep_the_recording_open", || {
            let mut zombie = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
            let stat = format!("/proc/{}/stat", zombie.id());
            while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
                std::thread::yield_now();
            }
            let outcome = record_in(&Folder::new(), &["--pid", &zombie.id().to_string(), "--duration", "20"]);
            zombie.wait().unwrap();
            outcome.is_calm();
            let seconds = outcome.stderr.split("recorded ").nth(1).and_then(|rest| rest.split(' ').next());
            let seconds: f64 = seconds.map_or(0.0, |seconds| seconds.parse().unwrap());
            assert!(seconds < 15.0, "pyobs kept watching a process that had ended: {outcome:?}");
        })
        .needs(needs::root()),
        case("targets/a_tid_is_not_taken_for_a_pid", || {
            let mut spin = Workload::start(python().unwrap().inline(
                "import threading, time\n\
                 t = threading.Thread(target=time.sleep, args=(60,)); t.start(); print(t.native_id, flush=True)",
            ));
            let tid = spin.line();
            let outcome = record_in(&Folder::new(), &["--pid", &tid, "--duration", "2"]);
            outcome.is_calm();
            let is_reported = outcome.stderr.contains("thread") || outcome.stderr.contains("no process");
            assert!(is_reported, "nothing says that {tid} is a thread: {outcome:?}");
        })
        .needs(needs::root())
        .needs(python()),
    ]
}

/// Runs `pyobs record -o FOLDER/a.pyobs` with more arguments.
#[track_caller]
fn record_in(folder: &Folder, arguments: &[&str]) -> Outcome {
    let mut record = pyobs(["record".as_ref(), "-o".as_ref(), folder.join("a.pyobs").as_os_str()]);
    record.args(arguments);
    run(record)
}

/// A pid that was just released. The kernel reuses it only after all others.
fn free_pid() -> u32 {
    let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

fn has_frame(report: &serde_json::Value, function: &str) -> bool {
    json::list(report, "/frames").iter().any(|row| row["frame"]["function"] == function)
}

#[track_caller]
fn assert_is_complete(recording: &std::path::Path) {
    let database = rusqlite::Connection::open(recording).unwrap();
    let whole: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
    let finished: i64 =
        database.query_row("SELECT count(*) FROM meta WHERE key = 'finished_ns'", [], |row| row.get(0)).unwrap();
    assert_eq!(finished, 1, "the recording does not say that it was ended");
}
