//! Tests which line is blamed when libraries call libraries. The program and the library mark the lines in their source.

use pyobs_tests::{Case, command, json, workload};
use serde_json::Value;

use super::{DISPATCH, by_version, findings_of, numpy, printed, record};

pub fn cases() -> Vec<Case> {
    by_version("a_library_is_blamed_at_its_own_line", &["3.8", "3.10", "3.11", "3.12", "3.13"], library)
}

fn library(version: &str) {
    let mut program = command(numpy(version).unwrap());
    program.arg("-B").arg(workload("redundancy_package.py")).arg("8");
    let recording = record().command(program).run();
    let marked = printed(&recording);
    let at = |file: &str, mark: &str| format!("{file}:{}", marked[mark]);
    let evidence = |finding: &Value, key: &str| {
        let place = json::text(finding, &format!("/evidence/{key}"));
        place.trim_end_matches(')').rsplit('/').next().unwrap().to_owned()
    };
    let found: Vec<(String, String)> = findings_of(&recording, DISPATCH)
        .map(|finding| (evidence(finding, "line"), evidence(finding, "caller")))
        .collect();
    let own = "redundancy_package.py";
    let waste = (at("trend.py", "waste"), at(own, "caller"));
    assert!(found.contains(&waste), "no {waste:?} in {found:?}");
    // NumPy implements the mean in Python (numpy/_core/_methods.py), and its lines are nobody's to change.
    let lines = json::list(&recording.report["redundancy"], "/lines");
    let file = |line: &Value, key: &str| json::text(line, &format!("/{key}/file")).to_owned();
    let small =
        lines.iter().find(|line| file(line, "frame").ends_with(own) && line["frame"]["line"] == marked["small"]);
    let small = small.unwrap_or_else(|| panic!("line {} is not in {lines:#?}", marked["small"]));
    assert_eq!(small["frame"], small["caller"]);
    assert!(json::count(small, "/samples") >= 50, "{small:#?}");
    assert!(lines.iter().all(|line| !file(line, "frame").contains("/numpy/")), "{lines:#?}");
}
