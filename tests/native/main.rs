//! Tests native stacks as the kernel side walks them, against the same stacks copied and unwound by gimli, which
//! evaluates every rule of the call frame information.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod depth;
mod image;
mod oracle;
mod places;
mod programs;
mod space;
mod verdict;
mod watch;
mod witness;
mod work;

use std::process::ExitCode;

use pyobs_tests::{Workload, needs};

use crate::verdict::{Least, Verdict};
use crate::watch::{Plan, watch};

fn main() -> ExitCode {
    let cases = [work::cases(), places::cases(), depth::cases()].into_iter().flatten();
    pyobs_tests::run(cases.map(|case| case.needs(needs::root())).collect())
}

/// Watches a workload, checks what must hold for every one, and prints a summary.
#[track_caller]
fn agrees(what: &str, workload: &Workload, plan: Plan, least: &Least) -> Verdict {
    let verdict = watch(workload.pid(), plan, |_| ());
    eprintln!("{what}: {}", verdict.summary());
    verdict.holds(least);
    verdict
}
