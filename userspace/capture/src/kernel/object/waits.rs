//! The programs at the beginnings and ends of threads' sleeps.

use std::time::Duration;

use pyobs_abi::control;
use pyobs_abi::offcpu::{SLEEPERS, Sleeper};
use pyobs_model::Nanos;

use super::{Object, ObjectError};
use crate::machine::tick;

/// The program for the moment at which a thread is woken.
pub(super) const WAKING: &str = "offcpu_waking";
/// The one for the moment at which a CPU turns to another thread.
pub(super) const SWITCH: &str = "offcpu_switch";
/// The types of the tracepoints that these two hang on.
pub(super) const TYPES: [&str; 2] = ["btf_trace_sched_waking", "btf_trace_sched_switch"];
/// Of a thread's sleeps one stack is taken for so many nanoseconds: five hundred a second at the most, and each wait of a
/// switch interval (5 ms) for the GIL.
const SLEEP_PERIOD: u64 = 2_000_000;
/// A thread's sleeps are passed over for no longer than so many times as on the average.
const GAPS_MAX: u64 = 4;

impl Object {
    /// Starts to look at threads' sleeps.
    pub fn attach_waits(&mut self) -> Result<(), ObjectError> {
        let map = |error| ObjectError::Map { name: "CONTROL", error };
        self.control.set(control::SLEEP_PERIOD, SLEEP_PERIOD, 0).map_err(map)?;
        // Load both before attaching either: if the kernel refuses one, the other must not run alone.
        [WAKING, SWITCH].into_iter().try_for_each(|name| self.load(name))?;
        [WAKING, SWITCH].into_iter().try_for_each(|name| self.attach_typed(name))
    }

    /// Takes so many times fewer stacks of sleeps, and looks at one sleep of each thread for every so much time.
    pub fn shed_sleeps(&mut self, sleeps_rarer: u64, sleep_gap: Nanos) -> bool {
        self.control.set(control::SLEEP_PERIOD, SLEEP_PERIOD.saturating_mul(sleeps_rarer), 0).is_ok()
            && self.control.set(control::SLEEP_GAP, sleep_gap.0, 0).is_ok()
            && self.control.set(control::SLEEP_GAP_MAX, (sleep_gap.0 * GAPS_MAX).div_ceil(tick().0.max(1)), 0).is_ok()
    }

    /// What is known of a thread's sleep, or of that of another with the same element.
    pub fn sleeper(&self, tid: u32) -> Option<Sleeper> {
        self.sleeps.get(&(tid % SLEEPERS), 0).ok()
    }

    /// How long the programs that look at sleeps have run, and how often.
    pub fn sleeps_run_time(&self) -> (Duration, u64) {
        self.run_time_of([WAKING, SWITCH].into_iter())
    }
}
