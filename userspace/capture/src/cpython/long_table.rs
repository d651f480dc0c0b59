//! Line tables of huge functions, as found in generated code. Only an index is kept: where each piece of a
//! table begins, and the sums of the entries before it. To find a line, one piece is read again from the
//! process.

use std::hash::Hasher;
use std::io;

use super::lines::{Format, Place, Walked};
use crate::memory::Memory;

/// In bytes; larger tables are not read.
pub const LONG_MAX: u64 = 8 << 20;
const PIECE: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    at: usize,
    place: Place,
    /// Hash of its bytes, because the memory may have changed by the next read.
    hash: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongTable {
    format: Format,
    /// The address of its first byte in the process.
    start: u64,
    /// By position in the table, which is the order of the instructions.
    pieces: Box<[Piece]>,
    end: usize,
}

impl LongTable {
    /// Reads a whole table once. The index of a malformed table ends at the first malformed entry.
    pub fn read(memory: &impl Memory, start: u64, size: u64, format: Format, first_line: u32) -> io::Result<Self> {
        let size = usize::try_from(size.min(LONG_MAX)).unwrap_or(0);
        let (mut place, mut pieces, mut end) = (Place::first(first_line), Vec::new(), 0);
        let mut bytes = Vec::with_capacity(PIECE);
        while end < size {
            bytes.resize(PIECE.min(size - end), 0);
            memory.read(start.wrapping_add(end as u64), &mut bytes)?;
            let whole = if end + bytes.len() == size { bytes.len() } else { format.whole_entries(&bytes) };
            let piece = &bytes[..whole];
            pieces.push(Piece { at: end, place, hash: hash(piece) });
            end += whole;
            if whole == 0 || format.walk(&mut place, piece, u64::MAX) == Walked::Malformed {
                break;
            }
        }
        Ok(Self { format, start, pieces: pieces.into(), end })
    }

    /// The line of the instruction at `address`, in bytes from the start of the bytecode; `None` if it has
    /// none. An error means that the process's memory cannot be read or no longer contains this table.
    pub fn line(&self, memory: &impl Memory, address: u32) -> io::Result<Option<u32>> {
        let after = self.pieces.partition_point(|piece| piece.place.address <= address.into());
        let Some(piece) = after.checked_sub(1).and_then(|last| self.pieces.get(last)) else { return Ok(None) };
        let end = self.pieces.get(after).map_or(self.end, |next| next.at);
        let mut bytes = vec![0; end.saturating_sub(piece.at)];
        memory.read(self.start.wrapping_add(piece.at as u64), &mut bytes)?;
        if hash(&bytes) != piece.hash {
            return Err(io::Error::other("the line table has changed"));
        }
        Ok(self.format.line(piece.place, &bytes, address))
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::lines::LineTable;
    use super::*;

    const START: u64 = 0x5000;

    struct Bytes(RefCell<Vec<u8>>);

    impl Memory for Bytes {
        fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
            let (bytes, from) = (self.0.borrow(), (address - START) as usize);
            let part = bytes.get(from..from + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            into.copy_from_slice(part);
            Ok(())
        }
    }

    fn entries(format: Format, count: u32) -> Vec<u8> {
        let entry = |number: u32| match format {
            // 70 zero deltas in a row never are a piece of their own, but some run crosses the end of a
            // piece.
            Format::Lnotab | Format::Pairs310 if number % 500 < 70 => vec![0, 1],
            Format::Lnotab => vec![2 + (number % 7) as u8, if number.is_multiple_of(11) { 0xfe } else { 1 }],
            Format::Pairs310 => vec![2, if number.is_multiple_of(13) { 0x80 } else { 2 }],
            Format::Locations311 if number.is_multiple_of(17) => vec![0x80 | 15 << 3 | 3],
            Format::Locations311 => vec![0x80 | 14 << 3 | (number % 8) as u8, 0x42, 0x01, 0x41, 0x01, 0x02, 0x43, 0x01],
        };
        (0..count).flat_map(entry).collect()
    }

    #[test]
    fn lines_are_those_of_the_whole_table() {
        for format in [Format::Lnotab, Format::Pairs310, Format::Locations311] {
            let bytes = entries(format, 40_000);
            assert!(bytes.len() > 4 * PIECE);
            let whole = LineTable { format, first_line: 7, bytes: bytes.clone().into() };
            let memory = Bytes(RefCell::new(bytes.clone()));
            let long = LongTable::read(&memory, START, bytes.len() as u64, format, 7).unwrap();
            let addresses = (0..400_000).step_by(97).chain([0, 1, 2, u32::MAX]);
            for address in addresses {
                assert_eq!(long.line(&memory, address).unwrap(), whole.line(address), "{format:?} {address}");
            }
            memory.0.borrow_mut()[3 * PIECE] ^= 1;
            let changed = (0..400_000).step_by(97).filter(|address| long.line(&memory, *address).is_err()).count();
            assert!(changed > 0, "{format:?}: memory that is another's has no lines");
            memory.0.borrow_mut().clear();
            assert!(long.line(&memory, 0).is_err());
        }
    }

    #[test]
    fn any_bytes_end() {
        for byte in [0, 0x7f, 0x80, 0xef, 0xff] {
            for format in [Format::Lnotab, Format::Pairs310, Format::Locations311] {
                let bytes = vec![byte; 3 * PIECE + 1];
                let memory = Bytes(RefCell::new(bytes.clone()));
                let long = LongTable::read(&memory, START, bytes.len() as u64, format, u32::MAX).unwrap();
                for address in [0, 5, 40_000, u32::MAX] {
                    let _ = long.line(&memory, address).unwrap();
                }
            }
        }
    }
}
