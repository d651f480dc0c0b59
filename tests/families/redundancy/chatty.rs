//! Tests that loops of small calls are found, and their turns timed, beside calls of the same libraries that are worth their
//! time. The program knows its lines and how long its turns took.

use pyobs_tests::{Case, Recording, command, json, workload};
use serde_json::Value;

use super::{by_version, findings_of, numpy, printed, record};

const CHATTY: &str = "redundancy/chatty";
const SECONDS: &str = "12";
/// The timed turns are compared with the program's average. A trap leaves cold caches behind, and what it costs is known only
/// approximately, which matters where a turn takes less time than a trap.
const FACTOR: f64 = 2.0;
const OF_TRAPS: f64 = 8e-6;

pub fn cases() -> Vec<Case> {
    by_version("loops_of_small_calls_are_found", &["3.8", "3.10", "3.11", "3.12", "3.13"], loops)
}

fn loops(version: &str) {
    let mut program = command(numpy(version).unwrap());
    program.arg("-B").arg(workload("redundancy_chatty.py")).arg(SECONDS);
    let recording = record().command(program).run();
    let known = printed(&recording);
    let found: Vec<(u64, &Value)> =
        findings_of(&recording, CHATTY).map(|finding| (line(finding), &finding["evidence"])).collect();
    let at = |name: &str| found.iter().find(|(line, _)| *line == json::count(&known[name], "/line"));
    let kinds = [
        ("rows", "pandas", "iterrows"),
        ("means", "numpy", "mean"),
        ("called", "numpy", "__call__"),
        ("applied", "numpy", "native code"),
    ];
    for (name, package, callee) in kinds {
        let Some((_, evidence)) = at(name) else { panic!("no {name} in {found:?}\n{}", calls(&recording)) };
        assert_eq!(evidence["package"], package);
        let called = json::text(evidence, "/callee");
        assert!(called.ends_with(callee), "{called} is no {callee}");
        let turns = [&known[name], evidence].map(|of| json::number(of, "/turn_s"));
        let [truth, seen] = turns;
        let is_right = seen < truth * FACTOR + OF_TRAPS && truth < seen * FACTOR + OF_TRAPS;
        assert!(is_right, "{name}: {seen} s, and in truth {truth} s");
    }
    assert_eq!(at("means").map(|(_, evidence)| &evidence["result_bytes"]), Some(&Value::from(8)), "a float64");
    for (name, function) in [("called", "doubled"), ("applied", "halved")] {
        assert_eq!(at(name).map(|(_, evidence)| &evidence["called_back"]), Some(&Value::from(function)));
    }
    for name in ["sorts", "whole", "long"] {
        assert!(at(name).is_none(), "{name} is in {found:?}");
    }
}

fn line(finding: &Value) -> u64 {
    let place = json::text(finding, "/evidence/line").trim_end_matches(')');
    place.rsplit(':').next().unwrap().parse().unwrap()
}

fn calls(recording: &Recording) -> String {
    format!("{:#}", recording.report["redundancy"]["calls"])
}
