//! The facts about the machine and the capture that synthetic recordings have.

use pyobs_model::{Family, Meta, Refused};

pub fn meta() -> Meta {
    Meta {
        started: "2026-01-02T03:04:05Z".into(),
        host: "build-host".into(),
        kernel: "6.1.0".into(),
        pyobs: "0.1.0".into(),
        rate_hz: 99,
        cpus: 2,
        probes: Family::names(),
        sampler: "cpu-clock".into(),
        segment_repair: "iterators".into(),
        refused: vec![Refused { family: "ucx".into(), reason: "no probe can be put; run it as root".into() }],
    }
}
