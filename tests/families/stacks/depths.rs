//! Tests stacks of known depths.

use pyobs_tests::{Case, Python, Record, Recording, case, compare, json, needs, workload};
use serde_json::Value;

use super::{are_fully_unwound, python_frames};

const RATE: u32 = 999;
/// The deepest stack that is walked completely.
const MOST: usize = 1024;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for python in Python::all() {
        for frames in [1, 50, 200, 1024] {
            cases.push(of(python, &format!("all_of_{frames}_frames_are_there"), frames));
        }
        cases.push(of(python, "of_1300_frames_those_at_the_leaf_are_there", 1300));
    }
    cases
}

fn of(python: &Python, what: &str, frames: usize) -> Case {
    let (name, every) = (format!("{}::{what}", python.name()), needs::every(python));
    let python = python.clone();
    let body = move || {
        let mut command = python.script(workload("depths.py"));
        command.arg(frames.to_string());
        let recording = Record::new().rate(RATE).command(command).run();
        assert!(recording.status.success(), "{}", recording.stderr);
        let truth = json::parse(recording.stdout.lines().last().unwrap_or_default());
        are_there(&recording, &truth, frames);
    };
    case(name, body).needs(needs::root()).needs(every)
}

fn are_there(recording: &Recording, truth: &Value, frames: usize) {
    let line = |name: &str| u32::try_from(json::count(truth, &format!("/lines/{name}"))).unwrap();
    let known = |function: &str, line: u32| (function.to_owned(), "depths.py".to_owned(), line);
    let mut expected = vec![known("down", line("calls")); frames];
    expected[0] = known("<module>", line("module"));
    if frames > 1 {
        expected[frames - 1] = known("down", line("burns"));
    }
    let expected = &expected[frames.saturating_sub(MOST)..];
    let (mut right, mut wrong, mut all) = (0, Vec::new(), 0);
    for stack in recording.stacks() {
        all += stack.samples;
        let frames = python_frames(&stack);
        if frames == expected {
            right += stack.samples;
        } else if frames.last() == expected.last() {
            let different = frames.iter().zip(expected).position(|(one, other)| one != other);
            wrong.push((stack.samples, frames.len(), different, frames.into_iter().take(3).collect::<Vec<_>>()));
        }
    }
    let others: u64 = wrong.iter().map(|(samples, ..)| samples).sum();
    assert!(
        others * 1000 <= right,
        "{others} of {} stacks are not of {} frames: {wrong:?}",
        right + others,
        expected.len()
    );
    let least = json::number(truth, "/cpu_s") * f64::from(RATE) * 0.5;
    compare::at_least(&format!("stacks of {} frames", expected.len()), right as f64, least);
    let truncated = json::count(&recording.report, "/stacks/truncated");
    if frames > MOST {
        // A share, because an export sums the samples' weights while the report counts samples.
        let share = truncated as f64 / json::number(&recording.report, "/stacks/samples");
        compare::at_least("share of stacks reported as truncated", share, right as f64 / all as f64 * 0.97);
    } else {
        assert_eq!(truncated, 0, "{}", recording.report["stacks"]);
        // There are no unwind tables in the first thirty milliseconds.
        are_fully_unwound(recording, 0.8);
    }
}
