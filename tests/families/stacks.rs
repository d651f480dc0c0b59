//! Tests complete stacks against what the programs know of themselves: at known points, at random ones, and at known
//! depths.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "stacks/calls.rs"]
mod calls;
#[path = "stacks/depths.rs"]
mod depths;
#[path = "stacks/greenlets.rs"]
mod greenlets;
#[path = "stacks/half_published.rs"]
mod half_published;
#[path = "stacks/names.rs"]
mod names;
#[path = "stacks/objects.rs"]
mod objects;
#[path = "stacks/points.rs"]
mod points;
#[path = "stacks/trampolines.rs"]
mod trampolines;

use std::process::ExitCode;

use pyobs_tests::{Recording, Stack, compare, json};

fn main() -> ExitCode {
    let mut cases = points::cases();
    cases.extend(depths::cases());
    cases.extend(names::cases());
    cases.extend(objects::cases());
    cases.extend(calls::cases());
    cases.extend(half_published::cases());
    cases.extend(greenlets::cases());
    cases.extend(trampolines::cases());
    pyobs_tests::run(cases)
}

/// A Python frame: function, file, line.
type Known = (String, String, u32);

fn python_frames(stack: &Stack) -> Vec<Known> {
    stack.python().into_iter().map(|(function, file, line)| (function.to_owned(), file.to_owned(), line)).collect()
}

/// Asserts that at least this share of the stacks is complete and fully unwound: the Python and the native stack reach
/// their ends, and every frame has a name.
#[track_caller]
fn are_fully_unwound(recording: &Recording, share: f64) {
    let count = |pointer: &str| json::count(&recording.report, pointer) as f64;
    let stacks = &recording.report["stacks"];
    for what in ["complete", "whole"] {
        let of_all = count(&format!("/stacks/{what}")) / count("/stacks/samples").max(1.0);
        compare::at_least(&format!("share of {what} stacks: {stacks}"), of_all, share);
    }
}

fn base(file: &str) -> String {
    file.rsplit('/').next().unwrap_or(file).to_owned()
}
