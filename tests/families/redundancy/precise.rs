//! Tests samples whose addresses the processor reports (PEBS). The development machines cannot take these, so page
//! faults, which also have an address, stand in for them. The program's stores are known by construction.

use std::time::{Duration, Instant};

use pyobs_capture::session::{Addresses, Options, Session};
use pyobs_model::{Event, Family, PairKind, Sampler, Touched};
use pyobs_tests::{Case, Workload, case, command, needs, options, workload};

use super::numpy;

pub fn cases() -> Vec<Case> {
    let case = case("addresses_reported_by_the_processor_are_watched", || {
        let (equal, all) = stores("same");
        assert!(all >= 20 && equal == all, "same: {equal} of {all}");
        let (equal, all) = stores("other");
        assert!(all >= 20 && equal == 0, "other: {equal} of {all}");
    });
    vec![case.needs(needs::root()).needs(numpy("3.12"))]
}

/// (equal, all) pairs of stores into the array.
fn stores(kind: &str) -> (usize, usize) {
    let mut program = command(numpy("3.12").unwrap());
    program.arg("-B").arg(workload("redundancy_faults.py")).args([kind, "60"]);
    let mut program = Workload::start(program);
    program.wait_for("ready");
    let probes = &[Family::Redundancy];
    let options = Options { addresses: Addresses::Faults, ..options(program.pid(), probes, 200) };
    let mut session = Session::start(&options).unwrap();
    let mut events = Vec::new();
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(8) {
        session.poll(Duration::from_millis(100), &mut events).unwrap();
    }
    session.finish(&mut events);
    let (mut equal, mut all, mut sampler) = (0, 0, Sampler::Decoded);
    for event in &events {
        match event {
            Event::Pair(pair) if pair.kind == PairKind::Store && matches!(pair.touched, Touched::Array(_)) => {
                all += 1;
                equal += usize::from(pair.equal);
            }
            Event::Watchpoints { counts, .. } => sampler = counts.sampler,
            _ => {}
        }
    }
    assert_eq!(sampler, Sampler::Pebs);
    (equal, all)
}
