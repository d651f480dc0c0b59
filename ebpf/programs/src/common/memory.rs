//! Reading memory that is not ours. A read of unmapped memory fails, it never faults: `bpf_probe_read_user` turns page
//! faults off around the copy.

use core::intrinsics;

use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_probe_read_user};

/// Bytes of a page: if one of them can be read, all can.
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

/// Adds to what other CPUs may add to at the same time.
///
/// # Safety
/// `to` must point into a map's value.
#[inline(always)]
pub unsafe fn atomic_add(to: *mut u64, value: u64) {
    // SAFETY: the caller's promise; aligned, as all words of the shared types are. The result is not used, so that it
    // is an instruction that every kernel has.
    let _ = unsafe { intrinsics::atomic_xadd::<u64, u64, { intrinsics::AtomicOrdering::Relaxed }>(to, value) };
}
