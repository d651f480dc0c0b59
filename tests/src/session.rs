//! Options for sessions of `pyobs-capture` itself, for what the `pyobs` command has no options for.

use pyobs_capture::session::{Options, Targets, Walk};
use pyobs_model::Family;

/// A session for one process, without a budget that binds.
pub fn options(pid: u32, probes: &[Family], rate_hz: u32) -> Options {
    Options {
        targets: Targets::Pids(vec![pid]),
        rate_hz,
        probes: probes.to_vec(),
        named: probes.to_vec(),
        budget: 100.0,
        budget_binds_rate: false,
        budget_binds_sleeps: false,
        functions: Vec::new(),
        libraries: Vec::new(),
        budget_binds_calls: false,
        walk: Walk::Best,
        iterators: true,
    }
}
