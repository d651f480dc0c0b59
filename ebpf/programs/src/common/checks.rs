//! The check words of code objects: what tells one from another that took its place at the same address.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use pyobs_abi::{process::fold, record::Header};

use super::memory::user;

/// How old a check word may be, in nanoseconds. The frames at the root of a stack are the same in sample after sample;
/// at the default rate every word is read anew, at 1 kHz every fifth time.
const AGE_MAX: u64 = 5_000_000;
/// Words that a CPU remembers.
const SLOTS: usize = 1024;

#[repr(C)]
#[derive(Clone, Copy)]
struct Slot {
    code: u64,
    read: u64,
    pid: u32,
    check: u32,
}

#[map]
static CHECKS: PerCpuArray<[Slot; SLOTS]> = PerCpuArray::with_max_entries(1, 0);

/// The check word of the code object at `code`, folded from the eight bytes at `word`; 0 when they cannot be read.
#[inline(always)]
pub fn code_check(sample: &Header, code: u64, word: u64) -> u32 {
    let index = ((code >> 4) ^ (code >> 14)) as usize & (SLOTS - 1);
    let Some(slots) = CHECKS.get_ptr_mut(0) else { return 0 };
    // SAFETY: the pointer is into this CPU's slots, which only this CPU's sampler uses, and the index is masked.
    let slot = unsafe { &mut (*slots)[index] };
    if slot.code == code && slot.pid == sample.pid && sample.time.wrapping_sub(slot.read) < AGE_MAX {
        return slot.check;
    }
    let check = user::<u64>(word).map_or(0, fold);
    *slot = Slot { code, read: sample.time, pid: sample.pid, check };
    check
}
