//! The family `arena`: CPython's own arenas, at the system calls that map and unmap them.
//!
//! [`crate::mappings`] and [`crate::calls`] have the programs; this module recognises the calls. A probe on the
//! allocator's code would cost less, but pyobs would have to keep CAP_SYS_ADMIN for interpreters that start later
//! (`perf_uprobe_event_init` in <https://github.com/torvalds/linux/blob/v6.1/kernel/events/core.c>). A family that is
//! on by default must not require that.

mod library;

use pyobs_abi::{
    arena::{Freed, SIZES},
    record,
};

use crate::common::{
    maps::watched,
    ring::{self, Route},
    system_call::Call,
};

/// PROT_READ | PROT_WRITE and MAP_PRIVATE | MAP_ANONYMOUS, as in `_PyObject_ArenaMmap`:
/// <https://github.com/python/cpython/blob/v3.12.0/Objects/obmalloc.c>
const PROTECTION: u64 = 3;
const FLAGS: u64 = 0x22;

/// Whether an mmap(2) is likely to be CPython's. Almost no other code maps exactly these sizes: glibc's malloc adds 16
/// bytes and rounds up to pages.
#[inline(always)]
pub fn is_arena(call: &Call) -> bool {
    let is_its_size = SIZES.contains(&call.second());
    is_its_size && call.first() == 0 && call.third() == PROTECTION && call.fourth() == FLAGS
}

/// Reports a munmap(2) of a range with the size of an arena.
#[inline(never)]
pub fn report_unmapped(call: &Call) {
    let (address, bytes) = (call.first(), call.second());
    if !SIZES.contains(&bytes) || watched().is_none() {
        return;
    }
    let freed = Freed { header: ring::header(record::ARENA_FREED), address, bytes };
    ring::send(&freed, Route::lazy());
}
