//! Tests repeated calls. The program's arguments are known by construction.

use pyobs_tests::{Case, Recording, case, json, needs, workload};

use serde_json::Value;

use super::{COPIED, RECOMPUTED, inefficiencies, lines, numpy, printed, record};

pub fn cases() -> Vec<Case> {
    let versions = ["3.8", "3.10", "3.11", "3.12", "3.13"].map(|version| {
        let name = format!("calls_again_on_{version}");
        let case = case(name, move || calls(version)).needs(needs::root()).needs(numpy(version));
        if version == "3.12" { case } else { case.needs(needs::all()) }
    });
    let operands = ["3.8", "3.11", "3.12", "3.13"].map(|version| {
        let name = format!("operands_of_many_types_are_compared_on_{version}");
        let case = case(name, move || operands(version)).needs(needs::root()).needs(numpy(version));
        if version == "3.12" { case } else { case.needs(needs::all()) }
    });
    // NumPy has `concatenate` in C from 1.25 on, which needs 3.9.
    let copies = ["3.11", "3.12", "3.13"].map(|version| {
        let name = format!("arrays_that_grow_by_copies_are_found_on_{version}");
        let case = case(name, move || copies(version)).needs(needs::root()).needs(numpy(version));
        if version == "3.12" { case } else { case.needs(needs::all()) }
    });
    let weight = case("redundant_samples_are_in_the_element_loop", redundant_samples);
    versions
        .into_iter()
        .chain(operands)
        .chain(copies)
        .chain([weight.needs(needs::root()).needs(numpy("3.12")).needs(needs::all())])
        .collect()
}

fn calls(version: &str) {
    let mut program = pyobs_tests::command(numpy(version).unwrap());
    program.arg("-B").arg(workload("redundancy_calls.py")).arg("12");
    let recording = record().command(program).run();
    let printed = printed(&recording);
    let sums = |what: &str| sums(&recording, printed[what].as_u64().unwrap());
    let (same, all, same_results, results) = sums("again");
    assert!(all >= 50 && same * 20 >= all * 19, "again: {same} of {all}");
    assert!(results >= 10 && same_results * 20 >= results * 19, "again: {same_results} of {results} results");
    // Of two alternating values, half of the samples see the previous one again, whatever lies between.
    let (same, all, ..) = sums("alternating");
    assert!(all >= 50 && (30..=70).contains(&(same * 100 / all)), "alternating: {same} of {all}");
    let (same, all, ..) = sums("fresh");
    // One may be a call that was sampled twice.
    assert!(all >= 50 && same <= 1 + all / 100, "fresh: {same} of {all}");
    let (_, _, same_results, results) = sums("impure");
    assert!(same_results * 100 <= results, "impure: {same_results} of {results} results");
    let mut found = lines(&recording, RECOMPUTED);
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, [printed["again"].as_u64().unwrap()]);
}

fn operands(version: &str) {
    let mut program = pyobs_tests::command(numpy(version).unwrap());
    program.arg("-B").arg(workload("redundancy_operands.py")).arg("20");
    let recording = record().command(program).run();
    let printed = printed(&recording);
    let found = lines(&recording, RECOMPUTED);
    let at_lines = json::list(&recording.report["redundancy"], "/lines");
    for (name, array) in [("elements", "float64 60"), ("set_elements", "float64 61")] {
        let at = at_lines.iter().find(|of| of["frame"]["line"] == printed["elements"][name]);
        assert_eq!(at.map(|of| &of["elements_of"]), Some(&Value::from(array)), "{name}: {at_lines:#?}");
    }
    let set = printed["elements"]["set_elements"].as_u64().unwrap();
    assert_eq!(sums(&recording, set), (0, 0, 0, 0), "setting an item is no call");
    for (name, line) in printed["same"].as_object().unwrap() {
        let line = line.as_u64().unwrap();
        let (same, all, same_results, results) = sums(&recording, line);
        assert!(all >= 20 && same * 20 >= all * 19, "{name}: {same} of {all}");
        assert!(results >= 3 && same_results == results, "{name}: {same_results} of {results} results");
        assert!(found.contains(&line), "{name} at {line} is not in {found:?}");
    }
    for (name, line) in printed["fresh"].as_object().unwrap() {
        let line = line.as_u64().unwrap();
        let (same, all, ..) = sums(&recording, line);
        // One may be a call that was sampled twice.
        assert!(same <= 1 + all / 100, "{name}: {same} of {all}");
        assert!(!found.contains(&line), "{name} at {line} is in {found:?}");
    }
}

fn copies(version: &str) {
    let mut program = pyobs_tests::command(numpy(version).unwrap());
    program.arg("-B").arg(workload("redundancy_copies.py")).arg("20");
    let recording = record().command(program).run();
    let printed = printed(&recording);
    let line = |what: &str| printed[what].as_u64().unwrap();
    let mut found = lines(&recording, COPIED);
    found.sort_unstable();
    assert_eq!(found, [line("grown"), line("grown_table"), line("grown_text")]);
    let calls = json::list(&recording.report["redundancy"], "/calls");
    let kinds = [("grown", "bytes", 8.0), ("grown_table", "table_bytes", 16.0), ("grown_text", "text_bytes", 7.0)];
    for (what, bytes, each) in kinds {
        let of_line =
            calls.iter().filter(|call| call["frame"]["line"] == line(what) && json::count(call, "/joins") > 0);
        for call in of_line {
            let [copied, added, own] =
                [&call["copied_bytes"], &call["added_bytes"], &printed[bytes]].map(Value::as_f64);
            let (copied, own) = (copied.unwrap(), own.unwrap());
            assert!((copied / own - 1.0).abs() < 0.1, "{what}: {copied} of {own} bytes");
            assert_eq!(added, Some(each), "{what}");
        }
    }
}

/// (same arguments, compared, same results, compared) of the calls at a line.
fn sums(recording: &Recording, line: u64) -> (u64, u64, u64, u64) {
    let calls = json::list(&recording.report["redundancy"], "/calls");
    let sum = |key: &str| {
        let of_line = calls.iter().filter(|call| call["frame"]["line"] == line);
        of_line.map(|call| call[key].as_u64().unwrap_or(0)).sum()
    };
    (sum("same_arguments"), sum("samples"), sum("same_results"), sum("results"))
}

fn redundant_samples() {
    let mut program = pyobs_tests::command(numpy("3.12").unwrap());
    program.arg("-B").arg(inefficiencies());
    program.args(["slice", "bad", "4"]);
    let recording = record().command(program).run();
    let folded = recording.export("folded", &["--weight", "redundant"]);
    let weight = |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
    let all: u64 = folded.lines().map(weight).sum();
    let own: u64 = folded.lines().filter(|line| line.contains("slice_bad (")).map(weight).sum();
    assert!(all >= 100 && own * 10 >= all * 9, "{own} of {all}");
}
