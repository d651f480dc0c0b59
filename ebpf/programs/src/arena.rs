//! The family `arena`: CPython's own arenas, at the system calls that make and end them.
//!
//! [`crate::calls`] has the programs that see them; what is asked here is only which calls they are. A probe on the
//! allocator's code would cost less, and takes CAP_SYS_ADMIN for as long as new interpreters may come (kernel/events/core.c,
//! perf_uprobe_event_init), which a family that is on by default must not.

mod library;

use pyobs_abi::{
    arena::{Freed, SIZES},
    record,
};

use crate::common::{maps::watched, ring, system_call::Call};

/// PROT_READ | PROT_WRITE and MAP_PRIVATE | MAP_ANONYMOUS, as `_PyObject_ArenaMmap` has them (Objects/obmalloc.c).
const PROTECTION: u64 = 3;
const FLAGS: u64 = 0x22;

/// Whether an mmap(2) is one by which CPython gets an arena. Nearly nothing else asks for exactly these sizes: glibc's
/// malloc adds 16 bytes and rounds up to pages.
#[inline(always)]
pub fn is_one(call: &Call) -> bool {
    let is_its_size = SIZES.contains(&call.second());
    is_its_size && call.first() == 0 && call.third() == PROTECTION && call.fourth() == FLAGS
}

/// Tells of a munmap(2) that is about to give back as much.
#[inline(never)]
pub fn unmapped(call: &Call) {
    let (address, bytes) = (call.first(), call.second());
    if !SIZES.contains(&bytes) || watched().is_none() {
        return;
    }
    let freed = Freed { header: ring::header(record::ARENA_FREED), address, bytes };
    // SAFETY: plain integers without padding (pyobs-abi asserts it).
    ring::send(unsafe { core::slice::from_raw_parts((&raw const freed).cast(), size_of::<Freed>()) });
}
