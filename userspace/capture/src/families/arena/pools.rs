//! How full one of CPython's arenas is, read from its pools' headers.
//!
//! An arena is divided into pools, each aligned to its size and each for blocks of one size. A used pool
//! begins with a header (`struct pool_header`,
//! <https://github.com/python/cpython/blob/v3.11.0/Objects/obmalloc.c>, since 3.12
//! <https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_obmalloc.h>). Its layout is the same
//! in all versions: the number of blocks in use (an `int` in a word), the first free block, two links, the
//! arena's index, the size class, and the offsets of the next block to carve and of the last block. Pools are
//! carved from the lowest address up. So the arena alone shows its state, even in stripped interpreters.
//!
//! The program keeps running during the read: a header is read in one go, and an inconsistent one is
//! discarded.

use std::io;

use pyobs_model::Filled;

use crate::cpython::version::Version;
use crate::memory::{Memory, Range};

pub const HEADER: usize = 48;
/// `ALIGNMENT` on 64-bit machines: blocks were aligned to 8 bytes before 3.6.9, and in 3.7 before 3.7.4
/// (bpo-27987).
const ALIGNMENTS: [u64; 2] = [16, 8];
/// `SMALL_REQUEST_THRESHOLD`.
const LARGEST: u64 = 512;
/// Larger indexes are implausible: they would mean more than 64 TiB of arenas.
const INDEX_MAX: u32 = 1 << 26;
/// Headers that may be inconsistent because they change during the read. With more, the memory is not an
/// arena.
const TORN: u32 = 2;
/// Arenas per read: their 64 headers each fill one `process_vm_readv`.
const AT_ONCE: usize = 16;
/// Retries for memory in which no pools were found.
const AGAIN: usize = 2;

/// The sizes and alignments of a version's arenas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub arena: u64,
    pub pool: u64,
    alignments: &'static [u64],
}

impl Shape {
    pub fn of(version: Version) -> Self {
        // 3.10 made arenas and pools larger (bpo-37448).
        let (arena, pool) = if version.since(10) { (1 << 20, 16 << 10) } else { (256 << 10, 4 << 10) };
        Self { arena, pool, alignments: if version.since(8) { &ALIGNMENTS[..1] } else { &ALIGNMENTS } }
    }

    fn first_pool(&self, arena: u64) -> Option<u64> {
        arena.checked_next_multiple_of(self.pool)
    }
}

/// A consistent header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Blocks in use.
    pub count: u32,
    pub piece: u64,
    pub arena: u32,
}

impl Header {
    /// Parses the header of the pool at `address`; `None` if this is not one.
    pub fn parse(bytes: &[u8; HEADER], address: u64, shape: &Shape) -> Option<Self> {
        let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let half = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let (count, free, arena) = (half(0), word(8), half(32));
        let (next, last) = (u64::from(half(40)), u64::from(half(44)));
        // The size class and the last block's offset each determine the block size, and must agree.
        let of_class = |alignment: &u64| (u64::from(half(36)) + 1).checked_mul(*alignment);
        let piece =
            shape.alignments.iter().filter_map(of_class).find(|piece| shape.pool.checked_sub(*piece) == Some(last))?;
        let is_piece = |at: u64| at >= HEADER as u64 && (at - HEADER as u64).is_multiple_of(piece);
        let fits = piece <= LARGEST
            && is_piece(next)
            && next <= shape.pool
            && u64::from(count) <= (shape.pool - HEADER as u64) / piece
            && arena < INDEX_MAX
            && (free == 0 || (free > address && free < address + shape.pool));
        fits.then_some(Self { count, piece, arena })
    }
}

/// Inspects arenas; `None` for memory that is not one. One read covers a batch; if it fails, each arena is read by itself.
pub fn inspect(memory: &impl Memory, addresses: &[u64], shape: &Shape) -> Vec<io::Result<Option<Filled>>> {
    let alone = |address: u64| read(memory, &[address], shape).map(|found| found.into_iter().next().flatten());
    let together = |some: &[u64]| -> Vec<io::Result<Option<Filled>>> {
        match read(memory, some, shape) {
            Ok(found) => found.into_iter().map(Ok).collect(),
            Err(_) => some.iter().map(|address| alone(*address)).collect(),
        }
    };
    let found = addresses.chunks(AT_ONCE).flat_map(together);
    // The program may have changed an arena during the read.
    let again = |(address, found): (&u64, _)| match found {
        Ok(None) => (0..AGAIN).map(|_| alone(*address)).find(|found| !matches!(found, Ok(None))).unwrap_or(Ok(None)),
        found => found,
    };
    addresses.iter().zip(found).map(again).collect()
}

fn read(memory: &impl Memory, addresses: &[u64], shape: &Shape) -> io::Result<Vec<Option<Filled>>> {
    let pools = |address: &u64| -> io::Result<Vec<(u64, [u8; HEADER])>> {
        let first = shape.first_pool(*address).ok_or(io::ErrorKind::InvalidInput)?;
        let count = address.saturating_add(shape.arena).saturating_sub(first) / shape.pool;
        Ok((0..count).map(|number| (first + number * shape.pool, [0; HEADER])).collect())
    };
    let mut arenas = addresses.iter().map(pools).collect::<io::Result<Vec<_>>>()?;
    let mut ranges: Vec<Range<'_>> =
        arenas.iter_mut().flatten().map(|(at, header)| (*at, header.as_mut_slice())).collect();
    memory.read_many(&mut ranges)?;
    Ok(arenas.iter().map(|pools| filled(pools, shape)).collect())
}

fn filled(pools: &[(u64, [u8; HEADER])], shape: &Shape) -> Option<Filled> {
    let mut filled = Filled { slabs: pools.len() as u32, ..Filled::default() };
    let (mut torn, mut index) = (0, None);
    for (address, header) in pools {
        match Header::parse(header, *address, shape) {
            Some(header) if *index.get_or_insert(header.arena) == header.arena => {
                filled.used += u32::from(header.count > 0);
                filled.bytes += u64::from(header.count) * header.piece;
            }
            // Not carved yet.
            None if header.iter().all(|byte| *byte == 0) => {}
            _ => torn += 1,
        }
    }
    (torn <= TORN && index.is_some()).then_some(filled)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn header(count: u32, arena: u32, class: u32, pool: u64) -> [u8; HEADER] {
        let piece = (u64::from(class) + 1) * 16;
        let mut bytes = [0; HEADER];
        bytes[0..4].copy_from_slice(&count.to_le_bytes());
        bytes[32..36].copy_from_slice(&arena.to_le_bytes());
        bytes[36..40].copy_from_slice(&class.to_le_bytes());
        bytes[40..44].copy_from_slice(&(HEADER as u32).to_le_bytes());
        bytes[44..48].copy_from_slice(&((pool - piece) as u32).to_le_bytes());
        bytes
    }

    fn alone(memory: &impl Memory, address: u64, shape: &Shape) -> io::Result<Option<Filled>> {
        inspect(memory, &[address], shape).remove(0)
    }

    struct Fake {
        start: u64,
        bytes: Vec<u8>,
    }

    impl Memory for Fake {
        fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
            let at = address.checked_sub(self.start).ok_or(io::ErrorKind::NotFound)? as usize;
            let bytes = self.bytes.get(at..at + into.len()).ok_or(io::ErrorKind::NotFound)?;
            into.copy_from_slice(bytes);
            Ok(())
        }
    }

    fn arena(start: u64, shape: &Shape, pools: &[[u8; HEADER]]) -> Fake {
        let mut fake = Fake { start, bytes: vec![0; shape.arena as usize] };
        for (pool, number) in pools.iter().zip(0..) {
            let at = (shape.first_pool(start).unwrap() - start + number * shape.pool) as usize;
            fake.bytes[at..at + HEADER].copy_from_slice(pool);
        }
        fake
    }

    #[test]
    fn pools_are_counted_by_their_headers() {
        let shape = Shape::of(Version::new(3, 12, 1));
        let pools = [header(3, 7, 0, shape.pool), header(0, 7, 1, shape.pool), header(10, 7, 3, shape.pool)];
        let expected = |slabs| Some(Filled { slabs, used: 2, bytes: 3 * 16 + 10 * 64 });
        for (start, slabs) in [(0x10_0000, 64), (0x10_1000, 63)] {
            assert_eq!(alone(&arena(start, &shape, &pools), start, &shape).unwrap(), expected(slabs));
        }
    }

    #[test]
    fn other_memory_is_no_arena() {
        let shape = Shape::of(Version::new(3, 8, 0));
        let start = 0x40_0000;
        let none = |pools: &[[u8; HEADER]]| alone(&arena(start, &shape, pools), start, &shape).unwrap().is_none();
        let good = header(1, 7, 0, shape.pool);
        assert!(!none(&[good]));
        assert!(none(&[]), "zeros");
        assert!(none(&[[0xff; HEADER]; 3]));
        assert!(none(&[good, header(1, 8, 0, shape.pool), header(1, 9, 0, shape.pool), header(1, 10, 0, shape.pool)]));
        for at in 36..HEADER {
            let mut bad = good;
            bad[at] ^= 0x41;
            assert_eq!(Header::parse(&bad, start, &shape), None, "byte {at}");
        }
        let fake = Fake { start: 0, bytes: Vec::new() };
        assert!(!matches!(alone(&fake, u64::MAX - 4096, &shape), Ok(Some(_))));
    }

    #[test]
    fn an_arena_that_is_gone_hides_no_other() {
        let shape = Shape::of(Version::new(3, 8, 0));
        let start = 0x40_0000;
        let fake = arena(start, &shape, &[header(1, 7, 0, shape.pool)]);
        let found = inspect(&fake, &[start - shape.arena, start, start + shape.arena], &shape);
        assert!(matches!(found[..], [Err(_), Ok(Some(Filled { used: 1, .. })), Err(_)]), "{found:?}");
    }

    #[test]
    fn a_read_that_was_torn_is_repeated() {
        struct Torn(Fake, Cell<bool>);

        impl Memory for Torn {
            fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
                self.0.read(address, into)
            }

            fn read_many(&self, ranges: &mut [Range<'_>]) -> io::Result<()> {
                ranges.iter_mut().try_for_each(|(address, into)| self.read(*address, into))?;
                if !self.1.replace(true) {
                    ranges.iter_mut().for_each(|(_, into)| into.fill(0xff));
                }
                Ok(())
            }
        }

        let shape = Shape::of(Version::new(3, 8, 0));
        let start = 0x40_0000;
        let torn = Torn(arena(start, &shape, &[header(1, 7, 0, shape.pool)]), Cell::new(false));
        assert!(matches!(alone(&torn, start, &shape), Ok(Some(Filled { used: 1, .. }))));
    }
}
