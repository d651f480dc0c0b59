//! Maps and constants that user space fills, and the lookups that all families make in them.

use aya_ebpf::{
    Global,
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns, generated::bpf_get_prandom_u32},
    macros::map,
    maps::{Array, HashMap, PerCpuArray, RingBuf},
};
use pyobs_abi::{
    control,
    process::{Layout, Process},
    record::Loss,
};

/// `BPF_F_MMAPABLE`: makes the elements of an array begin at a page, and so at cache lines.
/// <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/bpf.h>
pub const AT_A_PAGE: u32 = 1 << 10;

/// The records of all families but `redundancy`. User space sets the size.
#[map]
pub static RECORDS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// Losses by reason.
#[map]
static LOSSES: PerCpuArray<u64> = PerCpuArray::with_max_entries(Loss::COUNT as u32, 0);

/// The watched processes, by tgid. Samplers only look up: a sampler that takes a bucket's lock in an NMI, or with the
/// lock of the run queue held, can hang the machine. Updates come from user space and from fork, exec and exit.
#[map]
pub static PROCESSES: HashMap<u32, Process> = HashMap::with_max_entries(16384, 0);

/// The settings that user space changes while the programs run, by `pyobs_abi::control`.
#[map]
static CONTROL: Array<u64> = Array::with_max_entries(control::COUNT, 0);

#[map]
pub static LAYOUTS: Array<Layout> = Array::with_max_entries(256, 0);

/// Offsets in the running kernel's structures, from its BTF. `typed.rs` has more.
#[unsafe(no_mangle)]
pub static TASK_FSBASE: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_SIGNAL: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static SIGNAL_LIVE: Global<u32> = Global::new(0);
/// The range of the kernel's code for the entry of interrupts; 0 if unknown.
#[unsafe(no_mangle)]
pub static INTERRUPT_START: Global<u64> = Global::new(0);
#[unsafe(no_mangle)]
pub static INTERRUPT_END: Global<u64> = Global::new(0);

/// Helpers that the running kernel has. The verifier sees these values as constants, and skips code that calls a
/// missing helper.
#[unsafe(no_mangle)]
pub static HAS_LOOP: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static HAS_FIND_VMA: Global<u32> = Global::new(0);

#[inline(always)]
pub fn count_loss(loss: Loss) {
    if let Some(counter) = LOSSES.get_ptr_mut(loss as u32) {
        // SAFETY: the pointer is into this CPU's slot, which only this CPU writes.
        unsafe { *counter += 1 };
    }
}

/// The error of `bpf_map_update_elem` for a full table.
const E2BIG: i32 = 7;
const TRIES: u32 = 3;

/// Puts a value into a table. If that fails, counts `full` if the table has no room, else that it is busy.
///
/// Newer kernels stop waiting for a table's lock after a quarter of a second
/// (<https://github.com/torvalds/linux/blob/v6.15/include/asm-generic/rqspinlock.h>), because the CPU that holds it can
/// be a virtual one that does not run. A lock of a bucket shows as an error of its own. The lock of the free elements
/// shows as "no room" in a table that has room, so the next try can succeed.
#[inline(always)]
pub fn put<K, V>(map: &HashMap<K, V>, key: &K, value: &V, full: Loss) -> bool {
    let mut error = 0;
    for _ in 0..TRIES {
        match map.insert(key, value, 0) {
            Ok(()) => return true,
            Err(why) => error = why,
        }
    }
    count_loss(if error == -E2BIG { full } else { Loss::TableBusy });
    false
}

/// Returns the kernel's tgid of the current thread.
#[inline(always)]
pub fn pid() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

/// Returns the process with this tgid, if it is watched.
#[inline(always)]
pub fn process(pid: u32) -> Option<&'static Process> {
    // SAFETY: other CPUs may update the value while it is read. A torn value is an address that fails its checks.
    unsafe { PROCESSES.get(pid) }
}

/// Returns the current process, if it is watched.
#[inline(always)]
pub fn watched() -> Option<&'static Process> {
    process(pid())
}

#[inline(always)]
pub fn control(index: u32) -> u64 {
    CONTROL.get(index).copied().unwrap_or(0)
}

/// Whether any of these families is on.
#[inline(always)]
pub fn is_on(families: u64) -> bool {
    control(control::FAMILIES) & families != 0
}

/// Returns the CPU time in nanoseconds that the present tick of this CPU stands for, or `None` if the budget drops the
/// tick.
///
/// A tick stands for half a period before it and half a period after it. The first tick after a (re)start also stands
/// for the time between the restart and that half, and for the time that the restart cut off, which user space
/// computes.
///
/// Ticks are dropped at random, because a fixed stride would beat with programs that work periodically. Those that are
/// kept stand for the dropped ones (Horvitz and Thompson's estimator).
#[inline(always)]
pub fn tick_weight() -> Option<u64> {
    let period = control(control::PERIOD);
    // SAFETY: the helpers have no preconditions.
    let (now, random) = unsafe { (bpf_ktime_get_ns(), bpf_get_prandom_u32()) };
    let is_first = now.wrapping_sub(control(control::TICKS_SINCE)) < period + period / 4;
    let weight = if is_first { control(control::FIRST_TICK) } else { period };
    match control(control::KEEP) {
        0 => Some(weight),
        keep if u64::from(random) < keep => Some((weight << 32) / keep),
        _ => {
            count_loss(Loss::Shed);
            None
        }
    }
}
