//! Tests `multiprocessing.shared_memory`, and what the resource tracker does with it.

use std::process::Command;
use std::time::{Duration, Instant};

use pyobs_tests::{Case, Python, Recording, Workload, case, json, needs, workload};

use super::{Names, all_holders, finding, is_born_in, nothing_is_lost, path, quick, record, segment};

/// A tracker takes less than this.
const PATIENCE: Duration = Duration::from_secs(20);
const MODES: [&str; 5] = ["ok", "kill", "killtracker", "memfd", "child_attach"];

pub fn cases() -> Vec<Case> {
    let pythons = Python::all().iter().filter(|python| python.minor() >= 8);
    pythons.flat_map(|python| MODES.map(|mode| of_mode(python, mode))).collect()
}

fn of_mode(python: &Python, mode: &'static str) -> Case {
    let name = format!("{}::shared_memory_is_followed::{mode}", python.name());
    let has_it = if mode == "memfd" && python.minor() < 9 {
        Err("its socket module cannot send descriptors".to_owned())
    } else {
        Ok(())
    };
    let (python, every) = (python.clone(), quick(python, mode, &["child_attach"]));
    case(name, move || check(&python, mode)).needs(needs::root()).needs(has_it).needs(every)
}

fn check(python: &Python, mode: &str) {
    let mut command = python.script(workload("shm_std.py"));
    command.arg(mode);
    let (recording, pid, printed) = if mode.starts_with("kill") {
        beyond_its_end(&command, mode)
    } else {
        let recording = record().command(command).run();
        let processes = json::list(&recording.report, "/processes");
        let first = processes.iter().min_by_key(|row| json::count(row, "/pid")).unwrap();
        let (pid, printed) = (json::count(first, "/pid"), recording.stdout.clone());
        (recording, pid, printed)
    };
    let name = printed.split_whitespace().next().unwrap_or_default().to_owned();
    let _names = Names(vec![name.clone()]);
    nothing_is_lost(&recording.report);
    if mode == "memfd" {
        return memfd(&recording, pid);
    }
    let segment = segment(&recording.report, &name);
    assert_eq!((&segment["bytes"], &segment["kind"]), (&(1_u64 << 20).into(), &"shm".into()), "{segment:#}");
    assert_eq!(segment["creator_pid"], pid);
    // There are no Python frames if the process ended before its functions were named, or made the segment before its
    // interpreter was found.
    let has_python = json::list(segment, "/stack").iter().any(|frame| frame["kind"] == "python");
    if mode == "child_attach" && has_python {
        // Qualified names came with 3.11.
        let made = if python.minor() < 11 { "__init__" } else { "SharedMemory.__init__" };
        is_born_in(segment, made, "shared_memory.py");
        is_born_in(segment, "<module>", "shm_std.py");
    }
    let is_there = path(&name).exists();
    assert_eq!(segment["verdict"], if is_there { "residue" } else { "released" }, "{segment:#}");
    assert_eq!(is_there, mode == "killtracker");
    let early = finding(&recording.report, "shm/unlinked_in_use", &name);
    match mode {
        "ok" => assert_eq!(segment["unlinked_by"], pid),
        // The program prints `tracker pid 4711`.
        "kill" => assert_eq!(segment["unlinked_by"], tracker(&printed), "{segment:#}"),
        "child_attach" => {
            // The trackers may appear as well: they are forks of the holders until they exec.
            assert!(all_holders(segment).len() >= 2, "{segment:#}");
            assert!(printed.contains("after child: []"), "{}", printed);
            assert_ne!(segment["unlinked_by"], pid, "{segment:#}");
            assert_ne!(segment["unlinked_by"], tracker(&printed), "{segment:#}");
        }
        _ => {}
    }
    assert_eq!(early.is_some(), mode == "child_attach", "{:#}", recording.report["findings"]);
    assert_eq!(finding(&recording.report, "shm/residue", &name).is_some(), is_there);
}

/// Watches the program by its pid, from before it is Python, because the tracker works after the program's end.
fn beyond_its_end(command: &Command, mode: &str) -> (Recording, u64, String) {
    let mut shell = pyobs_tests::command("sh");
    shell.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    let mut program = Workload::start(shell);
    let pid = program.pid();
    let is_stopped = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "));
    let since = Instant::now();
    while !is_stopped() && since.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(2));
    }
    let recording = record().pid(pid).start();
    program.signal(libc::SIGCONT);
    let first = program.line();
    let file = path(first.split_whitespace().next().unwrap_or_default());
    let since = Instant::now();
    // Waiting for the program kills its process group, and the tracker with it.
    while mode == "kill" && file.exists() && since.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    let printed = program.wait().stdout;
    // The recording ends with the last process that it watches.
    (recording.wait(), pid.into(), printed)
}

fn tracker(stdout: &str) -> u64 {
    let first = stdout.lines().next().unwrap();
    first.rsplit(' ').next().unwrap().parse().unwrap()
}

fn memfd(recording: &Recording, pid: u64) {
    let segment = segment(&recording.report, "pyobs-demo");
    assert_eq!((&segment["kind"], &segment["bytes"]), (&"memfd".into(), &(1_u64 << 20).into()), "{segment:#}");
    assert_eq!((&segment["creator_pid"], &segment["verdict"]), (&pid.into(), &"released".into()), "{segment:#}");
    assert!(segment["unlinked_s"].is_null() && segment["evicted_s"].is_f64(), "{segment:#}");
    let holders = all_holders(segment);
    assert_eq!(holders.len(), 2, "{segment:#}");
    // The child is a fork, so it holds the segment before anything is sent.
    let passed = json::list(segment, "/passed");
    assert_eq!(passed.len(), 1, "{segment:#}");
    assert_eq!((&passed[0]["from_pid"], json::count(&passed[0], "/to_pid")), (&pid.into(), holders[1]));
}
