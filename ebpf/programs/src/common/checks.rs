//! The check words of code objects: what tells one from another that took its place at the same address.

use core::ffi::c_void;

use aya_ebpf::{helpers::generated::bpf_probe_read_user, macros::map, maps::PerCpuArray};
use pyobs_abi::{
    process::{CHECK_MAX, Check as Words, Layout},
    record::Header,
};

use super::{memory::user, walk::SLOTS};

/// How old a check word may be, in nanoseconds. The frames at the root of a stack are the same in sample after sample;
/// at the default rate every word is read anew, at 1 kHz every fifth time.
const AGE_MAX: u64 = 5_000_000;
/// Words that a CPU remembers.
const ENTRIES: usize = 1024;

/// What a code object's memory says.
pub enum Check {
    Is(u32),
    Unreadable,
    /// It is of another type.
    NoCode,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    code: u64,
    read: u64,
    pid: u32,
    /// 0: it is no code object.
    check: u32,
}

const PART_WORDS: usize = CHECK_MAX / 8;

#[repr(C)]
struct Checks {
    entries: [Entry; ENTRIES],
    /// The part of a code object that is looked at.
    part: [u64; PART_WORDS],
}

/// For each CPU as many as it has contexts that walk.
#[map]
static CHECKS: PerCpuArray<Checks> = PerCpuArray::with_max_entries(SLOTS, 0);

/// The check word of the code object at `code`, for a walk in this slot.
#[inline(always)]
pub fn code_check(slot: u32, sample: &Header, layout: &Layout, code_type: u64, code: u64) -> Check {
    let index = ((code >> 4) ^ (code >> 14)) as usize & (ENTRIES - 1);
    let Some(checks) = CHECKS.get_ptr_mut(slot) else { return Check::Unreadable };
    // SAFETY: the pointer is into this CPU's value, which only the walk in this slot uses.
    let checks = unsafe { &mut *checks };
    let entry = checks.entries[index];
    if entry.code == code && entry.pid == sample.pid && sample.time.wrapping_sub(entry.read) < AGE_MAX {
        return if entry.check == 0 { Check::NoCode } else { Check::Is(entry.check) };
    }
    let is_read = checks.read(layout, code);
    let check = if code_type != 0 && (!is_read || checks.word(layout.check_type) != code_type) {
        0
    } else {
        match checks.words(layout) {
            Some(words) if is_read => words.fold(),
            _ => return Check::Unreadable,
        }
    };
    checks.entries[index] = Entry { code, read: sample.time, pid: sample.pid, check };
    if check == 0 { Check::NoCode } else { Check::Is(check) }
}

impl Checks {
    #[inline(always)]
    fn read(&mut self, layout: &Layout, code: u64) -> bool {
        let start = code.wrapping_add(layout.check_start.into()) as *const c_void;
        let size = layout.check_size.min(CHECK_MAX as u32);
        // SAFETY: the part holds CHECK_MAX bytes; the helper checks the source.
        unsafe { bpf_probe_read_user(self.part.as_mut_ptr().cast(), size, start) == 0 }
    }

    #[inline(always)]
    fn words(&self, layout: &Layout) -> Option<Words> {
        let (line, name, table) =
            (self.word(layout.check_line), self.word(layout.check_name), self.word(layout.check_table));
        let hash = user(name.wrapping_add(layout.name_hash.into()))?;
        Some(Words { line, name, table, hash })
    }

    #[inline(always)]
    fn word(&self, offset: u32) -> u64 {
        self.part[(offset as usize >> 3) & (PART_WORDS - 1)]
    }
}
