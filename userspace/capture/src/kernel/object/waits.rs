//! The programs at the beginnings and ends of threads' sleeps.

use std::time::Duration;

use pyobs_abi::control;
use pyobs_abi::offcpu::{SLEEPERS, Sleeper};
use pyobs_model::Nanos;

use super::{Object, ObjectError, SAMPLER, SAMPLER_BOUNDED};
use crate::machine::tick;

/// The program for the moment at which a thread is woken.
const WAKING: &str = "offcpu_waking";
/// That for the moment at which a CPU turns to another thread, with the sampler of the same kind.
const SWITCH: [(&str, &str); 2] = [(SAMPLER, "offcpu_switch"), (SAMPLER_BOUNDED, "offcpu_switch_bounded")];
/// The types of the tracepoints that these two hang on.
pub(super) const TYPES: [&str; 2] = ["btf_trace_sched_waking", "btf_trace_sched_switch"];
/// Of a thread's sleeps one stack is taken for so many nanoseconds: five hundred a second at the most, and each wait of a
/// switch interval (5 ms) for the GIL.
const SLEEP_PERIOD: u64 = 2_000_000;
/// A thread's sleeps are passed over for no longer than so many times as on the average.
const GAPS_MAX: u64 = 4;

impl Object {
    /// Starts to look at threads' sleeps, if any of these families does.
    pub fn attach_waits(&mut self, probes: &[&str]) -> Result<(), ObjectError> {
        let bit = |family: &str, bit: u64| if probes.contains(&family) { bit } else { 0 };
        let waits = bit("offcpu", control::FAMILY_OFFCPU) | bit("gil", control::FAMILY_GIL);
        let families = waits | bit("shm", control::FAMILY_SHM) | bit("arena", control::FAMILY_ARENA);
        let map = |error| ObjectError::Map { name: "CONTROL", error };
        self.control.set(control::FAMILIES, families, 0).map_err(map)?;
        self.control.set(control::SLEEP_PERIOD, SLEEP_PERIOD, 0).map_err(map)?;
        if waits == 0 {
            return Ok(());
        }
        let switch = SWITCH.iter().find(|(sampler, _)| *sampler == self.sampler).map_or(SWITCH[0].1, |(_, name)| name);
        for ((name, of), number) in [WAKING, switch].into_iter().zip(TYPES).zip(self.waits) {
            self.attach_typed(name, of, number)?;
        }
        Ok(())
    }

    /// Keeps one CPU sample in so many, takes so many times fewer stacks of sleeps, and looks at one sleep of each thread for
    /// every so much time.
    pub fn shed(&mut self, keep_every: u64, sleeps_rarer: u64, sleep_gap: Nanos) -> bool {
        self.control.set(control::KEEP_EVERY, keep_every, 0).is_ok()
            && self.control.set(control::SLEEP_PERIOD, SLEEP_PERIOD.saturating_mul(sleeps_rarer), 0).is_ok()
            && self.control.set(control::SLEEP_GAP, sleep_gap.0, 0).is_ok()
            && self.control.set(control::SLEEP_GAP_MAX, (sleep_gap.0 * GAPS_MAX).div_ceil(tick().0.max(1)), 0).is_ok()
    }

    /// What is known of a thread's sleep, or of that of another with the same element.
    pub fn sleeper(&self, tid: u32) -> Option<Sleeper> {
        self.sleeps.get(&(tid % SLEEPERS), 0).ok()
    }

    /// How long the programs that look at sleeps have run, and how often.
    pub fn sleeps_run_time(&self) -> (Duration, u64) {
        self.run_time_of(SWITCH.iter().map(|(_, name)| *name).chain([WAKING]))
    }
}
