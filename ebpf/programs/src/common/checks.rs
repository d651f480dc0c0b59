//! The check words of code objects: what tells one from another that took its place at the same address.

use core::ffi::c_void;

use aya_ebpf::{helpers::generated::bpf_probe_read_user, macros::map, maps::PerCpuArray};
use pyobs_abi::{
    process::{CHECK_MAX, Check, Layout},
    record::Header,
};

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

const PART_WORDS: usize = CHECK_MAX / 8;

#[repr(C)]
struct Checks {
    slots: [Slot; SLOTS],
    /// The part of a code object that is looked at.
    part: [u64; PART_WORDS],
}

#[map]
static CHECKS: PerCpuArray<Checks> = PerCpuArray::with_max_entries(1, 0);

/// The check word of the code object at `code`; 0 when it cannot be read.
#[inline(always)]
pub fn code_check(sample: &Header, layout: &Layout, code: u64) -> u32 {
    let index = ((code >> 4) ^ (code >> 14)) as usize & (SLOTS - 1);
    let Some(checks) = CHECKS.get_ptr_mut(0) else { return 0 };
    // SAFETY: the pointer is into this CPU's value, which only this CPU's sampler uses.
    let checks = unsafe { &mut *checks };
    let slot = checks.slots[index];
    if slot.code == code && slot.pid == sample.pid && sample.time.wrapping_sub(slot.read) < AGE_MAX {
        return slot.check;
    }
    let check = checks.read(layout, code).map_or(0, Check::fold);
    checks.slots[index] = Slot { code, read: sample.time, pid: sample.pid, check };
    check
}

impl Checks {
    #[inline(always)]
    fn read(&mut self, layout: &Layout, code: u64) -> Option<Check> {
        let start = code.wrapping_add(layout.check_start.into()) as *const c_void;
        let size = layout.check_size.min(CHECK_MAX as u32);
        // SAFETY: the part holds CHECK_MAX bytes; the helper checks the source.
        if unsafe { bpf_probe_read_user(self.part.as_mut_ptr().cast(), size, start) } != 0 {
            return None;
        }
        let (line, name, table) =
            (self.word(layout.check_line), self.word(layout.check_name), self.word(layout.check_table));
        let hash = user(name.wrapping_add(layout.name_hash.into()))?;
        Some(Check { line, name, table, hash })
    }

    #[inline(always)]
    fn word(&self, offset: u32) -> u64 {
        self.part[(offset as usize >> 3) & (PART_WORDS - 1)]
    }
}
