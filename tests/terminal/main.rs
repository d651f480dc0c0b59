//! Tests `top` and `replay` in a real pseudo-terminal, through what a user types and sees. The cases wait for text;
//! nothing is timed.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod demo;
mod ends;
mod hostile;
mod kept;
mod logs;
mod progress;
mod pty;
mod replay;
mod screens;
mod transfers;

#[path = "../faults/support/bpf.rs"]
mod bpf;
#[path = "../faults/support/spoilt.rs"]
mod spoilt;

use std::process::ExitCode;

use pyobs_tests::{Case, Python, needs};

fn main() -> ExitCode {
    let beside: [fn() -> Vec<Case>; 7] =
        [kept::cases, screens::cases, replay::cases, hostile::cases, logs::cases, progress::cases, transfers::cases];
    let alone: [fn() -> Vec<Case>; 2] = [ends::cases, demo::cases];
    let beside = beside.into_iter().flat_map(|cases| cases()).map(Case::beside);
    pyobs_tests::run(beside.chain(alone.into_iter().flat_map(|cases| cases())).collect())
}

/// The interpreter for cases that do not depend on its version.
fn python() -> Result<Python, String> {
    let newest = || Python::all().iter().rev().find(|python| python.root.is_none()).cloned();
    needs::python("3.12").or_else(|_| newest().ok_or_else(|| "there is no CPython here".to_owned()))
}
