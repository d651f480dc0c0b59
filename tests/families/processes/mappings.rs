//! Tests how pyobs notices executable mappings: by the programs at system calls if a family needs them from the
//! beginning, and otherwise, as by default, by the kernel's side-band records.

use std::fs;

use pyobs_tests::{Case, Folder, Record, case, compare, needs, shared_library, workload};

use super::{RATE, python};

/// Families with and without programs at system calls.
const WAYS: [(&str, &str); 2] = [("calls", "cpu,shm"), ("side_band", "cpu")];

pub fn cases() -> Vec<Case> {
    let mut cases = vec![case("the_side_band_is_closed_while_programs_run_at_calls", side_band)];
    for (way, probes) in WAYS {
        for how in ["mmap", "mprotect", "pkey_mprotect"] {
            let body = move || late_code(probes, how);
            cases.push(
                case(format!("code_that_comes_late_by_{how}_is_named_by_{way}"), body).needs(needs::program("cc")),
            );
        }
    }
    cases.into_iter().map(|case| case.needs(needs::root()).needs(needs::python("3.12"))).collect()
}

/// No sampler runs, so these perf events can only be the side band.
fn side_band() {
    for (probes, is_open) in [("shm", false), ("arena", true), ("shm,offcpu", false), ("offcpu", true)] {
        let recording = Record::new().argument("--probe").argument(probes).start();
        let events = recording.perf_events();
        assert_eq!(events > 0, is_open, "{events} perf events with --probe {probes}");
        recording.stop();
    }
}

fn late_code(probes: &str, how: &str) {
    const SECONDS: f64 = 0.5;
    let folder = Folder::new();
    let library = shared_library(&workload("late_code.c"), &folder);
    let other = folder.join("other.so");
    fs::copy(&library, &other).unwrap();
    let mut command = python().script(workload("late_code.py"));
    command.arg(how).arg(&library).arg(&other).arg(SECONDS.to_string());
    let recording = Record::new().rate(RATE).argument("--probe").argument(probes).command(command).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    let stacks = recording.stacks();
    let in_other = |stack: &&pyobs_tests::Stack| {
        stack.frames.iter().any(|frame| frame.function == "late_code" && frame.file() == "other.so")
    };
    let named: u64 = stacks.iter().filter(in_other).map(|stack| stack.samples).sum();
    compare::at_least("samples in late_code", named as f64, SECONDS * f64::from(RATE) * 0.5);
}
