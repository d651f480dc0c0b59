//! The programs that run when threads go to sleep and are woken.

use std::time::Duration;

use aya::maps::{Array, MapData};
use pyobs_abi::control;
use pyobs_abi::offcpu::{SLEEPERS, Sleeper};
use pyobs_model::Family;

use crate::kernel::btf::{Btf, BtfError};
use crate::kernel::object::{Object, ObjectError};
use crate::kernel::program::ProgramSpec;
use crate::machine::tick;

const FAMILIES: &[Family] = &[Family::OffCpu, Family::Gil];
/// The first runs when a thread is woken, the second when a CPU switches to another thread.
pub const PROGRAMS: [ProgramSpec; 2] = [
    ProgramSpec::new("offcpu_waking", FAMILIES).typed("btf_trace_sched_waking"),
    ProgramSpec::new("offcpu_switch", FAMILIES).typed("btf_trace_sched_switch"),
];
/// Nanoseconds of sleep per sampled stack, among similar sleeps of a thread: about fifty stacks a second for a thread
/// that always sleeps. Sleeps that are longer than this on average give a stack each. After 64 stacks, the period is
/// four times as long.
const SLEEP_PERIOD: u64 = 20_000_000;
/// Sampled stacks of sleeps per CPU and second. One costs about 30 µs in kernel and user space together, so
/// this is at most 0.5 % of a CPU.
const SLEEP_STACKS: u64 = 60;
/// Lower limit of the above when the budget is reduced.
const SLEEP_STACKS_MIN: u64 = 32;

/// The kernel's table of sleeping threads.
pub struct Sleepers(Array<MapData, Sleeper>);

impl Sleepers {
    /// The entry of the thread, or of another thread that shares the slot.
    pub fn of(&self, tid: u32) -> Option<Sleeper> {
        self.0.get(&(tid % SLEEPERS), 0).ok()
    }
}

/// The offsets of the fields that say whether a task is throttled. A kernel has one or the other, or neither if it was
/// built without CPU limits.
pub fn throttled_offsets(btf: &Btf) -> Result<Vec<(&'static str, u32)>, BtfError> {
    let mut offsets = Vec::new();
    if let Ok(throttled) = btf.offset("task_struct", "throttled") {
        offsets.push(("TASK_THROTTLED", throttled));
    }
    if let (Ok(entity), Ok(queue), Ok(count)) =
        (btf.offset("task_struct", "se"), btf.offset("sched_entity", "cfs_rq"), btf.offset("cfs_rq", "throttle_count"))
    {
        offsets.extend([("TASK_CFS_RQ", entity + queue), ("CFS_RQ_THROTTLE_COUNT", count)]);
    }
    Ok(offsets)
}

/// Starts watching sleeps. Call once.
pub fn attach(object: &mut Object) -> Result<Sleepers, ObjectError> {
    object.set(control::TICK, tick().0)?;
    object.set(control::SLEEP_PERIOD, SLEEP_PERIOD)?;
    object.set(control::SLEEP_STACKS, SLEEP_STACKS)?;
    // Load both before attaching either: if the kernel refuses one, the other must not run alone.
    PROGRAMS.iter().try_for_each(|program| object.load(program.name))?;
    PROGRAMS.iter().try_for_each(|program| object.attach_typed(program.name))?;
    object.take("SLEEPS").map(Sleepers)
}

/// Samples stacks of sleeps this many times less often. Totals stay exact.
pub fn reduce_stack_rate(object: &mut Object, times: u64) -> bool {
    let times = times.max(1);
    object.set(control::SLEEP_PERIOD, SLEEP_PERIOD.saturating_mul(times)).is_ok()
        && object.set(control::SLEEP_STACKS, (SLEEP_STACKS / times).max(SLEEP_STACKS_MIN)).is_ok()
}

/// Total run time of the programs.
pub fn run_time(object: &Object) -> Duration {
    object.run_time_of(&PROGRAMS.map(|program| program.name)).0
}
