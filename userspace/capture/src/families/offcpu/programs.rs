//! The programs at the beginnings and ends of threads' sleeps.

use std::time::Duration;

use aya::maps::{Array, MapData};
use pyobs_abi::control;
use pyobs_abi::offcpu::{SLEEPERS, Sleeper};
use pyobs_model::Family;

use crate::kernel::object::{Object, ObjectError};
use crate::kernel::program::ProgramSpec;
use crate::machine::tick;

const FAMILIES: &[Family] = &[Family::OffCpu, Family::Gil];
/// The first runs when a thread is woken, the second when a CPU turns to another thread.
pub const PROGRAMS: [ProgramSpec; 2] = [
    ProgramSpec::new("offcpu_waking", FAMILIES).typed("btf_trace_sched_waking"),
    ProgramSpec::new("offcpu_switch", FAMILIES).typed("btf_trace_sched_switch"),
];
/// Nanoseconds of a thread's sleep per stack: fifty stacks a second at most, and every sleep that is at least this long. Sleeps that are
/// alike keep to it until they have given 64 stacks.
const SLEEP_PERIOD: u64 = 20_000_000;
/// Stacks of sleeps per CPU and second. A stack takes some 30 µs in the kernel and in user space together, so that these are at
/// most 0.5 % of a CPU.
const SLEEP_STACKS: u64 = 60;
/// They are never fewer than this.
const SLEEP_STACKS_MIN: u64 = 32;

/// What the kernel side knows of the sleeps of threads.
pub struct Sleepers(Array<MapData, Sleeper>);

impl Sleepers {
    /// Of a thread, or of another with the same element.
    pub fn of(&self, tid: u32) -> Option<Sleeper> {
        self.0.get(&(tid % SLEEPERS), 0).ok()
    }
}

/// Starts to look at threads' sleeps; to be called once.
pub fn attach(object: &mut Object) -> Result<Sleepers, ObjectError> {
    object.set(control::TICK, tick().0)?;
    object.set(control::SLEEP_PERIOD, SLEEP_PERIOD)?;
    object.set(control::SLEEP_STACKS, SLEEP_STACKS)?;
    // Load both before attaching either: if the kernel refuses one, the other must not run alone.
    PROGRAMS.iter().try_for_each(|program| object.load(program.name))?;
    PROGRAMS.iter().try_for_each(|program| object.attach_typed(program.name))?;
    object.take("SLEEPS").map(Sleepers)
}

/// Takes stacks of sleeps this many times more seldom. Totals stay exact.
pub fn take_stacks_rarer(object: &mut Object, times: u64) -> bool {
    let times = times.max(1);
    object.set(control::SLEEP_PERIOD, SLEEP_PERIOD.saturating_mul(times)).is_ok()
        && object.set(control::SLEEP_STACKS, (SLEEP_STACKS / times).max(SLEEP_STACKS_MIN)).is_ok()
}

/// How long the programs have run.
pub fn run_time(object: &Object) -> Duration {
    object.run_time_of(&PROGRAMS.map(|program| program.name)).0
}
