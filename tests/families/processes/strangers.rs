//! Programs that are not CPython must cost only a cached "no". strace shows what pyobs does to their files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pyobs_tests::{Case, Folder, Record, Workload, case, command, executable_named, json, needs, pyobs, workload};

const EXECUTIONS: usize = 100;
/// Runs `$0` a hundred times, ten at a time, each long enough to be examined, and prints the pids.
const RUN: &str = "for round in 0 1 2 3 4 5 6 7 8 9; do
    for one in 0 1 2 3 4 5 6 7 8 9; do \"$0\" 0.1 & echo $!; done
    wait
done";
/// A new file is opened once to be examined. In a watched process it is also opened once for its unwind table, and once
/// per batch of new names: a sleeping program is sampled at few places only.
const OPENED_MAX: [usize; 2] = [1, 2 + EXECUTIONS / 10];
/// pyobs takes a file to be unchanged for this long.
const TRUST: Duration = Duration::from_secs(1);

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("a_program_that_is_not_python_is_opened_once", others_are_opened_once),
        case("a_watched_program_that_is_not_python_is_opened_once", watched_are_opened_once),
    ];
    let cases = cases.into_iter().map(|case| case.needs(needs::program("strace")).needs(needs::program("sleep")));
    let named = [
        case("interpreters_that_are_not_read_are_named_once", not_read),
        case("doctor_reports_interpreters_that_are_not_read", not_read_by_doctor),
    ];
    cases.chain(named.map(|case| case.needs(needs::program("cc")))).map(|case| case.needs(needs::root())).collect()
}

fn not_read() {
    let folder = Folder::new();
    let source = workload("other_interpreters.c");
    let old = executable_named(&source, &folder.join("python2.7"), &[]);
    let pypy = executable_named(&source, &folder.join("pypy3"), &["-DPYPY"]);
    let mut shell = command("sh");
    shell.args(["-c", "\"$0\" & \"$0\" & \"$1\" & wait"]).arg(old).arg(pypy);
    let recording = Record::new().command(shell).run();
    for (name, what) in
        [("python2.7", "CPython 2.7.18 is older than 3.6"), ("pypy3", "PyPy, whose frames pyobs does not know")]
    {
        let times = recording.stderr.matches(&format!("{name}: {what}")).count();
        assert_eq!(times, 1, "{name}: {}", recording.stderr);
    }
    let samples: u64 = json::list(&recording.report, "/processes").iter().map(|row| json::count(row, "/samples")).sum();
    assert!(samples > 50, "their native frames are seen: {:#}", recording.report["processes"]);
}

fn not_read_by_doctor() {
    let folder = Folder::new();
    let old = executable_named(&workload("other_interpreters.c"), &folder.join("python2.7"), &[]);
    let mut running = command(old);
    running.arg("long");
    let _running = Workload::start(running);
    let mut doctor = command(pyobs());
    doctor.args(["doctor", "--json"]);
    let output = Workload::start(doctor).wait();
    let report = json::parse(&output.stdout);
    let check = |name: &str| json::list(&report, "/checks").iter().find(|check| check["name"] == name).cloned();
    let unread = check("interpreters that are not read").expect("a check of its own");
    assert_eq!(unread["status"], "degraded");
    let why = json::text(&unread, "/why");
    assert!(why.contains("1 × python2.7: CPython 2.7.18 is older than 3.6"), "{why}");
    let read = check("running interpreters").unwrap();
    assert!(!json::text(&read, "/why").contains("python2.7"), "{read:#}");
}

/// A copy of `sleep` under a name that nothing else on the machine uses.
fn stranger(folder: &Folder) -> PathBuf {
    let stranger = folder.join("stranger");
    fs::copy(needs::program("sleep").unwrap(), &stranger).unwrap();
    stranger
}

/// Runs `pyobs record` under strace, which logs its file operations.
fn record(folder: &Folder) -> std::process::Command {
    let mut strace = command("strace");
    strace.args(["-f", "-y", "-qq", "-e", "trace=%file", "-e", "signal=none", "-o"]).arg(folder.join("calls"));
    strace.arg(pyobs()).args(["record", "-o"]).arg(folder.join("a.pyobs"));
    strace
}

fn shell(stranger: &Path) -> [std::ffi::OsString; 4] {
    ["sh".into(), "-c".into(), RUN.into(), stranger.into()]
}

fn others_are_opened_once() {
    let folder = Folder::new();
    let stranger = stranger(&folder);
    let mut pyobs = Workload::start(record(&folder));
    while !folder.join("a.pyobs").exists() {
        assert!(pyobs.is_alive(), "pyobs does not record: {:?}", pyobs.kill());
        std::thread::sleep(Duration::from_millis(10));
    }
    let since = Instant::now();
    let [program, arguments @ ..] = shell(&stranger);
    let mut shell = command(program);
    shell.args(arguments);
    let ended = Workload::start(shell).wait();
    let took = since.elapsed();
    pyobs.signal_group(libc::SIGINT);
    assert!(pyobs.wait().status.success());

    let pids: BTreeSet<u32> = ended.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(pids.len(), EXECUTIONS, "{ended:?}");
    let calls = fs::read_to_string(folder.join("calls")).unwrap();
    opened(&calls, &stranger, OPENED_MAX[0]);
    // After that, pyobs checks only occasionally whether the file is still the same.
    let mut looked_at = pids;
    looked_at.retain(|pid| ["map_files", "root"].iter().any(|way| calls.contains(&format!("\"/proc/{pid}/{way}/"))));
    let may = 3 + took.as_secs() / TRUST.as_secs();
    assert!(looked_at.len() as u64 <= may, "files of {} of {EXECUTIONS} were looked at in {took:?}", looked_at.len());
}

fn watched_are_opened_once() {
    let folder = Folder::new();
    let stranger = stranger(&folder);
    let mut record = record(&folder);
    record.arg("--").args(shell(&stranger));
    let ended = Workload::start(record).wait();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(ended.stdout.lines().count(), EXECUTIONS, "{ended:?}");
    opened(&fs::read_to_string(folder.join("calls")).unwrap(), &stranger, OPENED_MAX[1]);
}

/// strace shows the file of a new descriptor, however it was opened.
#[track_caller]
fn opened(calls: &str, file: &Path, at_most: usize) {
    let end = format!("<{}>", file.display());
    let calls: Vec<&str> = calls.lines().filter(|call| call.contains("open") && call.ends_with(&end)).collect();
    assert!(!calls.is_empty(), "pyobs never opened it, so the case shows nothing");
    assert!(calls.len() <= at_most, "{} was opened {} times: {calls:#?}", file.display(), calls.len());
}
