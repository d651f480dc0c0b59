//! Tests every interpreter: compares the stacks and lines that a program records itself with the sampled ones.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use pyobs_tests::{Case, Python, Record, Recording, UNREADABLE, case, compare, json, needs, rule, workload};
use serde::Deserialize;
use serde_json::Value;

/// A frame as a program knows it: function, whole path and line.
type Known = (String, String, u32);

fn main() -> ExitCode {
    let mut cases = Vec::new();
    for python in Python::all() {
        let name = |what: &str| format!("{}::{what}", python.name());
        let for_this = |what: &str, body: fn(&Python)| {
            let python = python.clone();
            case(name(what), move || body(&python)).needs(needs::root())
        };
        cases.push(for_this("stacks_match_the_program", stacks_match_the_program));
        let older = for_this("stacks_match_the_program_before_linux_5_17", without_loop);
        cases.push(older.needs(needs::few(python)).needs(needs::program("cc")));
        cases.push(for_this("lines_have_their_shares_of_the_time", lines_have_their_shares_of_the_time));
        cases.push(for_this("code_that_reuses_memory_has_its_own_name_and_file", code_made_in_turn));
        cases.push(for_this("very_long_functions_have_their_lines", long_functions));
    }
    cases.push(no_version_is_left_out());
    pyobs_tests::run(cases.into_iter().map(Case::beside).collect())
}

/// With an empty list of interpreters everything would pass.
fn no_version_is_left_out() -> Case {
    case("there_is_an_interpreter", || assert!(!Python::all().is_empty(), "no CPython was found on this machine"))
}

fn record(python: &Python, script: &str, rate: u32, rules: &str) -> (Recording, Value) {
    let record = Record::new().rate(rate).command(python.script(workload(script)));
    let recording = if rules.is_empty() { record } else { record.refusing(rules) }.run();
    assert!(recording.status.success(), "{}", recording.stderr);
    let last = recording.stdout.lines().last().unwrap_or_default();
    let truth = json::parse(last);
    (recording, truth)
}

fn stacks_match_the_program(python: &Python) {
    stacks_are_true(python, "");
}

/// Without bpf_loop and bpf_find_vma, a bounded loop walks the stacks.
fn without_loop(python: &Python) {
    stacks_are_true(python, &[181, 180].map(|helper| rule("helper", helper, libc::EINVAL)).concat());
}

fn stacks_are_true(python: &Python, rules: &str) {
    const RATE: u32 = 999;
    let (recording, truth) = record(python, "nest.py", RATE, rules);
    let truths = json::list(&truth, "/truths");
    assert!(truths.len() > 35, "the program has only {} scenarios", truths.len());
    let mut sampled = BTreeMap::<Vec<(String, String, u32)>, u64>::new();
    for stack in recording.stacks() {
        let frames =
            stack.python().into_iter().map(|(function, file, line)| (function.into(), file.into(), line)).collect();
        *sampled.entry(frames).or_default() += stack.samples;
    }

    let mut wrong = Vec::new();
    for truth in truths {
        let frames = known_stack(truth);
        let shown: Vec<_> = frames.iter().map(|(function, file, line)| (function.clone(), base(file), *line)).collect();
        let seen = sampled.remove(&shown).unwrap_or(0);
        // Other programs take the CPU between samples, but not half of the time.
        let least = json::number(truth, "/cpu_s") * f64::from(RATE) * 0.5;
        if (seen as f64) < least {
            wrong
                .push(format!("{}: {seen} samples, not {least:.0} or more, of {shown:#?}", json::text(truth, "/name")));
        }
    }
    let leaves: Vec<_> =
        sampled.iter().filter(|(frames, _)| frames.last().is_some_and(|leaf| leaf.0 == "leaf")).collect();
    assert!(wrong.is_empty(), "{}\nunexpected stacks: {leaves:#?}", wrong.join("\n"));

    let all: u64 = json::count(&recording.report, "/stacks/samples");
    let unknown: u64 = leaves.iter().map(|(_, samples)| **samples).sum();
    compare::at_least("share of stacks below leaf() that are correct", 1.0 - unknown as f64 / all as f64, 0.995);
    frames_are_reported_with_whole_paths(&recording, truths);
}

fn frames_are_reported_with_whole_paths(recording: &Recording, truths: &[Value]) {
    let known: BTreeSet<Known> = truths.iter().flat_map(known_stack).collect();
    let known: Vec<Known> = known.into_iter().collect();
    compare::contains_all("reported frames", &reported(recording), &known);
}

/// The reported frames that have a file, which those without a name do not.
fn reported(recording: &Recording) -> Vec<Known> {
    let frames = json::list(&recording.report, "/frames").iter().map(|row| &row["frame"]);
    let known = |frame: &Value| {
        let file = frame["file"].as_str()?.to_owned();
        let line = u32::try_from(frame["line"].as_u64().unwrap_or(0)).unwrap();
        Some((json::text(frame, "/function").to_owned(), file, line))
    };
    frames.filter(|frame| frame["kind"] == "python").filter_map(known).collect()
}

fn known_stack(truth: &Value) -> Vec<Known> {
    json::list(truth, "/frames").iter().map(|frame| serde_json::from_value(frame.clone()).unwrap()).collect()
}

fn base(file: &str) -> String {
    file.rsplit('/').next().unwrap_or(file).to_owned()
}

fn lines_have_their_shares_of_the_time(python: &Python) {
    let (recording, truth) = record(python, "lines.py", 1999, "");
    let spent: Vec<(String, u32, f64)> = serde_json::from_value(truth["cpu_s"].clone()).unwrap();
    let total: f64 = spent.iter().map(|(_, _, seconds)| seconds).sum();
    let mut sampled = BTreeMap::<(String, u32), u64>::new();
    for stack in recording.stacks() {
        // Whatever burns the time, it counts for the caller's line.
        if let [.., (function, "lines.py", line), ("burn", "lines.py", _)] = stack.python()[..] {
            *sampled.entry((function.to_owned(), line)).or_default() += stack.samples;
        }
    }
    code_that_lives_is_named(&recording);
    let samples: u64 = sampled.values().sum();
    compare::at_least("samples", samples as f64, total * 1999.0 * 0.5);
    let mut wrong = Vec::new();
    for (function, line, seconds) in spent {
        let expected = seconds / total * 100.0;
        let seen = sampled.remove(&(function.clone(), line)).unwrap_or(0) as f64 / samples as f64 * 100.0;
        if seen == 0.0 || (seen - expected).abs() > 2.0 {
            wrong
                .push(format!("{function}:{line} has {seen:.2} % of the samples and used {expected:.2} % of the time"));
        }
    }
    assert!(wrong.is_empty(), "{}\nlines that call nothing, but were sampled: {sampled:#?}", wrong.join("\n"));
    assert!(sampled.is_empty(), "lines that call nothing were sampled: {sampled:#?}");
    only_existing_lines(&recording, &truth);
}

/// While the script's main() runs, all code in its stacks can be read, even if a frame is published before it is filled
/// in (3.11 and 3.12: docs/families/cpu.md). Earlier samples are excluded, because a module's body is freed after its
/// import.
fn code_that_lives_is_named(recording: &Recording) {
    let stacks = recording.stacks();
    let of_main = |(function, file, _): &(&str, &str, u32)| *function == "main" && *file == "lines.py";
    let of_main = stacks.iter().filter(|stack| stack.python().iter().any(of_main));
    let all: u64 = of_main.clone().map(|stack| stack.samples).sum();
    let nameless = of_main.filter(|stack| stack.has(UNREADABLE));
    let count: u64 = nameless.clone().map(|stack| stack.samples).sum();
    let nameless: Vec<_> = nameless.map(|stack| (stack.python(), stack.samples)).collect();
    // At most one in a thousand, or a single one.
    assert!(count * 1000 <= all.max(1000), "{count} of {all}: {} {nameless:#?}", recording.report["stacks"]);
}

/// Code objects that reuse each other's memory, most of them for about 50 ms.
fn code_made_in_turn(python: &Python) {
    const RATE: u32 = 499;
    let (recording, truth) = record(python, "short_code.py", RATE, "");
    let spent: Vec<(String, String, f64)> = serde_json::from_value(truth["truth"].clone()).unwrap();
    let mut sampled = BTreeMap::<(String, String), u64>::new();
    for stack in recording.stacks() {
        if let [.., ("run", "short_code.py", _), (function, file, _), ("burn", "short_code.py", _)] = stack.python()[..]
        {
            *sampled.entry((function.to_owned(), file.to_owned())).or_default() += stack.samples;
        }
    }
    let mut wrong = Vec::new();
    for (function, file, seconds) in spent {
        let expected = seconds * f64::from(RATE);
        let seen = sampled.remove(&(function.clone(), file.clone())).unwrap_or(0) as f64;
        // Other programs take the CPU between samples.
        if seen < expected * 0.4 || seen > expected + 4.0 * expected.sqrt() {
            wrong.push(format!("{function} in {file} has {seen} samples, not {expected:.0}"));
        }
    }
    assert!(wrong.is_empty(), "{}; left: {sampled:#?}", wrong.join("\n"));
    assert!(sampled.is_empty(), "functions that never ran: {sampled:#?}");
}

fn long_functions(python: &Python) {
    #[derive(Deserialize)]
    struct Function {
        name: String,
        bytes: u64,
        lines: Vec<(u32, f64)>,
    }
    const RATE: u32 = 499;
    /// pyobs does not read larger tables.
    const BYTES_MAX: u64 = 8 << 20;
    let (recording, truth) = record(python, "long_lines.py", RATE, "");
    let functions: Vec<Function> = serde_json::from_value(truth["functions"].clone()).unwrap();
    let mut sampled = BTreeMap::<(String, u32), u64>::new();
    for stack in recording.stacks() {
        if let [.., (function, "long_lines", line), ("burn", ..)] = stack.python()[..] {
            *sampled.entry((function.to_owned(), line)).or_default() += stack.samples;
        }
    }
    let mut wrong = Vec::new();
    let mut is_close = |what: &str, seen: u64, seconds: f64| {
        let (seen, expected) = (seen as f64, seconds * f64::from(RATE));
        // Other programs take the CPU between samples.
        if seen < expected * 0.4 || seen > expected + 4.0 * expected.sqrt() {
            wrong.push(format!("{what} has {seen} samples, not {expected:.0}"));
        }
    };
    for Function { name, bytes, lines } in functions {
        if bytes <= BYTES_MAX {
            for (line, seconds) in lines {
                let seen = sampled.remove(&(name.clone(), line)).unwrap_or(0);
                is_close(&format!("line {line} of {name}"), seen, seconds);
            }
            continue;
        }
        let of_function = |row: &&Value| row["frame"]["function"] == name && row["frame"]["line"].is_null();
        let rows = json::list(&recording.report, "/frames").iter().filter(of_function);
        let seen = rows.map(|row| json::count(row, "/total")).sum();
        is_close(&format!("{name} without a line"), seen, lines.iter().map(|(_, seconds)| seconds).sum());
        assert!(json::count(&recording.report, "/loss/line_unknown") > 0, "{}", recording.report["loss"]);
    }
    assert!(wrong.is_empty(), "{}; left: {sampled:#?}", wrong.join("\n"));
    assert!(sampled.is_empty(), "lines that never ran: {sampled:#?}");
}

fn only_existing_lines(recording: &Recording, truth: &Value) {
    let lines: BTreeMap<String, BTreeSet<u32>> = serde_json::from_value(truth["lines"].clone()).unwrap();
    let sampled = reported(recording).into_iter().filter(|(_, file, _)| file.ends_with("/lines.py"));
    let invented: Vec<Known> =
        sampled.filter(|(function, _, line)| !lines.get(function).is_some_and(|lines| lines.contains(line))).collect();
    assert!(invented.is_empty(), "the code of these functions has no such lines: {invented:#?}");
}
