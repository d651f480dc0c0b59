//! The family `shm`: memory that processes share.

use crate::record::Header;
use crate::shared;

/// Bounds names and paths in bytes, with a closing NUL. Longer ones are truncated.
pub const NAME_MAX: usize = 256;

/// The key of `SHM_SEGMENTS`: an inode. The kernel reuses inode numbers, so the value has the generation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Inode {
    pub ino: u64,
    /// The kernel's `dev_t`: 12 bits major, 20 minor.
    pub dev: u32,
    pub padding: u32,
}

shared!(Inode, 16);

/// [`Inode::dev`] in `SHM_BIRTH` if the kernel side could not find out the inode. `ino` is then the address of the
/// mapping.
pub const MAPPED_AT: u32 = u32::MAX;

/// The value of `SHM_SEGMENTS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub generation: u32,
    /// For a segment that user space found: bits of [`found`].
    pub found: u32,
}

shared!(Known, 8);

/// What is unknown of a segment that user space found.
pub mod found {
    /// Its generation.
    pub const NO_GENERATION: u32 = 1;
    /// Where it was made: after the recording began, and before programs ran at system calls. So the stack is taken when
    /// it is first mapped through the file that made it.
    pub const NO_BIRTH: u32 = 2;
}

/// Addresses from `start` up to, but not including, `end`. An unused range has an `end` of 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    pub end: u64,
}

shared!(Range, 16);

/// The value of `SHM_HOLDERS`, which the kernel side writes, and of `SHM_FOUND`, which user space writes, both keyed by
/// tgid: ranges that cover all mappings of segments, and possibly other memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub ranges: [Range; 4],
    /// In `SHM_HOLDERS`, 1 once the kernel side has seen the process get a segment. User space adds an entry before it
    /// scans a process, and removes the entry if the process holds nothing, unless this is set.
    pub has_gained: u64,
}

shared!(Bounds, 72);

const NONE: Range = Range { start: 0, end: 0 };

impl Range {
    const fn length(self) -> u64 {
        self.end.wrapping_sub(self.start)
    }

    /// Returns the smallest range that covers both. An unused range covers nothing.
    fn with(self, other: Self) -> Self {
        if self.end == 0 {
            return other;
        }
        let start = if other.start < self.start { other.start } else { self.start };
        Self { start, end: if other.end > self.end { other.end } else { self.end } }
    }
}

impl Bounds {
    pub const EVERYTHING: Self = Self { ranges: [Range { start: 0, end: u64::MAX }, NONE, NONE, NONE], has_gained: 0 };

    #[inline(always)]
    pub fn overlap(&self, start: u64, end: u64) -> bool {
        self.ranges.iter().any(|range| start < range.end && end > range.start)
    }

    /// Adds a range by extending the one that grows the least.
    #[inline(always)]
    pub fn add(&mut self, start: u64, end: u64) {
        let added = Range { start, end };
        let (mut least, mut best) = (u64::MAX, 0);
        for (number, range) in self.ranges.iter().enumerate() {
            let growth = range.with(added).length().wrapping_sub(range.length());
            if growth < least {
                (least, best) = (growth, number);
            }
        }
        // The remainder proves to the verifier that the index is in bounds.
        let best = &mut self.ranges[best % self.ranges.len()];
        *best = best.with(added);
    }

    /// Drops the ranges that lie entirely within this one. A range that only overlaps it is kept whole.
    #[inline(always)]
    pub fn remove(&mut self, start: u64, end: u64) {
        for range in &mut self.ranges {
            if start <= range.start && end >= range.end {
                *range = NONE;
            }
        }
    }
}

/// What every record of a segment has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub inode: Inode,
    pub size: u64,
    pub generation: u32,
    pub links: u32,
}

shared!(Facts, 32);

/// `SHM_SEGMENT`: the header's thread has a segment that was not known before.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub header: Header,
    pub facts: Facts,
    /// The file system's magic number: <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/magic.h>
    pub magic: u32,
    /// Bits of [`flags`].
    pub flags: u32,
    /// The last component of the path, ended by a NUL.
    pub name: [u8; NAME_MAX],
}

shared!(Segment, 336);

pub mod flags {
    /// The header's thread made it, and a `SHM_BIRTH` follows.
    pub const CREATED: u32 = 1;
    /// It was opened under a path in the folder of shared memory.
    pub const IN_FOLDER: u32 = 1 << 1;
}

/// `SHM_CHANGE`: what the header's thread did to a segment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub header: Header,
    pub facts: Facts,
    /// One of [`what`].
    pub what: u32,
    pub fd: u32,
    /// 1 if an exec closes the descriptor.
    pub close_on_exec: u32,
    pub padding: u32,
    /// A range of addresses, or of descriptors.
    pub start: u64,
    pub end: u64,
    /// Where a mapping moved to; for a new mapping, the offset in the segment.
    pub to_start: u64,
    pub to_end: u64,
}

shared!(Change, 120);

/// What happened. The facts are set for a descriptor and for a new mapping.
pub mod what {
    /// `fd` is a new descriptor of the segment: by open, memfd_create, dup or fcntl.
    pub const OPENED: u32 = 1;
    /// `fd` is about to be closed.
    pub const CLOSED: u32 = 2;
    /// Descriptors from `start` to `end`, both included, were closed.
    pub const CLOSED_RANGE: u32 = 3;
    /// An exec now closes `fd`, or no longer does.
    pub const MARKED: u32 = 4;
    pub const RESIZED: u32 = 5;
    /// The segment is mapped from `start` to `end`.
    pub const MAPPED: u32 = 6;
    /// The range from `start` to `end` is about to be unmapped.
    pub const UNMAPPED: u32 = 7;
    pub const MOVED: u32 = 8;
    /// `fd` is being sent to another process.
    pub const SENT: u32 = 9;
    /// `fd` was received from another process.
    pub const RECEIVED: u32 = 10;
    /// `fd` was taken from another process, through the pidfd in `start`.
    pub const TAKEN: u32 = 11;
    /// The segment's memory was freed.
    pub const RELEASED: u32 = 12;
    /// Anonymous shared memory is mapped from `start` to `end`, and the kernel side could not find out the inode behind
    /// it.
    pub const MADE: u32 = 13;
}

/// What the iterators write for each mapping and descriptor that they find.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub facts: Facts,
    /// The process.
    pub pid: u32,
    /// Bits of [`row`].
    pub flags: u32,
    /// The range of a mapping.
    pub start: u64,
    pub end: u64,
    /// The offset of the mapping in the segment.
    pub offset: u64,
    pub fd: u32,
    pub padding: u32,
}

shared!(Row, 72);

pub mod row {
    /// The row is a descriptor, else a mapping.
    pub const DESCRIPTOR: u32 = 1;
    pub const CLOSE_ON_EXEC: u32 = 1 << 1;
    /// It belongs to no known segment, and a watched process has it.
    pub const UNKNOWN: u32 = 1 << 2;
}

/// `SHM_UNLINK`: a name was removed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlink {
    pub header: Header,
    /// The path as the process gave it, ended by a NUL.
    pub path: [u8; NAME_MAX],
}

shared!(Unlink, 296);

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(ranges: &[(u64, u64)]) -> Bounds {
        let mut bounds = Bounds::default();
        ranges.iter().for_each(|(start, end)| bounds.add(*start, *end));
        bounds
    }

    #[test]
    fn distant_ranges_stay_apart() {
        let bounds = bounds(&[(10, 20), (1000, 1010), (500, 510), (9000, 9010)]);
        assert!(
            bounds.overlap(19, 30) && bounds.overlap(0, 11) && bounds.overlap(505, 506) && bounds.overlap(0, u64::MAX)
        );
        assert!(
            !bounds.overlap(20, 500)
                && !bounds.overlap(510, 1000)
                && !bounds.overlap(0, 10)
                && !bounds.overlap(9010, 9999)
        );
    }

    #[test]
    fn a_fifth_range_joins_its_neighbour() {
        let bounds = bounds(&[(10, 20), (1000, 1010), (500, 510), (9000, 9010), (1020, 1030)]);
        assert!(bounds.overlap(1012, 1013) && bounds.overlap(1029, 1030));
        assert!(!bounds.overlap(20, 500) && !bounds.overlap(510, 1000) && !bounds.overlap(1030, 9000));
    }

    #[test]
    fn adjacent_ranges_take_one_place() {
        let bounds = bounds(&[(10, 20), (20, 30), (30, 40), (5, 10)]);
        assert_eq!(bounds.ranges[0], Range { start: 5, end: 40 });
        assert_eq!(bounds.ranges[1..], [Range::default(); 3]);
    }

    #[test]
    fn a_partial_overlap_is_kept() {
        let mut bounds = bounds(&[(10, 20), (100, 110)]);
        bounds.remove(15, 120);
        assert!(bounds.overlap(10, 15) && !bounds.overlap(100, 110));
        bounds.remove(10, 20);
        assert_eq!(bounds, Bounds::default());
        assert!(!bounds.overlap(0, u64::MAX));
    }

    #[test]
    fn everything_contains_everything() {
        let mut bounds = Bounds::EVERYTHING;
        bounds.add(10, 20);
        bounds.remove(10, 20);
        assert!(bounds.overlap(4096, 8192));
        assert_eq!(bounds, Bounds::EVERYTHING);
    }
}
