//! Records, reports and replays the pipeline of `cargo xtask demo`. The source of the demo is the reference: a mark on
//! each planted fault's line names its finding.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pyobs_tests::{Case, Ended, Record, Recording, Workload, case, command, json, needs};
use serde_json::Value;

use crate::pty::Terminal;
use crate::python;
use crate::screens::quit;

/// The rate that `cargo xtask demo` uses.
const RATE: u32 = 299;
const SECONDS: f64 = 25.0;
/// Longer than any case takes.
const PIPELINE_SECONDS: &str = "250";
/// Only keeps a hanging case from hanging the suite.
const PATIENCE: Duration = Duration::from_secs(60);
const MARK: &str = "# planted: ";

pub fn cases() -> Vec<Case> {
    let full = |name: &str, body: fn()| case(name, body).needs(equipped());
    let cases = vec![
        full("demo/each_planted_fault_is_found_and_nothing_else_is_serious", faults),
        full("demo/ten_times_in_a_row", || (0..10).for_each(|_| faults())).needs(needs::all()),
        case("demo/works_without_packages", without_packages).needs(bare()).needs(needs::all()),
        case("demo/leaves_nothing_behind", leaves_nothing),
        case("demo/idle_processes_have_no_findings", idle),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python())).collect()
}

/// The interpreter with all packages.
fn equipped() -> Result<PathBuf, String> {
    needs::executable_with("ucxx", "PYOBS_UCXX")
}

/// An interpreter without packages.
fn bare() -> Result<PathBuf, String> {
    let python = python()?;
    if python.imports(&["numpy"]) {
        Err("the interpreter itself has packages here".to_owned())
    } else {
        Ok(python.executable)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../xtask/demo").canonicalize().unwrap()
}

fn pipeline(python: &Path) -> Command {
    let mut pipeline = command(python);
    pipeline.args(["-B", "-u"]).arg(folder().join("pipeline.py"));
    pipeline
}

/// Waits until the pipeline and everything that it started have ended by themselves, and checks that none of their
/// segments is left.
#[track_caller]
fn ends(mut pipeline: Workload) -> Ended {
    let (pid, since) = (pipeline.pid(), Instant::now());
    while pipeline.is_alive() || groups().contains(&pid.to_string()) {
        assert!(since.elapsed() < PATIENCE, "processes of the pipeline are still running");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(segments(pid), [""; 0]);
    pipeline.wait()
}

fn segments(pipeline: u32) -> Vec<String> {
    let names = fs::read_dir("/dev/shm").unwrap().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&format!("pyobs-demo-{pipeline}-"))).collect()
}

/// The process groups of all running processes.
fn groups() -> Vec<String> {
    let stats = fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let group = |stat: String| {
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let (state, _, group) = (fields.next()?, fields.next()?, fields.next()?);
        (state != "Z").then(|| group.to_owned())
    };
    stats.filter_map(group).collect()
}

/// The planted faults by the sources: the finding, and the file's name with the line.
fn planted() -> BTreeSet<(String, String)> {
    let mut planted = BTreeSet::new();
    for file in fs::read_dir(folder()).unwrap().flatten().map(|entry| entry.path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        // The docstring of pipeline.py explains the marks.
        if !name.ends_with(".py") || name == "pipeline.py" {
            continue;
        }
        for (line, number) in fs::read_to_string(&file).unwrap().lines().zip(1..) {
            if let Some((_, id)) = line.split_once(MARK) {
                planted.insert((id.to_owned(), format!("{}:{number})", file.display())));
            }
        }
    }
    planted
}

/// The planted fault that a finding is about.
fn fault(finding: &Value, planted: &BTreeSet<(String, String)>) -> Option<(String, String)> {
    let lines = ["holder_line", "line"].map(|name| finding["evidence"][name].as_str().unwrap_or_default());
    let is = |(id, place): &&(String, String)| {
        finding["id"] == id.as_str() && lines.iter().any(|line| line.ends_with(place.as_str()))
    };
    planted.iter().find(is).cloned()
}

/// A pipeline that runs for longer than any case takes.
#[track_caller]
fn start(python: &Path) -> Workload {
    let mut pipeline = pipeline(python);
    pipeline.arg(PIPELINE_SECONDS);
    let mut pipeline = Workload::start(pipeline);
    pipeline.wait_for("ready");
    pipeline
}

/// The recording, and the pipeline's output.
#[track_caller]
fn record(python: &Path) -> (Recording, Ended) {
    let pipeline = start(python);
    let recording = watch().pid(pipeline.pid()).seconds(SECONDS).run();
    pipeline.signal(libc::SIGTERM);
    (recording, ends(pipeline))
}

fn watch() -> Record {
    Record::new().rate(RATE).argument("--probe").argument("+redundancy,+ucx")
}

/// Asserts that every serious finding is one of the planted faults, and returns the faults that were found.
#[track_caller]
fn found(recording: &Recording, planted: &BTreeSet<(String, String)>) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for finding in json::list(&recording.report, "/findings") {
        match fault(finding, planted) {
            Some(fault) => {
                found.insert(fault);
            }
            None => assert_ne!(finding["severity"], "serious", "{finding:#}"),
        }
    }
    found
}

#[track_caller]
fn faults() {
    let (recording, ended) = record(&equipped().unwrap());
    let planted = planted();
    assert_eq!(planted.len(), 5, "{planted:#?}");
    let found = found(&recording, &planted);
    let missing: Vec<_> = planted.difference(&found).collect();
    let findings = &recording.report["findings"];
    assert!(missing.is_empty(), "{missing:#?} not found: {findings:#}\nThe pipeline printed: {}", ended.stderr);
    told(&recording, &planted);
    shown(&recording, &planted);
}

/// Asserts that the report in words has each line, and that its first three findings say what to try.
#[track_caller]
fn told(recording: &Recording, planted: &BTreeSet<(String, String)>) {
    let words = recording.words();
    let text: String = words.split_whitespace().collect();
    let is_reported =
        |(id, place): &&(String, String)| text.contains(id.as_str()) && text.contains(file_and_line(place));
    let missing: Vec<_> = planted.iter().filter(|fault| !is_reported(fault)).collect();
    assert!(missing.is_empty(), "{missing:#?} not reported:\n{words}");
    assert_eq!((words.matches("What matters first").count(), words.matches(" Try: ").count()), (1, 3), "{words}");
}

/// Asserts that replay lists each finding, and shows its file and line below the list when it is selected.
#[track_caller]
fn shown(recording: &Recording, planted: &BTreeSet<(String, String)>) {
    let mut terminal = Terminal::open((200, 60), ["replay".as_ref(), recording.file.as_os_str()]);
    terminal.wait_for("0 Overview");
    let mut left: BTreeSet<&str> = planted.iter().map(|(_, place)| file_and_line(place)).collect();
    // There are at most as many rows as the report has findings.
    for _ in 0..=json::list(&recording.report, "/findings").len() {
        // The screen is drawn ten times a second.
        std::thread::sleep(Duration::from_millis(300));
        let text: String = terminal.text().split_whitespace().collect();
        left.retain(|place| !text.contains(place));
        if left.is_empty() {
            return quit(terminal);
        }
        terminal.press("\x1b[B");
    }
    panic!("{left:?} not shown:\n{}", terminal.text());
}

/// Returns `features.py:14)`: the screen shows the end of a long path.
fn file_and_line(place: &str) -> &str {
    place.rsplit('/').next().unwrap_or(place)
}

/// The standard library is enough for two of the faults.
fn without_packages() {
    let (recording, ended) = record(&bare().unwrap());
    assert!(ended.stderr.contains("without NumPy"), "{}", ended.stderr);
    let found = found(&recording, &planted());
    let ids: Vec<&str> = found.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["gil/convoy", "shm/residue"], "{:#}", recording.report["findings"]);
}

/// The pipeline ends with its standard input, and removes what a killed one left.
fn leaves_nothing() {
    let plain = python().unwrap().executable;
    let (killed, since) = (start(&plain), Instant::now());
    let first = killed.pid();
    while segments(first).is_empty() {
        assert!(since.elapsed() < PATIENCE, "the pipeline made no segment");
        std::thread::sleep(Duration::from_millis(20));
    }
    killed.kill();
    assert_ne!(segments(first), [""; 0]);
    let ended = ends(Workload::start(pipeline(&plain)));
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(segments(first), [""; 0]);
}

/// Watches the whole machine, which must be idle except for these.
fn idle() {
    let sleeping = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.5)";
    let waiting = "import threading, time\nfor _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()\n\
                   print('ready', flush=True)\ntime.sleep(600)";
    let reading = "import socket\nhere, there = socket.socketpair()\nprint('ready', flush=True)\nhere.recv(1)";
    let asleep = [sleeping, waiting, reading].map(|program| {
        let mut program = Workload::start(python().unwrap().inline(program));
        program.wait_for("ready");
        program
    });
    let recording = watch().seconds(12.0).run();
    for program in &asleep {
        recording.process(program.pid());
    }
    drop(asleep);
    // Segments that other programs left behind are reported rightly, but have nothing to do with these.
    let findings = json::list(&recording.report, "/findings").iter().filter(|finding| finding["id"] != "shm/residue");
    assert_eq!(findings.collect::<Vec<_>>(), &[] as &[&Value]);
}
