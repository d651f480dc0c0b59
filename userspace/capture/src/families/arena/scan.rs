//! Finds the arenas that a process had before it was watched, by looking for pool headers in anonymous
//! memory.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::pools::{HEADER, Header, Shape};
use crate::memory::{Memory, ProcessMemory, Range};
use crate::process_maps::lines;

/// Pools checked per process (a GiB has 65,536); the rest is not searched.
const POOLS_MAX: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Headers per read.
const AT_ONCE: u64 = 1024;
/// Bounds the reads for one batch when part of it is unmapped.
const READS_MAX: u32 = 512;

/// The addresses of arenas. An arena not aligned to its pool size begins one to three pages before its first
/// pool. Only the bounds of its memory show how many; without them it is left out.
pub fn find(pid: u32, shape: &Shape) -> Vec<u64> {
    let memory = ProcessMemory::new(pid);
    let (mut places, mut left) = (Vec::new(), POOLS_MAX);
    let read = lines::each(pid, |line| {
        // `[heap]` is grown by brk(2) and never contains arenas.
        if line.is_plain() {
            let (start, end) = (line.start.next_multiple_of(shape.pool), line.end);
            let taken = (end.saturating_sub(start) / shape.pool).min(left);
            left -= taken;
            places.push((start, taken, (line.start, end)));
        }
        if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if read.is_err() {
        return Vec::new();
    }
    places.into_iter().flat_map(|(start, count, ends)| within(&memory, start, count, ends, shape)).collect()
}

/// An arena as seen by its pools.
struct Found {
    /// The lowest pool.
    first: u64,
    /// The highest pool seen.
    last: u64,
}

fn within(memory: &impl Memory, start: u64, count: u64, ends: (u64, u64), shape: &Shape) -> Vec<u64> {
    let mut arenas: Vec<Found> = Vec::new();
    // The latest arena with each index. The index separates neighbouring arenas, but not those of different
    // interpreters.
    let mut latest: BTreeMap<u32, usize> = BTreeMap::new();
    let mut number = 0;
    while number < count {
        let pools = AT_ONCE.min(count - number);
        let at = |index: usize| start + (number + index as u64) * shape.pool;
        let mut headers = vec![[0; HEADER]; pools as usize];
        let mut ranges: Vec<Range<'_>> =
            headers.iter_mut().enumerate().map(|(index, header)| (at(index), header.as_mut_slice())).collect();
        let mut reads = READS_MAX;
        read_mapped(memory, &mut ranges, &mut reads);
        for (index, header) in headers.iter().enumerate() {
            let Some(header) = Header::parse(header, at(index), shape) else { continue };
            let known = latest.get(&header.arena).and_then(|number| arenas.get_mut(*number));
            match known.filter(|found| at(index) - found.first < shape.arena) {
                Some(found) => found.last = at(index),
                None => {
                    latest.insert(header.arena, arenas.len());
                    arenas.push(Found { first: at(index), last: at(index) });
                }
            }
        }
        number += pools;
    }
    // An arena with all its pools shows whether arenas are aligned in this process.
    let most = shape.arena / shape.pool;
    let pools = |found: &Found| (found.last - found.first) / shape.pool + 1;
    let is_aligned = shape.pool == PAGE
        || arenas.iter().any(|found| pools(found) == most)
        || !arenas.iter().any(|found| pools(found) == most - 1);
    arenas.iter().map(|found| if is_aligned { found.first } else { before(found.first, ends, shape) }).collect()
}

/// Reads all ranges, and zeroes those that are unmapped: the program may free memory during the scan.
fn read_mapped(memory: &impl Memory, ranges: &mut [Range<'_>], left: &mut u32) {
    if *left == 0 {
        return ranges.iter_mut().for_each(|(_, into)| into.fill(0));
    }
    *left -= 1;
    if memory.read_many(ranges).is_err() {
        match ranges {
            [] => {}
            [(_, into)] => into.fill(0),
            _ => {
                let (some, others) = ranges.split_at_mut(ranges.len() / 2);
                read_mapped(memory, some, left);
                read_mapped(memory, others, left);
            }
        }
    }
}

/// The address of the arena whose first pool is at `first`.
fn before(first: u64, (start, end): (u64, u64), shape: &Shape) -> u64 {
    let fits = |at: &u64| {
        let after = at.wrapping_sub(start);
        after.is_multiple_of(shape.arena) || end.wrapping_sub(*at).is_multiple_of(shape.arena)
    };
    let mut pages = (1..shape.pool / PAGE).map(|pages| first - pages * PAGE);
    pages.find(fits).unwrap_or(first - PAGE)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::cpython::version::Version;

    const START: u64 = 0x40_0000;

    /// Adjacent arenas whose pages all hold pools, with an unmapped hole.
    struct Holey {
        shape: Shape,
        hole: std::ops::Range<u64>,
    }

    impl Memory for Holey {
        fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
            if self.hole.contains(&address) {
                return Err(io::ErrorKind::NotFound.into());
            }
            into.fill(0);
            let arena = (address - START) / self.shape.arena;
            into[0..4].copy_from_slice(&1_u32.to_le_bytes());
            into[32..36].copy_from_slice(&(arena as u32).to_le_bytes());
            into[40..44].copy_from_slice(&(HEADER as u32).to_le_bytes());
            let last = self.shape.pool - 16;
            into[44..48].copy_from_slice(&(last as u32).to_le_bytes());
            Ok(())
        }
    }

    #[test]
    fn arenas_around_an_unmapped_hole_are_found() {
        let shape = Shape::of(Version::new(3, 8, 0));
        let (count, end) = (64 * 20, START + 20 * shape.arena);
        let found = |hole: std::ops::Range<u64>| {
            let memory = Holey { shape: Shape::of(Version::new(3, 8, 0)), hole };
            within(&memory, START, count, (START, end), &shape)
        };
        let all: Vec<u64> = (0..20).map(|number| START + number * shape.arena).collect();
        assert_eq!(found(0..0), all);
        // The hole is the second half of an arena, then a whole arena.
        assert_eq!(found(all[3] + shape.arena / 2..all[4]), all);
        assert_eq!(found(all[7]..all[8]), [&all[..7], &all[8..]].concat());
    }
}
