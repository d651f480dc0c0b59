//! Reads of other programs' memory and of the kernel's. A read of unmapped memory fails and never faults, because
//! `bpf_probe_read_user` disables page faults around the copy.

use core::intrinsics;

use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_probe_read_user};

/// The size of a page: if one of its bytes can be read, all can.
pub const PAGE: u64 = 4096;

/// Reads from the current process.
#[inline(always)]
pub fn user<T>(address: u64) -> Option<T> {
    // SAFETY: the helper takes any address and fails on one that cannot be read.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}

#[inline(always)]
pub fn kernel<T>(address: u64) -> Option<T> {
    // SAFETY: the helper takes any address and fails on one that cannot be read.
    unsafe { bpf_probe_read_kernel(address as *const T) }.ok()
}

/// Adds to a value that other CPUs may add to at the same time.
#[inline(always)]
pub unsafe fn atomic_add(to: *mut u64, value: u64) {
    // SAFETY: the caller's promise; all words of the shared types are aligned. The result is unused, so this compiles
    // to an instruction that every kernel has.
    let _ = unsafe { intrinsics::atomic_xadd::<u64, u64, { intrinsics::AtomicOrdering::Relaxed }>(to, value) };
}
