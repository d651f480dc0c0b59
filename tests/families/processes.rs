//! Tests processes: they must be found however and whenever they begin, named, and told apart from programs that are
//! not Python.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "processes/born.rs"]
mod born;
#[path = "processes/limits.rs"]
mod limits;
#[path = "processes/many.rs"]
mod many;
#[path = "processes/mappings.rs"]
mod mappings;
#[path = "processes/places.rs"]
mod places;
#[path = "processes/strange.rs"]
mod strange;
#[path = "processes/strangers.rs"]
mod strangers;

use std::process::{Command, ExitCode};

use pyobs_tests::{Python, Recording, compare, json, needs, workload};
use serde_json::Value;

const RATE: u32 = 999;

fn main() -> ExitCode {
    let mut cases = born::cases();
    cases.extend(strange::cases());
    cases.extend(many::cases());
    cases.extend(mappings::cases());
    cases.extend(strangers::cases());
    cases.extend(places::cases());
    cases.extend(limits::cases());
    pyobs_tests::run(cases)
}

fn python() -> Python {
    needs::python("3.12").unwrap()
}

/// Burns this many seconds of CPU time in a function of this name.
fn burn(python: &Python, function: &str, seconds: &str) -> Command {
    let mut command = python.script(workload("burn.py"));
    command.args([function, seconds]);
    command
}

/// The samples of a process in a function.
#[track_caller]
fn samples_in(recording: &Recording, pid: u32, function: &str) -> u64 {
    recording.stacks_of(pid).iter().filter(|stack| stack.has(function)).map(|stack| stack.samples).sum()
}

/// Asserts that the process is reported as this Python, and has at least half of the samples that its CPU time in the
/// function should give.
#[track_caller]
fn is_named(recording: &Recording, python: &Python, pid: u32, function: &str, cpu_s: f64) {
    assert_eq!(recording.process(pid)["python"], python.version.as_str(), "{}", recording.process(pid));
    let what = || format!("samples of process {pid} in {function}; the report:\n{:#}", recording.report["loss"]);
    compare::at_least(&what(), samples_in(recording, pid, function) as f64, cpu_s * f64::from(RATE) * 0.5);
}

/// The children that a workload prints at its end.
#[track_caller]
fn children(stdout: &str) -> Vec<(u32, String)> {
    let truth = json::parse(stdout.lines().last().unwrap_or_default());
    let child =
        |child: &Value| (u32::try_from(json::count(child, "/pid")).unwrap(), json::text(child, "/function").to_owned());
    json::list(&truth, "/children").iter().map(child).collect()
}
