//! Tests that programs run at system calls only once a watched process shares memory, by default.

use std::time::{Duration, Instant};

use pyobs_tests::{Case, Python, Record, Running, Workload, case, json, needs, workload};
use serde_json::Value;

use super::{Names, is_born_in, nothing_is_lost, segments};

/// How the program makes its first segment.
const MODES: [&str; 4] = ["anonymous", "memfd", "standard", "written"];
const SIZE: u64 = 3 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

pub fn cases() -> Vec<Case> {
    let python = needs::python("3.12");
    let of_mode = |mode: &'static str| {
        let own = python.clone();
        let name = format!("system_calls_are_watched_from_the_first_segment_on::{mode}");
        case(name, move || check(&own.clone().unwrap(), mode)).needs(needs::root()).needs(python.clone())
    };
    MODES.into_iter().map(of_mode).collect()
}

fn check(python: &Python, mode: &str) {
    let mut command = python.script(workload("first_segment.py"));
    command.arg(mode);
    let mut program = Workload::start(command);
    let _names = Names(vec![format!("first_{}", program.pid())]);
    program.wait_for("ready");
    let recording = Record::new().pid(program.pid()).start();
    program.signal(libc::SIGUSR1);
    program.wait_for("private");
    assert!(recording.runs("memory_mapped") >= 200, "the program has made that many mappings");
    // pyobs polls more often than that.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(runs(&recording), 0, "programs run at system calls, and no memory is shared");
    program.signal(libc::SIGUSR1);
    let first = program.line();
    wait_until("system calls run programs", || runs(&recording) > 0);
    // What it held by then is read from /proc.
    std::thread::sleep(Duration::from_secs(1));
    program.signal(libc::SIGUSR1);
    let second = program.line();
    let report = recording.stop().report;
    program.signal(libc::SIGUSR1);
    nothing_is_lost(&report);
    matches(&report, &first);
    let segment = matches(&report, &second);
    is_born_in(segment, "memfd", "first_segment.py");
    let segment = matches(&report, &first);
    if mode == "written" {
        // Nothing runs when a file is opened, so only its contents and its descriptor are known.
        assert!(json::list(segment, "/stack").is_empty(), "{segment:#}");
    } else {
        is_born_in(segment, mode, "first_segment.py");
    }
    if mode == "standard" {
        assert_eq!(segment["unlinked_by"], program.pid(), "{segment:#}");
    }
}

/// How often a program has run at a system call.
fn runs(recording: &Running) -> u64 {
    recording.runs("calls_begin") + recording.runs("calls_end")
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "it takes too long until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Asserts that a segment is as the program says: which one, its inode, its descriptors and mappings.
#[track_caller]
fn matches<'a>(report: &'a Value, said: &str) -> &'a Value {
    let said: Vec<&str> = said.split(' ').collect();
    let [_, inode, fds, mappings] = said[..] else { panic!("{said:?} is not about a segment") };
    let number = |text: &str| text.parse::<u64>().unwrap();
    let found = segments(report).iter().find(|segment| json::count(segment, "/ino") == number(inode));
    let segment = found.unwrap_or_else(|| panic!("no segment has the inode {inode}: {:#}", report["segments"]));
    let [holder] = json::list(segment, "/holders") else { panic!("it has one holder: {segment:#}") };
    assert_eq!(json::count(segment, "/bytes"), SIZE, "{segment:#}");
    assert_eq!(
        (json::count(holder, "/fds"), json::count(holder, "/mappings")),
        (number(fds), number(mappings)),
        "{segment:#}"
    );
    segment
}
