//! From an offset in the bytecode to the line: decodes CPython's three line table formats.
//!
//! Sources in CPython's tree: <https://github.com/python/cpython/blob/v3.10.0/Objects/lnotab_notes.txt> (3.6 to
//! 3.9, and the pairs of 3.10) and <https://github.com/python/cpython/blob/v3.11.0/Objects/locations.md> (3.11
//! on; later `InternalDocs/code_objects.md`). The reference is `PyCode_Addr2Line`, and
//! `tests/capture/lines.rs` compares with it for every offset in every available interpreter.
//!
//! A table is walked entry by entry and never indexed by its own contents, so any input ends after at most as
//! many steps as it has bytes. Lines are summed in 64 bits, which 8 MiB of 32-bit deltas cannot overflow.

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// 3.6 to 3.9, `co_lnotab`: (bytes: u8, lines: i8); the deltas come *before* the line counts.
    Lnotab,
    /// 3.10, `co_linetable`: (bytes: u8, lines: i8); the line holds *for* the bytes, and -128 is "no line".
    Pairs310,
    /// 3.11 on, `co_linetable`: entries of a head byte and variable-length numbers.
    Locations311,
}

impl Format {
    /// The format that Python 3.`minor` writes.
    pub fn of(minor: u8) -> Self {
        match minor {
            ..=9 => Self::Lnotab,
            10 => Self::Pairs310,
            11.. => Self::Locations311,
        }
    }
}

/// The state at the beginning of an entry: the sums of the entries before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub line: i64,
    /// In bytes from the start of the bytecode.
    pub address: u64,
}

impl Place {
    /// The beginning of the table of a code object with this `co_firstlineno`.
    pub(super) fn first(line: u32) -> Self {
        Self { line: line.into(), address: 0 }
    }
}

/// The result of walking entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walked {
    /// The entry of the address: its line, or `None` if the compiler gave it none.
    Found(Option<i64>),
    /// All entries come before the address.
    Passed,
    Malformed,
}

impl Format {
    /// The line of `address`, which is at or after `place`, the beginning of this part of a table.
    pub(super) fn line(self, mut place: Place, part: &[u8], address: u32) -> Option<u32> {
        let line = match (self.walk(&mut place, part, address.into()), self) {
            (Walked::Found(line), _) => line?,
            // The table does not give the end of the last line, nor is the end of the code known here.
            (Walked::Passed, Self::Lnotab) => place.line,
            _ => return None,
        };
        u32::try_from(line).ok()
    }

    /// Continues from `place` over a part of a table that consists of complete entries, up to the entry of
    /// `address`.
    pub(super) fn walk(self, place: &mut Place, part: &[u8], address: u64) -> Walked {
        match self {
            Self::Lnotab => lnotab(place, part, address),
            Self::Pairs310 => pairs(place, part, address),
            Self::Locations311 => locations(place, part, address),
        }
    }

    /// How many bytes of a part are complete entries, if it begins with an entry and is not the last part.
    pub(super) fn whole_entries(self, part: &[u8]) -> usize {
        match self {
            Self::Lnotab | Self::Pairs310 => part.len() & !1,
            Self::Locations311 => part.iter().rposition(|byte| byte & ENTRY != 0).unwrap_or(0),
        }
    }
}

/// The line table of one code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineTable {
    pub format: Format,
    /// `co_firstlineno`, the base of the first delta.
    pub first_line: u32,
    pub bytes: Box<[u8]>,
}

impl LineTable {
    /// The line of the instruction at `address`, in bytes from the start of the bytecode. An address in an
    /// instruction's inline caches (3.11 on) belongs to that instruction's entry. `None` if the compiler gave
    /// it no line, the table ends before it, or the table is malformed up to there.
    pub fn line(&self, address: u32) -> Option<u32> {
        self.format.line(Place::first(self.first_line), &self.bytes, address)
    }
}

/// A pair advances the address first, and its line applies from the new address on.
fn lnotab(place: &mut Place, part: &[u8], address: u64) -> Walked {
    for pair in part.as_chunks::<2>().0 {
        place.address += u64::from(pair[0]);
        if place.address > address {
            return Walked::Found(Some(place.line));
        }
        // Signed since 3.6, so lines may also go back (lnotab_notes.txt).
        place.line += i64::from(pair[1].cast_signed());
    }
    Walked::Passed
}

/// A pair covers the bytes after those of the earlier pairs. A pair of zero bytes only changes the line: a
/// delta too large for one pair takes several. -128 means "no line" and changes nothing.
fn pairs(place: &mut Place, part: &[u8], address: u64) -> Walked {
    for pair in part.as_chunks::<2>().0 {
        let delta = pair[1].cast_signed();
        place.address += u64::from(pair[0]);
        if delta != i8::MIN {
            place.line += i64::from(delta);
        }
        if place.address > address {
            return Walked::Found((delta != i8::MIN).then_some(place.line));
        }
    }
    Walked::Passed
}

/// An entry covers the code units after those of the earlier entries. "No line" applies to this entry alone:
/// the running line stays the same for the next ones.
fn locations(place: &mut Place, part: &[u8], address: u64) -> Walked {
    let mut rest = part;
    while let Some((&head, tail)) = rest.split_first() {
        if head & ENTRY == 0 {
            return Walked::Malformed;
        }
        place.address += (u64::from(head & 7) + 1) * CODE_UNIT;
        let code = (head >> 3) & 15;
        place.line += match code {
            0..=9 | NO_LOCATION => 0,
            ONE_LINE_0..=ONE_LINE_2 => i64::from(code - ONE_LINE_0),
            // 13 (no columns) and 14 (long form) both start with the line delta; columns are not needed.
            _ => match varint(tail) {
                Some(value) => signed(value),
                None => return Walked::Malformed,
            },
        };
        if place.address > address {
            return Walked::Found((code != NO_LOCATION).then_some(place.line));
        }
        // The next entry starts at the next byte with the high bit set, which no other byte of an entry has.
        let skip = tail.iter().position(|byte| byte & ENTRY != 0).unwrap_or(tail.len());
        rest = &tail[skip..];
    }
    Walked::Passed
}

const ENTRY: u8 = 0x80;
const CODE_UNIT: u64 = 2;
const ONE_LINE_0: u8 = 10;
const ONE_LINE_2: u8 = 12;
const NO_LOCATION: u8 = 15;

/// Six bits per byte, the lowest first; bit 6 is set while more follow. CPython's numbers have 32 bits, which
/// take six bytes; anything longer, truncated or running into the next entry is malformed.
fn varint(bytes: &[u8]) -> Option<u32> {
    let mut value = 0u64;
    for (&byte, shift) in bytes.iter().zip((0..36).step_by(6)) {
        if byte & ENTRY != 0 {
            return None;
        }
        value |= u64::from(byte & 0x3f) << shift;
        if byte & 0x40 == 0 {
            return u32::try_from(value).ok();
        }
    }
    None
}

/// The sign is the lowest bit.
fn signed(value: u32) -> i64 {
    let magnitude = i64::from(value >> 1);
    if value & 1 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn lines(format: Format, first_line: u32, bytes: &[u8], expected: &[(u32, Option<u32>)]) {
        let table = LineTable { format, first_line, bytes: bytes.into() };
        for (address, line) in expected {
            assert_eq!(table.line(*address), *line, "{format:?} at {address}");
        }
    }

    fn head(code: u8, units: u8) -> u8 {
        0x80 | (code << 3) | (units - 1)
    }

    #[test]
    fn versions_know_their_format() {
        assert_eq!([6, 9].map(Format::of), [Format::Lnotab; 2]);
        assert_eq!(Format::of(10), Format::Pairs310);
        assert_eq!([11, 14, 99].map(Format::of), [Format::Locations311; 3]);
    }

    #[test]
    fn lnotab_example_of_the_notes() {
        let table = [0, 1, 6, 1, 44, 5, 255, 0, 45, 127, 0, 73, 11, 1];
        let some = |address, line| (address, Some(line));
        let expected = [some(0, 1), some(5, 1), some(6, 2), some(49, 2), some(50, 7), some(349, 7), some(350, 207)];
        lines(Format::Lnotab, 0, &table, &expected);
        lines(Format::Lnotab, 0, &table, &[some(360, 207), some(361, 208), some(9999, 208)]);
    }

    #[test]
    fn lnotab_lines_go_back() {
        lines(Format::Lnotab, 10, &[2, 5, 2, 0xfd], &[(0, Some(10)), (2, Some(15)), (4, Some(12))]);
        // Lines below 0 do not exist, but later deltas may come back up.
        lines(Format::Lnotab, 1, &[2, 0x80, 2, 127], &[(0, Some(1)), (2, None), (4, Some(0))]);
        lines(Format::Lnotab, 7, &[], &[(0, Some(7)), (100, Some(7))]);
        lines(Format::Lnotab, 7, &[2], &[(0, Some(7)), (100, Some(7))]);
    }

    #[test]
    fn pairs_no_line_leaves_the_running_line_alone() {
        let table = [2, 1, 4, 0x80, 2, 2];
        let expected = [(0, Some(11)), (1, Some(11)), (2, None), (5, None), (6, Some(13)), (7, Some(13)), (8, None)];
        lines(Format::Pairs310, 10, &table, &expected);
    }

    #[test]
    fn pairs_of_no_bytes_only_move_the_line() {
        let table = [0, 127, 0, 127, 4, 46, 2, 0x81];
        lines(Format::Pairs310, 10, &table, &[(0, Some(310)), (3, Some(310)), (4, Some(183))]);
    }

    /// A known reader steps by two over half the table and so misses everything in the second half.
    #[test]
    fn pairs_are_read_to_the_end() {
        let table: Vec<u8> = (0..100).flat_map(|_| [2, 1]).collect();
        let expected: Vec<_> = (0..200).map(|address| (address, Some(address / 2 + 1))).collect();
        lines(Format::Pairs310, 0, &table, &expected);
        lines(Format::Pairs310, 0, &table, &[(200, None)]);
    }

    /// Another reader sets the line to -1 at code 15 and applies the following deltas to that.
    #[test]
    fn locations_no_line_leaves_the_running_line_alone() {
        let table = [
            &[head(11, 1), 0, 4][..], // line + 1
            &[head(15, 2)],           // no line
            &[head(2, 1), 0x11],      // short form: the same line as before
            &[head(12, 1), 1, 2],     // line + 2
            &[head(15, 1)],           // no line
            &[head(13, 1), 3],        // line - 1
        ]
        .concat();
        let expected = [(0, Some(11)), (1, Some(11)), (2, None), (5, None), (6, Some(11)), (8, Some(13)), (10, None)];
        lines(Format::Locations311, 10, &table, &expected);
        lines(Format::Locations311, 10, &table, &[(12, Some(12)), (13, Some(12)), (14, None), (u32::MAX, None)]);
    }

    #[test]
    fn locations_bounds_are_exact_and_caches_belong_to_their_instruction() {
        // Eight units in one entry, like a call with its caches; then one unit on the next line.
        let table = [head(10, 8), 0, 9, head(11, 1), 0, 9];
        let expected = [(0, Some(5)), (15, Some(5)), (16, Some(6)), (17, Some(6)), (18, None)];
        lines(Format::Locations311, 5, &table, &expected);
    }

    #[test]
    fn locations_long_form_and_large_deltas() {
        // 200 is 0x48, 0x03 (locations.md), so +100; then the end line and the columns, which have
        // continuations too.
        let table = [head(14, 1), 0x48, 0x03, 0x41, 0x01, 0x02, 0x43, 0x01, head(13, 1), 0x49, 0x03];
        lines(Format::Locations311, 1, &table, &[(0, Some(101)), (2, Some(1)), (4, None)]);
        // 2 * 70000 in three chunks.
        let value = 140_000u32;
        let chunks = [0x40 | (value & 63) as u8, 0x40 | ((value >> 6) & 63) as u8, (value >> 12) as u8];
        let table = [&[head(13, 1)][..], &chunks].concat();
        lines(Format::Locations311, 1, &table, &[(0, Some(70_001))]);
    }

    #[test]
    fn locations_malformed_has_no_line() {
        for table in [
            &[0x00, 0x00][..],                                        // starts within an entry
            &[head(13, 1)],                                           // the number is missing
            &[head(13, 1), 0x40],                                     // it is cut off
            &[head(13, 1), 0x40, 0x80],                               // it runs into the next entry
            &[head(13, 1), 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f], // it never ends
            &[head(13, 1), 0x40, 0x40, 0x40, 0x40, 0x40, 0x04],       // it has 33 bits
            &[head(13, 1), 0x07],                                     // line -2
        ] {
            lines(Format::Locations311, 1, table, &[(0, None)]);
        }
    }

    #[test]
    fn any_bytes_end() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..3000 {
            let length = if round % 100 == 0 { 65_536 } else { next() as usize % 64 };
            let bytes: Box<[u8]> = (0..length).map(|_| next() as u8 | if round % 3 == 0 { 0x80 } else { 0 }).collect();
            let mut table = LineTable { format: Format::Lnotab, first_line: next() as u32, bytes };
            for format in [Format::Lnotab, Format::Pairs310, Format::Locations311] {
                table.format = format;
                for address in [0, 1, next() as u32 % 512, next() as u32, u32::MAX] {
                    table.line(address);
                }
            }
        }
    }
}
