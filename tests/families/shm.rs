//! Tests the family `shm` against programs that know what they share, and against `/proc`.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "shm/hostile.rs"]
mod hostile;
#[path = "shm/later.rs"]
mod later;
#[path = "shm/passing.rs"]
mod passing;
#[path = "shm/random.rs"]
mod random;
#[path = "shm/standard.rs"]
mod standard;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pyobs_tests::{Python, Record, json, needs};
use serde_json::Value;

const FOLDER: &str = "/dev/shm";

fn main() -> ExitCode {
    let mut cases = passing::cases();
    cases.extend(standard::cases());
    cases.extend(random::cases());
    cases.extend(hostile::cases());
    cases.extend(later::cases());
    pyobs_tests::run(cases)
}

/// By default, one interpreter runs all modes of a program, and one for each kind of system library runs some.
fn quick(python: &Python, mode: &str, some: &[&str]) -> Result<(), String> {
    let one = python.is("3.12") && python.root.is_none();
    let few = (python.is("3.8") || python.is("3.13")) && some.contains(&mode);
    if one || few { Ok(()) } else { needs::all() }
}

/// Records this family alone.
fn record() -> Record {
    Record::new().argument("--probe").argument("shm")
}

/// Files in `/dev/shm`, removed with their case.
struct Names(Vec<String>);

impl Drop for Names {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = std::fs::remove_file(path(name));
        }
    }
}

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn segments(report: &Value) -> &[Value] {
    json::list(report, "/segments")
}

/// The only segment with a name.
#[track_caller]
fn segment<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found: Vec<&Value> = segments(report).iter().filter(|segment| segment["name"] == name).collect();
    assert!(found.len() == 1, "{} segments are called {name:?}: {:#}", found.len(), report["segments"]);
    found[0]
}

/// The pids of all current and past holders, sorted.
fn all_holders(segment: &Value) -> Vec<u64> {
    let rows = json::list(segment, "/holders").iter().chain(json::list(segment, "/past_holders"));
    let mut pids: Vec<u64> = rows.map(|row| json::count(row, "/pid")).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// The pairs of processes between which its descriptors passed.
fn passes(segment: &Value) -> Vec<(u64, u64)> {
    let rows = json::list(segment, "/passed").iter();
    rows.map(|row| (json::count(row, "/from_pid"), json::count(row, "/to_pid"))).collect()
}

/// Asserts that it was made in this function, and that the frame has a line.
#[track_caller]
fn is_born_in(segment: &Value, function: &str, file: &str) {
    let stack = json::list(segment, "/stack");
    let found = stack.iter().any(|frame| {
        let of = frame["file"].as_str().unwrap_or_default();
        frame["function"] == function && of.ends_with(file) && frame["line"].is_u64()
    });
    assert!(found, "{function} of {file} is not in {stack:#?}");
}

fn finding<'a>(report: &'a Value, id: &str, name: &str) -> Option<&'a Value> {
    json::list(report, "/findings").iter().find(|it| it["id"] == id && it["evidence"]["name"] == name)
}

/// Asserts that the recording missed nothing.
#[track_caller]
fn nothing_is_lost(report: &Value) {
    let loss = report["loss"].as_object().unwrap();
    let of_this_family = ["ring_full", "table_full", "record_malformed"];
    let lost = loss.keys().find(|key| key.starts_with("segment") || of_this_family.contains(&key.as_str()));
    assert!(lost.is_none() && !loss.contains_key("descriptors_unseen"), "{loss:?}");
}
