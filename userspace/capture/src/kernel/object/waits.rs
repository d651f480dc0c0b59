//! The programs at the beginnings and ends of threads' sleeps.

use std::time::Duration;

use pyobs_abi::control;
use pyobs_abi::offcpu::{SLEEPERS, Sleeper};

use super::{Object, ObjectError};
use crate::machine::tick;

/// The program for the moment at which a thread is woken.
pub(super) const WAKING: &str = "offcpu_waking";
/// The one for the moment at which a CPU turns to another thread.
pub(super) const SWITCH: &str = "offcpu_switch";
/// The types of the tracepoints that these two hang on.
pub(super) const TYPES: [&str; 2] = ["btf_trace_sched_waking", "btf_trace_sched_switch"];
/// Nanoseconds of a thread's sleep per stack: fifty stacks a second at most, and every sleep that is at least this long. Sleeps that are
/// alike keep to it until they have given 64 stacks.
const SLEEP_PERIOD: u64 = 20_000_000;
/// Stacks of sleeps per CPU and second. A stack takes some 30 µs in the kernel and in user space together, so that these are at
/// most 0.5 % of a CPU.
const SLEEP_STACKS: u64 = 60;
/// They are never fewer than this.
const SLEEP_STACKS_MIN: u64 = 32;

impl Object {
    /// Starts to look at threads' sleeps.
    pub fn attach_waits(&mut self) -> Result<(), ObjectError> {
        let map = |error| ObjectError::Map { name: "CONTROL", error };
        self.control.set(control::TICK, tick().0, 0).map_err(map)?;
        self.control.set(control::SLEEP_PERIOD, SLEEP_PERIOD, 0).map_err(map)?;
        self.control.set(control::SLEEP_STACKS, SLEEP_STACKS, 0).map_err(map)?;
        // Load both before attaching either: if the kernel refuses one, the other must not run alone.
        [WAKING, SWITCH].into_iter().try_for_each(|name| self.load(name))?;
        [WAKING, SWITCH].into_iter().try_for_each(|name| self.attach_typed(name))
    }

    /// Takes stacks of sleeps this many times more seldom. Totals stay exact.
    pub fn sleep_stacks_rarer(&mut self, times: u64) -> bool {
        let times = times.max(1);
        self.control.set(control::SLEEP_PERIOD, SLEEP_PERIOD.saturating_mul(times), 0).is_ok()
            && self.control.set(control::SLEEP_STACKS, (SLEEP_STACKS / times).max(SLEEP_STACKS_MIN), 0).is_ok()
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
