//! Tests signals that end a recording.

use std::time::Duration;

use pyobs_tests::{Case, Record, Workload, case, command, needs, workload};
use rusqlite::Connection;

use crate::bpf::{self, Objects};
use crate::python;
use crate::verb::is_calm;

const NAMES: [(libc::c_int, &str); 3] =
    [(libc::SIGINT, "SIGINT"), (libc::SIGTERM, "SIGTERM"), (libc::SIGHUP, "SIGHUP")];

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("signals/each_signal_ends_a_recording_cleanly", || {
            for (signal, name) in NAMES {
                let before = Objects::all();
                let running = Record::new().start();
                std::thread::sleep(Duration::from_millis(500));
                let its = Objects::of(running.pid());
                running.signal(signal);
                let recording = running.wait();
                assert!(recording.status.success(), "{name}: {recording:?}");
                is_calm(&recording.stderr);
                assert!(is_finished(&recording.file), "{name}: the recording does not say that it was ended");
                bpf::assert_nothing_is_left(&before, &its);
            }
        }),
        case("signals/many_signals_at_once_end_it_cleanly_too", || {
            let running = Record::new().start();
            for _ in 0..50 {
                for (signal, _) in NAMES {
                    running.signal(signal);
                }
            }
            let recording = running.wait();
            assert!(recording.status.success(), "{recording:?}");
            assert!(is_finished(&recording.file));
        }),
        case("signals/the_command_gets_the_signal_and_its_status_is_returned", || {
            for (signal, status) in [(libc::SIGTERM, 128 + libc::SIGTERM), (libc::SIGHUP, 128 + libc::SIGHUP)] {
                let running = Record::new().command(python().unwrap().script(workload("fault_spin.py"))).start();
                std::thread::sleep(Duration::from_secs(1));
                running.signal(signal);
                let recording = running.wait();
                assert_eq!(recording.status.code(), Some(status), "{recording:?}");
                is_calm(&recording.stderr);
                assert!(is_finished(&recording.file));
            }
        }),
        case("signals/a_command_killed_by_a_signal_gives_its_status", || {
            for (signal, code) in [("KILL", 137), ("SEGV", 139), ("ABRT", 134)] {
                let mut shell = command("sh");
                shell.args(["-c", &format!("kill -{signal} $$")]);
                let recording = Record::new().command(shell).run();
                assert_eq!(recording.status.code(), Some(code), "{recording:?}");
                is_calm(&recording.stderr);
            }
        }),
        case("signals/ignored_signals_stay_ignored", || {
            let mut shell = command("sh");
            let folder = pyobs_tests::Folder::new();
            shell.args(["-c", "trap '' HUP; exec \"$0\" record -o \"$1\" --duration 3"]);
            shell.arg(pyobs_tests::pyobs()).arg(folder.join("a.pyobs"));
            let mut running = Workload::start(shell);
            while !folder.join("a.pyobs").exists() && running.is_alive() {
                std::thread::sleep(Duration::from_millis(5));
            }
            running.signal(libc::SIGHUP);
            let ended = running.wait();
            assert!(ended.status.success(), "{ended:?}");
            assert!(ended.stderr.contains("recorded 3."), "it ended too early: {ended:?}");
        }),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python())).collect()
}

fn is_finished(recording: &std::path::Path) -> bool {
    let database = Connection::open(recording).unwrap();
    database.query_row("SELECT count(*) FROM meta WHERE key = 'finished_ns'", [], |row| row.get(0)) == Ok(1)
}
