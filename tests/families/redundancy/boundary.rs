//! Tests that calls of packages by the program's own lines are compared by what they are given, whatever the package does below
//! them. The program marks its lines, and knows what changes at each.

use pyobs_tests::{Case, command, json, workload};
use serde_json::Value;

use super::{RECOMPUTED, by_version, lines, numpy, printed, record};

const SECONDS: &str = "30";
/// Of the comparisons at a line, those that may be equal although something changes at each call: a second sample of the same
/// call. A call takes less than a millisecond, and samples are two apart.
const SAME_MAX: f64 = 0.1;

pub fn cases() -> Vec<Case> {
    by_version("calls_of_packages_are_compared", &["3.8", "3.10", "3.11", "3.12", "3.13", "3.14"], compared)
}

fn compared(version: &str) {
    let mut program = command(numpy(version).unwrap());
    program.arg("-B").arg(workload("redundancy_boundary.py")).arg(SECONDS);
    let recording = record().command(program).run();
    let marked = printed(&recording);
    let line = |mark: &str| json::count(&marked, &format!("/{mark}"));
    let calls = json::list(&recording.report["redundancy"], "/calls");
    let at = |mark: &str, callee: &str| {
        let is_it = |call: &&Value| call["frame"]["line"] == line(mark) && call["callee"] == callee;
        calls.iter().find(is_it).unwrap_or_else(|| panic!("no {callee} at {mark} in {calls:#?}"))
    };
    let found = lines(&recording, RECOMPUTED);
    for mark in ["repeats", "subclass", "instance", "slots", "model"] {
        assert!(found.contains(&line(mark)), "{found:?} lacks {mark}: {calls:#?}");
    }
    // What varies: the first argument or the second.
    for (mark, varies) in [("item", 1), ("name", 1), ("attribute", 1), ("slot", 1), ("array", 2)] {
        let call = at(mark, "mixed");
        let (samples, same) = (json::count(call, "/samples"), json::count(call, "/same_arguments"));
        assert!(samples >= 20 && same as f64 <= SAME_MAX * samples as f64, "{mark}: {call:#}");
        assert_eq!(call["varying"], serde_json::json!([varies]), "{mark}: {call:#}");
        assert!(!found.contains(&line(mark)), "{mark} is in {found:?}");
    }
    let more = at("more", "remembered");
    assert!(json::count(more, "/results") > 0 && json::count(more, "/same_results") == 0, "{more:#}");
    assert!(!found.contains(&line("more")), "{found:?}");
    let is_hidden = |call: &Value| call["frame"]["line"] == line("hidden") && call["callee"] == "mixed";
    assert!(!calls.iter().any(is_hidden), "{calls:#?}");
    let is_sentence = |line: &str| line.contains("are undecided; waste at one line of more than");
    let undecided = json::count(&recording.report["redundancy"], "/undecided/lines");
    assert_eq!(recording.stderr.lines().any(is_sentence), undecided > 0, "{}", recording.stderr);
}
