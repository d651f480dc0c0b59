//! Tests pages and files that never arrive: a thread that reads one blocks until its process is killed.

use std::fs::File;
use std::time::Duration;

use pyobs_tests::{Case, Record, Recording, Workload, case, compare, json, needs, workload};

use crate::python;

const RATE: u32 = 199;

pub fn cases() -> Vec<Case> {
    let page = case("held_up/a_page_that_never_arrives_costs_a_neighbour_nothing", || {
        let recording = beside("unanswered.py", false);
        assert!(json::count(&recording.report, "/loss/read_held_up") > 0, "{:#}", recording.report["loss"]);
    });
    let stopped =
        case("held_up/a_page_that_never_arrives_does_not_block_ctrl_c", || drop(beside("unanswered.py", true)));
    let files = case("held_up/unresponsive_files_cost_a_neighbour_nothing", || {
        let recording = beside("stuck_files.py", false);
        let stacks = recording.stacks();
        let own = stacks.iter().filter(|stack| stack.frames.iter().any(|frame| frame.function == "beside_them"));
        let samples: u64 = own.map(|stack| stack.samples).sum();
        assert!(samples > RATE.into(), "{samples} samples of the program that mapped them");
    });
    let fuse = File::open("/dev/fuse").map(drop).map_err(|error| format!("/dev/fuse: {error}"));
    [page, stopped, files.needs(fuse)].map(|case| case.needs(needs::root()).needs(python())).into()
}

/// Records such a program beside a neighbour. If pyobs's own thread blocked, the recording would never end.
fn beside(name: &str, is_stopped: bool) -> Recording {
    let python = python().unwrap();
    let program = |name: &str| {
        let mut program = python.script(workload(name));
        program.arg("20");
        program
    };
    let mut hostile = Workload::start(program(name));
    hostile.wait_for("ready");
    let innocent = Workload::start(program("fault_spin.py"));
    let record = Record::new().rate(RATE).argument("--budget").argument("50");
    let record = record.pid(hostile.pid()).pid(innocent.pid());
    let recording = if is_stopped {
        let running = record.start();
        std::thread::sleep(Duration::from_secs(3));
        running.signal(libc::SIGINT);
        running.wait()
    } else {
        record.seconds(4.0).run()
    };
    assert!(recording.status.success(), "{}", recording.stderr);
    let seconds = json::number(&recording.report, "/recording/duration_s");
    let own = recording.process(innocent.pid());
    // The neighbour always computes, and the machine has a CPU for each of the two.
    compare::at_least("CPU seconds of the neighbour", json::number(own, "/cpu_s"), seconds * 0.8);
    let named = recording.stacks_of(innocent.pid()).iter().filter(|stack| !stack.python().is_empty()).count();
    assert!(named > 0, "the neighbour's functions have no names");
    recording
}
