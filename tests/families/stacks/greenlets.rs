//! Tests that a greenlet's stack ends at its first function, whatever lies below it on the C stack.

use std::process::{Command, Stdio};

use pyobs_tests::{Case, Python, Record, case, command, compare, json, needs, workload};
use serde_json::Value;

use super::{are_fully_unwound, python_frames};

const RATE: u32 = 499;
/// One version for each layout of frames.
const VERSIONS: [&str; 4] = ["3.9", "3.11.7", "3.12", "3.13"];

pub fn cases() -> Vec<Case> {
    let case = |version: &'static str| {
        let name = format!("python{version}::greenlets_have_their_own_stacks");
        case(name, move || have_stacks_of_their_own(&with_greenlets(version).unwrap()))
            .needs(needs::root())
            .needs(with_greenlets(version))
    };
    VERSIONS.map(case).into()
}

/// An interpreter of this version that has greenlet.
fn with_greenlets(version: &str) -> Result<std::path::PathBuf, String> {
    let is_it = |python: &&Python| python.is(version) || python.version == version;
    let python = Python::all().iter().find(is_it).ok_or_else(|| format!("there is no CPython {version}"))?;
    let missing = || format!("the environment of CPython {version} has no greenlet; `cargo xtask test` installs it");
    let venv = python.venv.as_ref().ok_or_else(missing)?;
    let has = Command::new(venv).args(["-c", "import greenlet"]).stderr(Stdio::null()).status();
    if has.is_ok_and(|status| status.success()) { Ok(venv.clone()) } else { Err(missing()) }
}

/// Compares stacks with the ones that `sys._getframe()` gave in each greenlet.
fn have_stacks_of_their_own(python: &std::path::Path) {
    let mut program = command(python);
    program.arg(workload("greenlets.py")).arg("4");
    let recording = Record::new().rate(RATE).argument("--budget").argument("50").command(program).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    let truth = json::parse(recording.stdout.lines().last().unwrap_or_default());
    let chains: Vec<Vec<&str>> = json::list(&truth, "/chains")
        .iter()
        .map(|chain| chain.as_array().unwrap().iter().filter_map(Value::as_str).collect())
        .collect();
    let (mut of_greenlets, mut wrong) = (0, Vec::new());
    for stack in recording.stacks() {
        let frames = python_frames(&stack);
        let names: Vec<&str> = frames.iter().map(|(function, ..)| function.as_str()).collect();
        let is_of_one = |name: &&str| ["work_", "middle_", "inner_"].iter().any(|start| name.starts_with(start));
        if !names.iter().any(is_of_one) {
            continue;
        }
        of_greenlets += stack.samples;
        // A chain is only partly there while its functions are being called.
        if !chains.iter().any(|chain| chain.starts_with(&names)) {
            wrong.push((stack.samples, names.join("; ")));
        }
    }
    let all_wrong: u64 = wrong.iter().map(|(samples, _)| samples).sum();
    assert!(all_wrong * 500 <= of_greenlets, "{all_wrong} of {of_greenlets} match no greenlet: {wrong:#?}");
    let seconds = of_greenlets as f64 / f64::from(RATE);
    compare::within("CPU seconds of greenlets", seconds, json::number(&truth, "/cpu_s"), 0.1);
    are_fully_unwound(&recording, 0.95);
}
