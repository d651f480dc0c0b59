//! Tests the family `redundancy` against programs whose redundancy is known by construction. The programs also check
//! that their own results stay correct.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "redundancy/boundary.rs"]
mod boundary;
#[path = "redundancy/calls.rs"]
mod calls;
#[path = "redundancy/chatty.rs"]
mod chatty;
#[path = "redundancy/faults.rs"]
mod faults;
#[path = "redundancy/hidden.rs"]
mod hidden;
#[path = "redundancy/left_out.rs"]
mod left_out;
#[path = "redundancy/packages.rs"]
mod packages;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use pyobs_tests::{Case, Folder, Record, Recording, case, command, json, needs, shared_library, workload};
use serde_json::Value;

fn main() -> ExitCode {
    let mut cases: Vec<Case> = vec![
        case("the_family_is_off_unless_asked_for", off_by_default).needs(needs::root()),
        known("half_of_the_loads_are_redundant", || share("loads", 50, "8", "load", "equal", "compared")),
        known("stores_of_two_threads_are_told_apart", || threads(&[25, 75], "15")),
        known("stores_of_four_threads_are_told_apart", || threads(&[0, 25, 75, 100], "40")).needs(needs::all()),
        known("half_of_the_stores_are_never_read", || share("dead", 50, "25", "store", "unread", "looked"))
            .needs(needs::all()),
        twins("a_slice_is_distinguished_from_an_element_loop", "3.12", "slice", DISPATCH, 3),
    ];
    for percent in [0, 25, 75, 100] {
        let name = format!("{percent}_percent_of_loads_and_stores");
        cases.push(
            known(&name, move || {
                share("loads", percent, "25", "load", "equal", "compared");
                share("stores", percent, "25", "store", "equal", "compared");
                share("dead", percent, "25", "store", "unread", "looked");
            })
            .needs(needs::all()),
        );
    }
    for version in ["3.8", "3.10", "3.11", "3.12", "3.13"] {
        for kind in ["slice", "algorithm", "api"] {
            cases.push(twins(&format!("{kind}_on_{version}"), version, kind, DISPATCH, 15).needs(needs::all()));
        }
        cases.push(twins(&format!("repeat_on_{version}"), version, "repeat", RECOMPUTED, 20).needs(needs::all()));
        cases.push(invariant(version).needs(needs::all()));
    }
    cases.extend(boundary::cases());
    cases.extend(calls::cases());
    cases.extend(chatty::cases());
    cases.extend(hidden::cases());
    cases.extend(faults::cases());
    cases.extend(left_out::cases());
    cases.extend(packages::cases());
    pyobs_tests::run(cases)
}

const DISPATCH: &str = "redundancy/dispatch";
const RECOMPUTED: &str = "redundancy/recomputed";
const COPIED: &str = "redundancy/copied";
const DEAD: &str = "redundancy/dead-store";

fn known(name: &str, body: impl Fn() + 'static + Send) -> Case {
    case(name, body).needs(needs::root()).needs(needs::python("3.12")).needs(needs::compiler(&[]))
}

/// A case for each version; all but that for 3.12 only with `--all`.
fn by_version(name: &str, versions: &[&'static str], body: fn(&str)) -> Vec<Case> {
    let of = |version: &&'static str| {
        let version = *version;
        let case = case(format!("{name}_on_{version}"), move || body(version));
        let case = case.needs(needs::root()).needs(numpy(version));
        if version == "3.12" { case } else { case.needs(needs::all()) }
    };
    versions.iter().map(of).collect()
}

fn record() -> Record {
    Record::new().rate(500).argument("--probe").argument("+redundancy")
}

fn run(folder: &Folder, arguments: &[&str]) -> Recording {
    let library = shared_library(&workload("redundancy.c"), folder);
    let mut python = needs::python("3.12").unwrap().command();
    python.arg(workload("redundancy.py")).arg(library).args(arguments);
    let recording = record().command(python).run();
    let printed: Vec<u64> = recording.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(printed[1], 0, "the program computed wrong results: {}", recording.stdout);
    recording
}

/// (of, all) summed over the pairs of a kind whose second access is in our library, of one thread or of all. Asserts
/// that their stacks are fully unwound.
fn sums(recording: &Recording, kind: &str, of: &str, all: &str, tid: Option<u64>) -> (u64, u64) {
    let pairs = json::list(&recording.report["redundancy"], "/pairs");
    let own = |pair: &&Value| {
        let stack = json::list(pair, "/second/stack");
        let is_own = stack.last().is_some_and(|frame| frame["module"] == "library.so");
        assert!(!is_own || stack.iter().any(|frame| frame["function"] == "work"), "{stack:#?}");
        pair["kind"] == kind && is_own && tid.is_none_or(|tid| pair["second"]["tid"] == tid)
    };
    let sum = |key: &str| pairs.iter().filter(own).map(|pair| json::count(pair, &format!("/{key}"))).sum();
    (sum(of), sum(all))
}

fn share(mode: &str, percent: u64, seconds: &str, kind: &str, of: &str, all: &str) {
    let recording = run(&Folder::new(), &[mode, &percent.to_string(), seconds]);
    share_is(&recording, percent, kind, of, all);
}

/// Asserts that the share is the requested one, within five points and what chance allows for this many pairs.
fn share_is(recording: &Recording, percent: u64, kind: &str, of: &str, all: &str) {
    share_of_sums(sums(recording, kind, of, all, None), percent, kind);
}

fn share_of_sums((of, all): (u64, u64), percent: u64, kind: &str) {
    assert!(all >= 100, "{all} pairs of {kind}");
    let (wanted, seen) = (percent as f64 / 100.0, of as f64 / all as f64);
    let chance = 3.0 * (wanted * (1.0 - wanted) / all as f64).sqrt();
    assert!((seen - wanted).abs() <= 0.05 + chance, "{kind}: {of} of {all}, expected {percent} %");
}

fn threads(percents: &[u64], seconds: &str) {
    let (count, percents) = (percents.len(), percents.iter().map(u64::to_string).collect::<Vec<_>>().join(","));
    let recording = run(&Folder::new(), &["stores", &percents, seconds, &count.to_string()]);
    let printed: Vec<u64> = recording.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(printed.len(), 2 + 2 * count, "{printed:?}");
    for thread in printed[2..].chunks(2) {
        share_of_sums(sums(&recording, "store", "equal", "compared", Some(thread[0])), thread[1], "store");
    }
}

fn twins(name: &str, version: &'static str, kind: &'static str, id: &'static str, seconds: u32) -> Case {
    let body = move || {
        let recording = recorded(version, kind, "bad", seconds);
        let (line, bad) = (printed(&recording)["waste_line"].as_u64().unwrap(), lines(&recording, id));
        assert!(bad.contains(&line), "{id} at {bad:?}, but line {line} is the wasteful one");
        if id == RECOMPUTED {
            let by_arguments = findings_of(&recording, id).any(|found| found["evidence"]["same_arguments"].is_u64());
            assert!(by_arguments, "{:#}", recording.report["findings"]);
        }
        if let Some(array) = elements_of(kind) {
            let lines = json::list(&recording.report["redundancy"], "/lines");
            let of = lines.iter().find(|of| of["frame"]["line"] == line).map(|of| &of["elements_of"]);
            assert_eq!(of, Some(&Value::from(array)), "{lines:#?}");
        }
        let good = recorded(version, kind, "good", seconds);
        let there = line_of(instead(kind));
        let waste: Vec<u64> = lines(&good, id).into_iter().filter(|line| *line == there).collect();
        assert!(waste.is_empty(), "{id} at {waste:?}, where there is no waste");
        // Elsewhere, the twin of `algorithm` makes two calls on one row of the matrix, which are little but dispatch.
        // They take a few percent of the time and are reported as such.
        let more: Vec<&Value> = findings_of(&good, id).filter(|finding| share_of(finding) >= 0.1).collect();
        assert!(more.is_empty(), "{more:#?}");
    };
    case(name, body).needs(needs::root()).needs(numpy(version))
}

/// What the twin without waste does instead of the marked line.
fn instead(kind: &str) -> &'static str {
    match kind {
        "slice" => "weights -= 0.01 * gradients",
        "algorithm" => "rows[:-1] = rows[1:].copy()",
        "api" => "return np.sum(np.square(values))",
        "repeat" => "matrix = np.dot(rotation, matrix)",
        other => panic!("{other} has no twin"),
    }
}

/// The array whose rows or elements the marked line takes, as the program creates it.
fn elements_of(kind: &str) -> Option<&'static str> {
    match kind {
        "slice" => Some("float64 8x40"),
        "algorithm" => Some("float64 200x64"),
        _ => None,
    }
}

/// The number of the program's line with this text.
fn line_of(text: &str) -> u64 {
    let source = fs::read_to_string(inefficiencies()).unwrap();
    let line = source.lines().position(|line| line.trim() == text).unwrap();
    line as u64 + 1
}

fn inefficiencies() -> PathBuf {
    workload("inefficiencies.py")
}

/// A loop-invariant term always stores new values: only the repeated reads of its operands can be found.
fn invariant(version: &'static str) -> Case {
    let body = move || {
        let recording = recorded(version, "invariant", "bad", 15);
        let line = printed(&recording)["waste_line"].as_u64();
        let at = |id| lines(&recording, id).into_iter().filter(|other| Some(*other) == line).count();
        assert_eq!(at("redundancy/reread"), 1, "{line:?}");
        for id in [DISPATCH, RECOMPUTED, DEAD] {
            assert_eq!(at(id), 0, "{id} at {line:?}");
        }
        // The program's arrays, their transposes, its results, and the arrays that NumPy makes of numbers.
        let shapes = ["float64 256x32", "float64 32x256", "float64 256x48", "float64 32x48", "float64"];
        let pairs = json::list(&recording.report["redundancy"], "/pairs");
        let of: Vec<&str> =
            pairs.iter().filter(|pair| pair["memory"] == "array").map(|pair| json::text(pair, "/of")).collect();
        assert!(!of.is_empty() && of.iter().all(|of| shapes.contains(of)), "{of:?}");
    };
    let case = case(format!("invariant_on_{version}"), body);
    case.needs(needs::root()).needs(numpy(version))
}

/// The executable of an interpreter of this version that can import NumPy.
fn numpy(version: &str) -> Result<PathBuf, String> {
    let python = needs::python(version)?;
    let mut candidates = python.venv.iter().chain([&python.executable]);
    let has =
        |path: &Path| Command::new(path).args(["-c", "import numpy"]).output().is_ok_and(|out| out.status.success());
    let found = candidates.find(|path| has(path)).cloned();
    found.ok_or_else(|| format!("CPython {} cannot import numpy", python.version))
}

fn recorded(version: &str, kind: &str, variant: &str, seconds: u32) -> Recording {
    let mut program = command(numpy(version).unwrap());
    program.arg("-B").arg(inefficiencies());
    program.args([kind, variant]).arg(seconds.to_string());
    record().command(program).run()
}

/// What the program printed about itself.
fn printed(recording: &Recording) -> Value {
    serde_json::from_str(recording.stdout.trim()).unwrap()
}

fn findings_of<'a>(recording: &'a Recording, id: &str) -> impl Iterator<Item = &'a Value> {
    json::list(&recording.report, "/findings").iter().filter(move |finding| finding["id"] == id)
}

/// The share of the run. A finding without one counts as the whole run.
fn share_of(finding: &Value) -> f64 {
    finding["evidence"]["native_share"].as_f64().unwrap_or(1.0)
}

/// The lines that have this finding, in the order of the findings.
fn lines(recording: &Recording, id: &str) -> Vec<u64> {
    let line = |finding: &Value| {
        let text = json::text(finding, "/evidence/line");
        text.trim_end_matches(')').rsplit(':').next().unwrap().parse().unwrap()
    };
    findings_of(recording, id).map(line).collect()
}

fn off_by_default() {
    let recording = Record::new().command(command("true")).run();
    assert!(recording.report["redundancy"].is_null());
}
