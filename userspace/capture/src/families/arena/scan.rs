//! The arenas that a process had before it was watched: memory without a file, looked through for headers of pools.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::pools::{HEADER, Header, Shape};
use crate::memory::{Memory, ProcessMemory, Range};
use crate::process_maps::lines;

/// Pools that are looked for in one process at the most; a GiB has 65,536.
const POOLS_MAX: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Headers that are read at once.
const AT_ONCE: u64 = 1024;

/// Where arenas begin. An arena that is not aligned to its pools begins one to three pages before its first pool: which, is
/// told by the ends of the memory that it lies in, and else not known.
pub fn find(pid: u32, shape: &Shape) -> Vec<u64> {
    let memory = ProcessMemory::new(pid);
    let (mut places, mut left) = (Vec::new(), POOLS_MAX);
    let read = lines::each(pid, |line| {
        // `[heap]` is the program break's, and has no arenas.
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

/// An arena by its pools.
struct Found {
    /// The lowest pool.
    first: u64,
    /// The highest that was seen.
    last: u64,
}

fn within(memory: &impl Memory, start: u64, count: u64, ends: (u64, u64), shape: &Shape) -> Vec<u64> {
    let mut arenas: Vec<Found> = Vec::new();
    // The latest with each index, which tells an arena from its neighbours, but not from those of another interpreter.
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
    // One that has all of its pools says whether arenas are aligned, here.
    let most = shape.arena / shape.pool;
    let pools = |found: &Found| (found.last - found.first) / shape.pool + 1;
    let is_aligned = shape.pool == PAGE
        || arenas.iter().any(|found| pools(found) == most)
        || !arenas.iter().any(|found| pools(found) == most - 1);
    arenas.iter().map(|found| if is_aligned { found.first } else { before(found.first, ends, shape) }).collect()
}

/// Where an arena begins whose first pool this is.
fn before(first: u64, (start, end): (u64, u64), shape: &Shape) -> u64 {
    let fits = |at: &u64| {
        let after = at.wrapping_sub(start);
        after.is_multiple_of(shape.arena) || end.wrapping_sub(*at).is_multiple_of(shape.arena)
    };
    let mut pages = (1..shape.pool / PAGE).map(|pages| first - pages * PAGE);
    pages.find(fits).unwrap_or(first - PAGE)
}
