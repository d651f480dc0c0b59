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
        if memory.read_many(&mut ranges).is_ok() {
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

/// The address of the arena whose first pool is at `first`.
fn before(first: u64, (start, end): (u64, u64), shape: &Shape) -> u64 {
    let fits = |at: &u64| {
        let after = at.wrapping_sub(start);
        after.is_multiple_of(shape.arena) || end.wrapping_sub(*at).is_multiple_of(shape.arena)
    };
    let mut pages = (1..shape.pool / PAGE).map(|pages| first - pages * PAGE);
    pages.find(fits).unwrap_or(first - PAGE)
}
