//! Tests the family `heap` against what the kernel counts as resident before and after each line.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, ExitCode};

use pyobs_tests::{Case, Python, Record, Recording, Workload, case, json, needs, workload};
use serde_json::Value;

const MIB: f64 = (1 << 20) as f64;

type Named = (&'static str, fn(&Python));

fn main() -> ExitCode {
    let mut cases = Vec::new();
    for python in Python::all() {
        cases.push(of(python, "each_line_has_its_memory_at_the_peak", at_the_peak).needs(needs::few(python)));
        cases.push(of(python, "each_line_has_its_memory_now", live).needs(needs::every(python)));
        let rest: [Named; 5] = [
            ("what_was_given_back_is_not_held", returned),
            ("odd_ways_to_get_memory_are_seen", odd),
            ("malloc_instead_of_arenas_makes_no_difference", malloc),
            ("a_child_begins_with_a_copy", forked),
            ("the_moment_can_be_chosen", moments),
        ];
        let one = if python.is("3.12") { Ok(()) } else { needs::all() };
        cases.extend(rest.map(|(name, body)| of(python, name, body).needs(one.clone())));
    }
    pyobs_tests::run(cases)
}

fn of(python: &Python, name: &str, body: fn(&Python)) -> Case {
    let own = python.clone();
    case(format!("{}::{name}", python.name()), move || body(&own)).needs(needs::root())
}

fn program(python: &Python, mode: &str) -> Command {
    let mut command = python.script(workload("heap.py"));
    command.arg(mode);
    command
}

/// Where the program has its marker `LINE name`.
fn line_of(name: &str) -> u32 {
    let text = fs::read_to_string(workload("heap.py")).unwrap();
    let marker = format!("# LINE {name}");
    let at = text.lines().position(|line| line.ends_with(&marker));
    u32::try_from(at.unwrap_or_else(|| panic!("no line {name}")) + 1).unwrap()
}

/// Bytes by the innermost line of the program, as `export --weight bytes` has them; 0 for memory without such a line.
fn by_line(recording: &Recording, pid: u32, arguments: &[&str]) -> BTreeMap<u32, f64> {
    let mut sums = BTreeMap::new();
    let all = [&["--weight", "bytes"], arguments].concat();
    for stack in recording.stacks_selected(&all).into_iter().filter(|stack| stack.pid == pid) {
        let own = stack.python().into_iter().rfind(|(_, file, _)| *file == "heap.py").map_or(0, |(_, _, line)| line);
        *sums.entry(own).or_default() += stack.samples as f64;
    }
    sums
}

/// Each known line has what the program counted, within a tenth or two steps.
#[track_caller]
fn assert_known(lines: &BTreeMap<u32, f64>, known: &Value) {
    for (name, bytes) in known["known"].as_object().unwrap() {
        let (bytes, found) = (bytes.as_f64().unwrap(), lines.get(&line_of(name)).copied().unwrap_or(0.0));
        let off = (found - bytes).abs();
        assert!(
            off <= 0.1 * bytes.max(30.0 * MIB),
            "{name}: {:.1} MiB, should be {:.1}; {lines:?}",
            found / MIB,
            bytes / MIB
        );
    }
}

/// The lines and the files that the process maps add up to its resident memory.
#[track_caller]
fn assert_sum(recording: &Recording, lines: &BTreeMap<u32, f64>, known: &Value) {
    let rss = known["rss"].as_f64().unwrap();
    let row = json::list(&recording.report, "/heap").iter().find(|row| row["pid"] == known["pid"]).unwrap();
    let parts = ["objects", "blocks", "other", "unknown", "shared", "files"];
    let sum: u64 = parts.iter().map(|part| json::count(row, &format!("/{part}_bytes"))).sum();
    assert_eq!(sum, json::count(row, "/rss_bytes"), "{row}");
    let files = json::count(row, "/files_bytes") as f64;
    for sum in [sum as f64, lines.values().sum::<f64>() + files] {
        assert!((sum - rss).abs() <= 0.05 * rss, "{:.1} MiB of {:.1}", sum / MIB, rss / MIB);
    }
}

fn pid(known: &Value) -> u32 {
    u32::try_from(json::count(known, "/pid")).unwrap()
}

fn at_the_peak(python: &Python) {
    let recording = Record::new().argument("--budget").argument("50").command(program(python, "lines")).run();
    let known = json::parse(recording.stdout.lines().next().unwrap());
    let lines = by_line(&recording, pid(&known), &[]);
    assert_known(&lines, &known);
    assert_sum(&recording, &lines, &known);
    assert!(recording.words().contains("Memory by line"));
}

/// Attaches to a program that runs, lets it take its memory, and stops while it still holds it.
fn attached(python: &Python, mode: &str, environment: &[(&str, &str)]) -> (Recording, Value) {
    let mut command = program(python, mode);
    command.arg("wait").envs(environment.iter().copied());
    let mut target = Workload::start(command);
    target.wait_for("ready");
    let running = Record::new().argument("--budget").argument("50").pid(target.pid()).start();
    target.signal(libc::SIGUSR1);
    let known = json::parse(&target.line());
    // What was given back is noticed within a second or two.
    std::thread::sleep(std::time::Duration::from_secs(3));
    (running.stop(), known)
}

#[track_caller]
fn check(python: &Python, mode: &str, environment: &[(&str, &str)]) {
    let (recording, known) = attached(python, mode, environment);
    let lines = by_line(&recording, pid(&known), &[]);
    assert_known(&lines, &known);
    assert_sum(&recording, &lines, &known);
}

fn live(python: &Python) {
    check(python, "lines", &[]);
}

fn returned(python: &Python) {
    check(python, "returned", &[]);
}

fn odd(python: &Python) {
    check(python, "odd", &[]);
}

fn malloc(python: &Python) {
    check(python, "malloc", &[("PYTHONMALLOC", "malloc")]);
}

fn forked(python: &Python) {
    let mut command = program(python, "forked");
    command.arg("wait");
    let mut target = Workload::start(command);
    target.wait_for("ready");
    let running = Record::new().argument("--budget").argument("50").pid(target.pid()).start();
    target.signal(libc::SIGUSR1);
    let known = [target.line(), target.line()].map(|line| json::parse(&line));
    std::thread::sleep(std::time::Duration::from_secs(2));
    let recording = running.stop();
    for known in known {
        assert_known(&by_line(&recording, pid(&known), &[]), &known);
    }
}

fn moments(python: &Python) {
    let recording = Record::new().argument("--budget").argument("50").command(program(python, "lines")).run();
    let known = json::parse(recording.stdout.lines().next().unwrap());
    let pid = pid(&known);
    let at = |arguments: &[&str]| by_line(&recording, pid, arguments);
    assert_eq!(at(&["--at", "peak"]), at(&[]), "the process has ended");
    assert_eq!(at(&["--at", "end"]).len(), 0);
    let row = json::list(&recording.report, "/heap").iter().find(|row| row["pid"] == pid).unwrap();
    let peak = row["peak_s"].as_f64().unwrap();
    let before = at(&["--at", &format!("{}", peak - 0.7)]);
    assert!(before.contains_key(&line_of("tuples")), "{before:?}");
    assert!(!before.contains_key(&line_of("array")), "{before:?}");
}
