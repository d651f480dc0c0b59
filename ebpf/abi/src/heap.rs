//! The family `heap`: which code makes a process grow.

use crate::record::Header;
use crate::shared;

/// How far the growth of a process is accounted for. Pages have 4 KiB.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// The anonymous pages that the process had at its last sample, or the fewest since then.
    pub accounted: i64,
    /// When that sample was taken, in nanoseconds of `CLOCK_MONOTONIC`.
    pub sampled: u64,
}

shared!(Growth, 16);

/// The process is new, and its next fault will say how much it has.
pub const UNKNOWN: i64 = -1;

impl Growth {
    pub const NEW: Self = Self { accounted: UNKNOWN, sampled: 0 };
}

/// The sampled pages of all processes.
pub const PAGES_MAX: u32 = 131_072;

/// The key of a sampled page in the kernel side's table. Addresses of user space have 47 bits, or 56 where they are
/// asked for; bits above the 48th are dropped.
#[inline(always)]
pub const fn page_key(pid: u32, address: u64) -> u64 {
    (pid as u64) << 36 | (address >> 12) & ((1 << 36) - 1)
}

/// Which pages of some processes may be sampled: a Bloom filter with one hash function. It fits into a CPU's first cache,
/// while a lookup in the table of all sampled pages misses most caches.
pub type Filter = [u64; 128];

/// Filters of all processes. Processes whose pids differ by a multiple of this share one.
pub const FILTERS: u32 = 4096;

/// The word of a page in its process's filter, and its bit in that word.
#[inline(always)]
pub const fn filter_bit(address: u64) -> (usize, u64) {
    let hash = (address >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51;
    ((hash >> 6) as usize, 1 << (hash & 63))
}

/// Ranges that are smaller are neither reported as blocks nor as freed.
pub const BLOCK_MIN: u64 = 512 << 10;

/// `HEAP_FREED`: a range of the header's process has no memory any more, or its memory has moved.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    pub header: Header,
    pub address: u64,
    pub bytes: u64,
    /// Where the memory is now; 0 if it was freed.
    pub to: u64,
}

shared!(Freed, 64);
