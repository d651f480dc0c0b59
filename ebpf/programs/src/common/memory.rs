//! Reading memory that is not ours. A read of unmapped memory fails, it never faults: `bpf_probe_read_user` turns page
//! faults off around the copy.

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
