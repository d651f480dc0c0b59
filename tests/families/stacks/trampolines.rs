//! Tests `python -X perf`, which calls every Python function through generated code in memory without a file.

use std::fs;

use pyobs_tests::{Case, Python, Record, Workload, case, compare, needs, workload};

use super::{are_fully_unwound, python_frames};

const VERSIONS: [&str; 2] = ["3.12", "3.13"];
const RATE: u32 = 499;

pub fn cases() -> Vec<Case> {
    let case = |version: &'static str| {
        let name = format!("python{version}::trampolines_for_perf_are_stepped_through");
        case(name, move || are_stepped_through(&needs::python(version).unwrap()))
            .needs(needs::root())
            .needs(needs::python(version))
    };
    VERSIONS.map(case).into()
}

/// A trampoline must appear as the Python function that it calls, with the native frames below it intact.
fn are_stepped_through(python: &Python) {
    let mut program = python.script(workload("perf_support.py"));
    program.env("PYTHONPERFSUPPORT", "1");
    let mut program = Workload::start(program);
    program.wait_for("ready");
    let map = format!("/tmp/perf-{}.map", program.pid());
    let record = Record::new().rate(RATE).argument("--budget").argument("50").argument("--probe").argument("cpu");
    let recording = record.pid(program.pid()).seconds(2.0).run();
    program.kill();
    assert!(fs::read_to_string(&map).is_ok_and(|map| map.contains("py::inner")), "the program made no trampolines");
    fs::remove_file(map).unwrap();
    assert!(recording.status.success(), "{}", recording.stderr);
    are_fully_unwound(&recording, 0.98);
    let (mut right, mut all) = (0, 0);
    for stack in recording.stacks() {
        let trampoline = stack.frames.iter().find(|frame| frame.function.starts_with("py::"));
        assert!(trampoline.is_none(), "{stack:?}");
        let names: Vec<String> = python_frames(&stack).into_iter().map(|(function, ..)| function).collect();
        let is_from_the_start = stack.frames.first().is_some_and(|frame| frame.function == "_start");
        all += stack.samples;
        right += if is_from_the_start && names == ["<module>", "outer", "inner"] { stack.samples } else { 0 };
    }
    compare::at_least(&format!("correct samples of {all}"), right as f64, all as f64 * 0.98);
}
