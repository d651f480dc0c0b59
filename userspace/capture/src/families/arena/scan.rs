//! The arenas that a process had before it was watched: memory without a file, looked through for headers of pools.

use std::collections::BTreeMap;

use procfs::process::{MMPermissions, MMapPath, Process};

use super::pools::{HEADER, Header, Shape};
use crate::memory::{Memory, ProcessMemory, Range};

/// Pools that are looked for in one process at the most; a GiB has 65,536.
const POOLS_MAX: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Headers that are read at once.
const AT_ONCE: u64 = 1024;

/// Where arenas begin. An arena that is not aligned to its pools begins one to three pages before its first pool: which, is
/// told by the ends of the memory that it lies in, and else not known.
pub fn find(pid: u32, shape: &Shape) -> Vec<u64> {
    let Some(process) = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()) else { return Vec::new() };
    let memory = ProcessMemory::new(pid);
    let mut found = Vec::new();
    let mut left = POOLS_MAX;
    for map in process.maps().map(|maps| maps.0).unwrap_or_default() {
        let plain = MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE;
        // `[heap]` is the program break's, and has no arenas.
        if map.perms != plain || map.inode != 0 || !matches!(map.pathname, MMapPath::Anonymous) {
            continue;
        }
        let (start, end) = (map.address.0.next_multiple_of(shape.pool), map.address.1);
        let count = end.saturating_sub(start) / shape.pool;
        let taken = count.min(left);
        left -= taken;
        found.extend(within(&memory, start, taken, (map.address.0, end), shape));
    }
    found
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
