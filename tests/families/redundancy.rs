//! The family `redundancy` against programs whose redundancy is known by construction, and the programs' own check that they
//! compute the same.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::path::Path;
use std::process::{Command, ExitCode};

use pyobs_tests::{Case, Folder, Python, Record, Recording, case, command, json, needs, shared_library, workload};
use serde_json::Value;

fn main() -> ExitCode {
    let mut cases: Vec<Case> = vec![
        case("the_family_is_off_unless_asked_for", off_by_default).needs(needs::root()),
        known("half_of_the_loads_are_redundant", || share("loads", 50, "load", "equal", "compared")),
        known("a_quarter_of_the_stores_changes_nothing", || share("stores", 25, "store", "equal", "compared")),
        known("half_of_the_stores_are_never_read", || share("dead", 50, "store", "unread", "looked")),
        known("threads_have_their_own", threads),
        twins("a_slice_is_told_from_an_element_loop", "3.12", "slice", DISPATCH, 6),
    ];
    for percent in [0, 25, 75, 100] {
        let name = format!("{percent}_percent_of_loads_and_stores");
        cases.push(
            known(&name, move || {
                share("loads", percent, "load", "equal", "compared");
                share("stores", percent, "store", "equal", "compared");
                share("dead", percent, "store", "unread", "looked");
            })
            .needs(needs::all()),
        );
    }
    for version in ["3.8", "3.10", "3.11", "3.12", "3.13"] {
        for kind in ["slice", "algorithm", "api"] {
            cases.push(twins(&format!("{kind}_on_{version}"), version, kind, DISPATCH, 15).needs(needs::all()));
        }
    }
    pyobs_tests::run(cases)
}

const DISPATCH: &str = "redundancy/dispatch";

fn known(name: &str, body: impl Fn() + 'static + Send) -> Case {
    case(name, body).needs(needs::root()).needs(needs::python("3.12")).needs(needs::compiler(&[]))
}

fn record() -> Record {
    Record::new().rate(500).argument("--probe").argument("+redundancy")
}

fn run(folder: &Folder, arguments: &[&str]) -> Recording {
    let library = shared_library(&workload("redundancy.c"), folder);
    let mut python = needs::python("3.12").unwrap().command();
    python.arg(workload("redundancy.py")).arg(library).args(arguments);
    let recording = record().command(python).run();
    let told: Vec<u64> = recording.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(told[1], 0, "the program computes something else: {}", recording.stdout);
    recording
}

/// (of, all) summed over the pairs of a kind whose second access is in our library.
fn sums(recording: &Recording, kind: &str, of: &str, all: &str) -> (u64, u64) {
    let pairs = json::list(&recording.report["redundancy"], "/pairs");
    let own = |pair: &&Value| {
        let leaf = json::list(pair, "/second/stack").last();
        pair["kind"] == kind && leaf.is_some_and(|frame| frame["module"] == "library.so")
    };
    let sum = |key: &str| pairs.iter().filter(own).map(|pair| json::count(pair, &format!("/{key}"))).sum();
    (sum(of), sum(all))
}

/// The share is what the program was told, within five points and what chance allows for as many.
fn share(mode: &str, percent: u64, kind: &str, of: &str, all: &str) {
    let folder = Folder::new();
    let recording = run(&folder, &[mode, &percent.to_string(), "4"]);
    let (of, all) = sums(&recording, kind, of, all);
    assert!(all >= 100, "{all} pairs: {:#}", recording.report["redundancy"]["armed"]);
    let (told, seen) = (percent as f64 / 100.0, of as f64 / all as f64);
    let chance = 3.0 * (told * (1.0 - told) / all as f64).sqrt();
    assert!((seen - told).abs() <= 0.05 + chance, "{mode}: {of} of {all}, and {percent} percent are");
}

fn threads() {
    let folder = Folder::new();
    let recording = run(&folder, &["stores", "100", "3", "4"]);
    let (equal, compared) = sums(&recording, "store", "equal", "compared");
    assert!(compared >= 50 && equal * 20 >= compared * 19, "{equal} of {compared}");
    let pairs = json::list(&recording.report["redundancy"], "/pairs");
    let mut tids: Vec<u64> = pairs.iter().map(|pair| json::count(pair, "/second/tid")).collect();
    tids.sort_unstable();
    tids.dedup();
    assert!(tids.len() >= 3, "{tids:?}");
}

fn twins(name: &str, version: &'static str, kind: &'static str, id: &'static str, seconds: u32) -> Case {
    let with_numpy = needs::python(version).and_then(|python| numpy(&python));
    let body = move || {
        let python = needs::python(version).and_then(|python| numpy(&python)).unwrap();
        let (line, bad) = findings(&python, kind, "bad", id, seconds);
        let line = line.unwrap();
        assert!(bad.contains(&line), "{id} at {bad:?}, and line {line} wastes");
        let (_, good) = findings(&python, kind, "good", id, seconds);
        assert!(good.is_empty(), "{id} at {good:?}, and nothing wastes");
    };
    case(name, body).needs(needs::root()).needs(needs::shared()).needs(with_numpy)
}

fn numpy(python: &Python) -> Result<std::path::PathBuf, String> {
    let mut candidates = python.venv.iter().chain([&python.executable]);
    let has =
        |path: &Path| Command::new(path).args(["-c", "import numpy"]).output().is_ok_and(|out| out.status.success());
    let found = candidates.find(|path| has(path)).cloned();
    found.ok_or_else(|| format!("CPython {} cannot import numpy", python.version))
}

/// The marked line, and the lines that have this finding.
fn findings(python: &Path, kind: &str, variant: &str, id: &str, seconds: u32) -> (Option<u64>, Vec<u64>) {
    let mut program = command(python);
    program.args(["-B"]).arg(needs::shared().unwrap().join("workloads/redundancy/inefficiencies.py"));
    program.args([kind, variant]).arg(seconds.to_string());
    let recording = record().command(program).run();
    let told: Value = serde_json::from_str(recording.stdout.trim()).unwrap();
    let findings = json::list(&recording.report, "/findings").iter().filter(|finding| finding["id"] == id);
    let line = |finding: &Value| {
        let text = finding["evidence"]["line"].as_str().unwrap().to_owned();
        text.trim_end_matches(')').rsplit(':').next().unwrap().parse().unwrap()
    };
    (told["waste_line"].as_u64(), findings.map(line).collect())
}

fn off_by_default() {
    let recording = Record::new().command(command("true")).run();
    assert!(recording.report["redundancy"].is_null());
}
