//! The heaps of mimalloc, which replace arenas in free-threaded builds and, from 3.13 on, with
//! `PYTHONMALLOC=mimalloc`.
//!
//! mimalloc reserves a GiB of addresses at a time, in a free range below 32 TiB (`_mi_os_get_aligned_hint`),
//! and divides it into segments of 32 MiB without a system call. A segment begins with `struct mi_segment_s`.
//! It has an entry (`struct mi_page_s`, mimalloc's page) for each run of 64 KiB slices, with the block size
//! and the number of blocks in use. The layout
//! (<https://github.com/python/cpython/blob/v3.13.0/Include/internal/mimalloc/mimalloc/types.h>) is the same in
//! CPython 3.13 to 3.15, except in debug builds, which are refused. So the segment alone shows its state,
//! even in stripped interpreters.
//!
//! The program keeps running during the read: an inconsistent entry is discarded.

use std::ops::ControlFlow;

use procfs::process::{MemoryPageFlags, PageInfo, Process};
use pyobs_model::Filled;

use crate::memory::{Memory, ProcessMemory};
use crate::process_maps::lines;

/// `MI_SEGMENT_SIZE`, also the alignment of segments.
const SEGMENT: u64 = 32 << 20;
/// `MI_SEGMENT_SLICE_SIZE`.
const SLICE: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// From `MI_HINT_BASE` to the end of the last GiB that may begin at `MI_HINT_MAX`.
const AREA: std::ops::Range<u64> = (2 << 40)..((30 << 40) + (1 << 30));
/// `MI_SLICES_PER_SEGMENT`; a segment for one huge block has no more entries either.
const ENTRIES_MAX: u64 = 512;
/// From this size on (`MI_HUGE_BLOCK_SIZE`), a block is as large as its slices.
const HUGE: u64 = 2 << 30;
/// Addresses checked per process (128 GiB); the rest is not searched.
const PLACES_MAX: usize = 4096;
/// Entries that may be inconsistent because they change during the read. With more, the memory is not a
/// segment.
const TORN: u32 = 2;

/// Offsets in `struct mi_segment_s`, and its size without the entries.
mod segment {
    pub const USED: usize = 208;
    pub const SLICES: usize = 224;
    pub const INFO_SLICES: usize = 232;
    pub const KIND: usize = 240;
    pub const ENTRIES: usize = 248;
    pub const HEADER: usize = 264;
}

/// What differs between builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The size of `struct mi_page_s`.
    entry: usize,
}

impl Shape {
    pub fn of(free_threaded: bool) -> Self {
        // Free-threaded builds have `qsbr_node` and `qsbr_goal` instead of an unused word.
        Self { entry: if free_threaded { 96 } else { 80 } }
    }
}

/// Offsets in `struct mi_page_s`.
mod entry {
    pub const SLICES: usize = 0;
    pub const OFFSET: usize = 4;
    pub const CAPACITY: usize = 10;
    pub const RESERVED: usize = 12;
    pub const USED: usize = 24;
    pub const BLOCK: usize = 28;
}

fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(bytes) = bytes.get(at..at + BYTES) {
        word[..BYTES].copy_from_slice(bytes);
    }
    u64::from_le_bytes(word)
}

/// A segment in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub bytes: u64,
    /// Bytes of the first slices, which contain the header and the entries.
    info: u64,
    entries: u64,
}

impl Segment {
    /// Parses the header of memory that extends for `room` bytes; `None` if it is not a segment, or a
    /// released one.
    fn parse(header: &[u8; segment::HEADER], room: u64) -> Option<Self> {
        let word = |at| number::<8>(header, at);
        let (slices, info, entries) = (word(segment::SLICES), word(segment::INFO_SLICES), word(segment::ENTRIES));
        let bytes = slices.checked_mul(SLICE)?;
        let is_whole = match number::<4>(header, segment::KIND) {
            0 => bytes == SEGMENT,
            1 => bytes <= room,
            _ => false,
        };
        let used = word(segment::USED);
        let fits =
            is_whole && info > 0 && info < entries && entries == slices.min(ENTRIES_MAX) && used > 0 && used < entries;
        fits.then_some(Self { bytes, info, entries })
    }
}

/// The segments in use in a process; `None` if they cannot all be read.
pub fn find(pid: u32) -> Option<Vec<(u64, Segment)>> {
    let memory = ProcessMemory::new(pid);
    let mut places = Vec::new();
    let extent = lines::each(pid, |line| {
        if line.start >= AREA.end {
            return ControlFlow::Break(());
        }
        if line.is_plain() && AREA.contains(&line.start) {
            places.push((line.start, line.end));
        }
        ControlFlow::Continue(())
    });
    if extent.ok()?.is_truncated {
        return None;
    }
    let mut left = PLACES_MAX;
    Some(places.into_iter().flat_map(|place| within(&memory, place, &mut left)).collect())
}

fn within(memory: &impl Memory, (start, end): (u64, u64), left: &mut usize) -> Vec<(u64, Segment)> {
    let (mut found, mut at) = (Vec::new(), start.next_multiple_of(SEGMENT));
    while at.saturating_add(SEGMENT) <= end && *left > 0 {
        *left -= 1;
        let mut header = [0; segment::HEADER];
        let segment = memory.read(at, &mut header).ok().and_then(|()| Segment::parse(&header, end - at));
        at += segment.map_or(SEGMENT, |segment| segment.bytes.next_multiple_of(SEGMENT));
        found.extend(segment.map(|segment| (at - segment.bytes.next_multiple_of(SEGMENT), segment)));
    }
    found
}

/// Inspects a segment; `None` if the memory is not one, or was released.
pub fn inspect(pid: u32, address: u64, bytes: u64, shape: Shape) -> std::io::Result<Option<Filled>> {
    let memory = ProcessMemory::new(pid);
    let mut header = [0; segment::HEADER];
    memory.read(address, &mut header)?;
    let Some(segment) = Segment::parse(&header, bytes).filter(|segment| segment.bytes == bytes) else {
        return Ok(None);
    };
    let mut entries = vec![0; segment.entries as usize * shape.entry];
    memory.read(address + segment::HEADER as u64, &mut entries)?;
    let held = held(pid, address, bytes).ok_or(std::io::ErrorKind::PermissionDenied)?;
    fill(&segment, &entries, shape, &held).map(Some).ok_or(std::io::ErrorKind::InvalidData.into())
}

/// Which slices are backed by memory. The others are only reserved addresses, or were returned to the kernel.
fn held(pid: u32, address: u64, bytes: u64) -> Option<Vec<bool>> {
    let mut pagemap = Process::new(i32::try_from(pid).ok()?).ok()?.pagemap().ok()?;
    let page = |address: u64| (address / PAGE) as usize;
    let pages = page(address)..page(address + bytes.min(ENTRIES_MAX * SLICE));
    let is_held = |page: &PageInfo| match page {
        PageInfo::MemoryPage(flags) => flags.contains(MemoryPageFlags::PRESENT),
        PageInfo::SwapPage(_) => true,
    };
    let pages = pagemap.get_range_info(pages).ok()?;
    Some(pages.chunks((SLICE / PAGE) as usize).map(|slice| slice.iter().any(is_held)).collect())
}

fn fill(segment: &Segment, entries: &[u8], shape: Shape, held: &[bool]) -> Option<Filled> {
    let count = |slices: std::ops::Range<u64>| {
        let slices = held.get(slices.start as usize..(slices.end as usize).min(held.len()));
        slices.map_or(0, |slices| slices.iter().filter(|is_held| **is_held).count() as u32)
    };
    let mut filled = Filled { slabs: count(segment.info..ENTRIES_MAX), ..Filled::default() };
    let (mut torn, mut index) = (0, segment.info);
    while index < segment.entries && torn <= TORN {
        let entry = &entries[index as usize * shape.entry..][..shape.entry];
        let slices = number::<4>(entry, entry::SLICES);
        let (used, block) = (number::<4>(entry, entry::USED), number::<4>(entry, entry::BLOCK));
        let (capacity, reserved) = (number::<2>(entry, entry::CAPACITY), number::<2>(entry, entry::RESERVED));
        let room = segment.bytes / SLICE - index;
        if slices == 0 || slices > room || number::<4>(entry, entry::OFFSET) != 0 {
            (torn, index) = (torn + 1, index + 1);
            continue;
        }
        let next = index + slices;
        let block = if block >= HUGE { slices * SLICE } else { block };
        // An unused run has no blocks.
        if block > 0 && used > 0 {
            if used > capacity || capacity > reserved || used.saturating_mul(block) > slices * SLICE {
                torn += 1;
            } else {
                filled.used += count(index..next);
                filled.bytes += used * block;
            }
        }
        index = next;
    }
    (torn <= TORN).then_some(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: Segment = Segment { bytes: SEGMENT, info: 1, entries: ENTRIES_MAX };

    const SHAPE: Shape = Shape { entry: 80 };

    fn put(bytes: &mut [u8], at: usize, value: u64, length: usize) {
        bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
    }

    fn header(kind: u64, slices: u64, used: u64) -> [u8; segment::HEADER] {
        let mut header = [0; segment::HEADER];
        put(&mut header, segment::USED, used, 8);
        put(&mut header, segment::SLICES, slices, 8);
        put(&mut header, segment::INFO_SLICES, 1, 8);
        put(&mut header, segment::KIND, kind, 4);
        put(&mut header, segment::ENTRIES, slices.min(ENTRIES_MAX), 8);
        header
    }

    fn entries(runs: &[(u64, u64, u64)]) -> Vec<u8> {
        let (mut bytes, mut index) = (vec![0; ENTRIES_MAX as usize * SHAPE.entry], 1);
        for (slices, used, block) in runs {
            let of = &mut bytes[index as usize * SHAPE.entry..][..SHAPE.entry];
            put(of, entry::SLICES, *slices, 4);
            put(of, entry::CAPACITY, (*used).max(1), 2);
            put(of, entry::RESERVED, (*used).max(1), 2);
            put(of, entry::USED, *used, 4);
            put(of, entry::BLOCK, *block, 4);
            index += slices;
        }
        bytes
    }

    #[test]
    fn blocks_are_counted_by_the_entries() {
        let entries = entries(&[(1, 100, 64), (8, 3, 1000), (2, 0, 4096), (500, 0, 0)]);
        let mut held = vec![false; 512];
        held[..6].fill(true);
        // One slice of the first page, four of the second; the header's own slice is not counted.
        assert_eq!(fill(&INFO, &entries, SHAPE, &held), Some(Filled { slabs: 5, used: 5, bytes: 6400 + 3000 }));
        held[10] = true;
        assert_eq!(fill(&INFO, &entries, SHAPE, &held), Some(Filled { slabs: 6, used: 5, bytes: 6400 + 3000 }));
        assert_eq!(fill(&INFO, &entries, SHAPE, &[]), Some(Filled { slabs: 0, used: 0, bytes: 6400 + 3000 }));
    }

    #[test]
    fn one_block_may_take_more_than_a_segment() {
        let slices = 3 * 512;
        let segment = Segment::parse(&header(1, slices, 1), slices * SLICE).unwrap();
        assert_eq!(segment, Segment { bytes: 3 * SEGMENT, ..INFO });
        let block = HUGE.min(u64::from(u32::MAX));
        let filled = fill(&segment, &entries(&[(slices - 1, 1, block)]), SHAPE, &[true; 512]).unwrap();
        assert_eq!(filled, Filled { slabs: 511, used: 511, bytes: (slices - 1) * SLICE });
    }

    #[test]
    fn other_memory_is_no_segment() {
        let good = header(0, ENTRIES_MAX, 5);
        assert_eq!(Segment::parse(&good, SEGMENT), Some(INFO));
        assert_eq!(Segment::parse(&[0; segment::HEADER], SEGMENT), None);
        assert_eq!(Segment::parse(&[0xff; segment::HEADER], SEGMENT), None);
        assert_eq!(Segment::parse(&header(0, ENTRIES_MAX, 0), SEGMENT), None, "given up");
        assert_eq!(Segment::parse(&header(0, 1024, 5), 2 * SEGMENT), None, "of another size");
        assert_eq!(Segment::parse(&header(1, 1024, 1), SEGMENT), None, "larger than the memory");
        for at in
            [segment::SLICES + 5, segment::INFO_SLICES + 2, segment::KIND + 1, segment::ENTRIES, segment::USED + 7]
        {
            let mut bad = good;
            bad[at] ^= 0x41;
            assert_eq!(Segment::parse(&bad, SEGMENT), None, "byte {at}");
        }
        assert_eq!(fill(&INFO, &vec![0xff; ENTRIES_MAX as usize * SHAPE.entry], SHAPE, &[]), None);
        assert_eq!(fill(&INFO, &vec![0; ENTRIES_MAX as usize * SHAPE.entry], SHAPE, &[]), None);
    }

    struct Fake(u64, Vec<u8>);

    impl Memory for Fake {
        fn read(&self, address: u64, into: &mut [u8]) -> std::io::Result<()> {
            let bytes =
                if address == self.0 { &self.1[..into.len()] } else { return Err(std::io::ErrorKind::NotFound.into()) };
            into.copy_from_slice(bytes);
            Ok(())
        }
    }

    #[test]
    fn segments_lie_where_they_are_aligned() {
        let start = AREA.start;
        let memory = Fake(start + 2 * SEGMENT, header(0, ENTRIES_MAX, 5).to_vec());
        let find = |start, end| within(&memory, (start, end), &mut 100);
        assert_eq!(find(start, start + 4 * SEGMENT), [(start + 2 * SEGMENT, INFO)]);
        assert_eq!(find(start + PAGE, start + 4 * SEGMENT), [(start + 2 * SEGMENT, INFO)]);
        assert_eq!(find(start, start + 3 * SEGMENT - PAGE), []);
        assert_eq!(within(&memory, (start, start + 4 * SEGMENT), &mut 2), [], "no more places than that");
        assert_eq!(find(0, !(SEGMENT - 1)).len(), 0);
    }
}
