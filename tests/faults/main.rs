//! Tests what goes wrong on real machines: bad arguments, files, processes and circumstances. Each must give one clear
//! sentence or a counted reason, nothing may stay attached, and nothing may crash.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod alone;
mod arguments;
mod churn;
mod confined;
mod flood;
mod garbage;
mod held_up;
mod hostile;
mod kernel;
mod killed;
mod logs;
mod mappings;
mod output;
mod rights;
mod security;
mod signals;
mod storage;
mod targets;
mod unreadable;

#[path = "support/bpf.rs"]
mod bpf;
#[path = "support/spoilt.rs"]
mod spoilt;
#[path = "support/verb.rs"]
mod verb;

use std::process::ExitCode;

use pyobs_tests::{Case, Python, needs};

fn main() -> ExitCode {
    let beside: [fn() -> Vec<Case>; 9] = [
        arguments::cases,
        targets::cases,
        alone::cases,
        storage::cases,
        unreadable::cases,
        output::cases,
        garbage::cases,
        hostile::cases,
        logs::cases,
    ];
    let alone: [fn() -> Vec<Case>; 10] = [
        held_up::cases,
        flood::cases,
        kernel::cases,
        rights::cases,
        confined::cases,
        killed::cases,
        mappings::cases,
        signals::cases,
        churn::cases,
        security::cases,
    ];
    let beside = beside.into_iter().flat_map(|cases| cases()).map(Case::beside);
    pyobs_tests::run(beside.chain(alone.into_iter().flat_map(|cases| cases())).collect())
}

/// The interpreter for cases that do not depend on its version.
fn python() -> Result<Python, String> {
    let newest = || Python::all().iter().rev().find(|python| python.root.is_none()).cloned();
    needs::python("3.12").or_else(|_| newest().ok_or_else(|| "there is no CPython here".to_owned()))
}
