//! Tests what pyobs reads from files, processes and the kernel, against the interpreters, compilers and kernels at
//! hand.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod btf;
mod gil;
mod interpreters;
mod lines;
mod live_names;
mod offsets;
mod operands;
mod privileges;
mod starts;
mod thread_locals;
mod thread_state;
mod verifier;

// This is the source of `cargo xtask offsets`, so that the search for interpreters and the reading of debug information
// exist only once.
#[path = "../../xtask/src/offsets.rs"]
#[expect(dead_code, unreachable_pub, reason = "only the reading half is used here")]
mod generator;

use std::process::ExitCode;

use pyobs_tests::{Case, Python, case, needs};

fn main() -> ExitCode {
    let subjects: [fn() -> Vec<Case>; 12] = [
        btf::cases,
        offsets::cases,
        interpreters::cases,
        thread_locals::cases,
        thread_state::cases,
        lines::cases,
        live_names::cases,
        gil::cases,
        operands::cases,
        privileges::cases,
        starts::cases,
        verifier::cases,
    ];
    pyobs_tests::run(subjects.into_iter().flat_map(|cases| cases()).collect())
}

/// A case for each interpreter of our own root, and an ignored one for each version without an interpreter.
fn for_every_python(subject: &str, what: &str, body: fn(&Python)) -> Vec<Case> {
    for_pythons(subject, what, body, |_| Ok(()))
}

fn for_pythons(subject: &str, what: &str, body: fn(&Python), need: fn(&Python) -> Result<(), String>) -> Vec<Case> {
    let here = Python::all().iter().filter(|python| python.root.is_none());
    let cases = here
        .map(|python| case(format!("{subject}/{}::{what}", python.name()), move || body(python)).needs(need(python)));
    let versions = (6..=15).map(|minor| format!("3.{minor}"));
    let absent = versions.filter_map(|version| {
        let need = needs::python(&version);
        need.is_err().then(|| case(format!("{subject}/python{version}::{what}"), || ()).needs(need))
    });
    cases.chain(absent).collect()
}

/// Decodes bytes from hexadecimal digits.
fn hex(text: &str) -> Box<[u8]> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
