//! A file's unwind table: a page index and rows, in the format of [`pyobs_abi::unwind`].
//!
//! Rows come from `.eh_frame`, and where that has none, from `.debug_frame`. Stubs of the procedure linkage
//! table that neither covers get rows of our own. The file is hostile input: sizes are bounded, and it is
//! never mapped.

mod frames;
pub(super) mod image;
mod stubs;
#[cfg(test)]
mod tests;

use std::fs::File;

use gimli::{BaseAddresses, DebugFrame, EhFrame, LittleEndian};
use pyobs_abi::unwind::{PAGE_BITS, Rule, row};

use self::frames::{Frames, Piece};
use self::image::{Image, Source};
use super::rules::{NONE, UNSUPPORTED};

/// Rows per file: half of the space that all files share. A file with more has no table.
const ROWS_MAX: usize = 1 << 22;
/// Bytes of the file from the first executable one to the last. The index for this much takes 8 MiB.
const CODE_MAX: u64 = 1 << 30;
/// Gaps up to this many bytes, the padding between functions, keep the row before them. A function's last row
/// is nearly always equal to the next function's first, so this saves a tenth of the rows.
const GAP_MAX: u32 = 15;

/// Why a file has no table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("cannot be read")]
    Read(#[source] std::io::Error),
    #[error("not an ELF file")]
    NotElf,
    #[error("an ELF file for another machine than x86-64 (class {class}, machine {machine})")]
    OtherMachine { class: u8, machine: u16 },
    #[error("malformed: {0}")]
    Malformed(&'static str),
    #[error("no executable segment")]
    NoCode,
    #[error("no call frame information")]
    NoFrames,
    #[error("{0} is compressed")]
    Compressed(&'static str),
    #[error("{what}: {size} is more than the limit of {limit}")]
    TooLarge { what: &'static str, size: u64, limit: u64 },
    #[error("call frame information that takes too long to read")]
    TooMuchWork,
}

/// A contiguous range of a file's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Link-time address of the first byte.
    pub vaddr: u64,
    /// Offset of that byte in the file.
    pub offset: u64,
    pub size: u64,
}

/// The executable segments of a file, as far as the file contains them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    pub segments: Vec<Segment>,
}

impl Table {
    /// Returns the rule for the instruction at an offset in the file.
    pub fn rule(&self, offset: u64) -> Rule {
        let rows = &self.words[self.pages as usize..];
        let offset = offset.wrapping_sub(self.code.origin());
        let after = rows.partition_point(|row| row >> 32 <= offset);
        after.checked_sub(1).map_or(NONE, |last| Rule(rows[last] as u32))
    }
}

impl Code {
    /// Returns the link-time address of an offset in the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| offset.wrapping_sub(segment.offset) < segment.size)?;
        Some(segment.vaddr + (offset - segment.offset))
    }

    /// The file offset that rows are relative to: that of the first executable byte.
    pub fn origin(&self) -> u64 {
        self.segments.iter().map(|segment| segment.offset).min().unwrap_or(0)
    }

    /// Bytes of the file from the first executable one to the last.
    fn span(&self) -> Option<u64> {
        Some(self.segments.iter().map(|segment| segment.offset + segment.size).max()? - self.origin())
    }

    /// The part of a range of link-time addresses that is in the segment of its start.
    fn part(&self, start: u64, end: u64) -> Option<Part> {
        let segment = self
            .segments
            .iter()
            .find(|segment| start.checked_sub(segment.vaddr).is_some_and(|skip| skip < segment.size))?;
        let end = end.min(segment.vaddr + segment.size);
        let shift = segment.vaddr.wrapping_sub(segment.offset - self.origin());
        (start < end).then_some(Part { start, end, shift })
    }
}

/// Link-time addresses of one segment.
struct Part {
    start: u64,
    end: u64,
    shift: u64,
}

impl Part {
    /// An address as a row's offset, at most [`CODE_MAX`].
    fn offset(&self, address: u64) -> u32 {
        address.wrapping_sub(self.shift) as u32
    }
}

/// Statistics about a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Functions with call frame information.
    pub fdes: u32,
    /// Entries that cannot be read, or that describe no code of the file.
    pub skipped: u32,
    /// Rows in the file, before equal neighbours are merged.
    pub rows: u32,
    /// Bytes of code with a row, including unsupported ones and stubs.
    pub covered_bytes: u64,
    /// Those of them whose rule does not fit a row.
    pub unsupported_bytes: u64,
    /// Those of them that are stubs with rows of our own.
    pub stub_bytes: u64,
    /// `.debug_frame` sections that are compressed, truncated or beyond a limit.
    pub ignored_sections: u32,
}

/// A file's unwind table.
#[derive(Clone, Debug)]
pub struct Table {
    /// The page index, then the rows.
    pub words: Vec<u64>,
    /// Words of the page index. It ends with the page of the last row, which marks the end of the code.
    pub pages: u32,
    pub rows: u32,
    pub code: Code,
    pub counts: Counts,
}

/// The table of a file of `size` bytes.
pub fn read(file: &File, size: u64) -> Result<Table, TableError> {
    of(Source::File(file, size))
}

/// The table of an ELF image in memory whose bytes are laid out as in a file, such as the vDSO.
pub fn of_memory(image: &[u8]) -> Result<Table, TableError> {
    of(Source::Memory(image))
}

fn of(source: Source<'_>) -> Result<Table, TableError> {
    let image = Image::parse(source)?;
    let code = image.code();
    let size = code.span().ok_or(TableError::NoCode)?;
    if size > CODE_MAX {
        return Err(TableError::TooLarge { what: "the span of the code", size, limit: CODE_MAX });
    }

    let mut counts = Counts::default();
    let mut add = |frames: Frames| {
        counts.fdes += frames.fdes;
        counts.skipped += frames.skipped;
        counts.rows += frames.rows;
        frames.pieces
    };
    let eh_frame = add(eh_frame(&image, &code)?);
    let (debug_frame, ignored) = match debug_frame(&image, &code) {
        Ok(frames) => (add(frames), None),
        Err(error) => (Vec::new(), Some(error)),
    };
    counts.ignored_sections = ignored.is_some().into();

    let pieces = frames::overlay(eh_frame, &debug_frame);
    if pieces.is_empty() {
        return Err(ignored.unwrap_or(TableError::NoFrames));
    }
    let stated = covered(&pieces);
    let pieces = frames::overlay(pieces, &stubs::pieces(&image, &code));
    counts.covered_bytes = covered(&pieces);
    counts.stub_bytes = counts.covered_bytes - stated;
    counts.unsupported_bytes = covered(pieces.iter().filter(|piece| piece.rule == UNSUPPORTED));
    let rows = rows(&pieces);
    if rows.len() > ROWS_MAX {
        return Err(TableError::TooLarge { what: "rows", size: rows.len() as u64, limit: ROWS_MAX as u64 });
    }
    let mut words = index(&rows);
    let (pages, count) = (words.len() as u32, rows.len() as u32);
    words.extend_from_slice(&rows);
    Ok(Table { words, pages, rows: count, code, counts })
}

fn eh_frame(image: &Image<'_>, code: &Code) -> Result<Frames, TableError> {
    let Some(section) = image.eh_frame()? else { return Ok(Frames::default()) };
    let bases = image.bases().set_eh_frame(section.address);
    let mut frames = EhFrame::new(&section.bytes, LittleEndian);
    frames.set_address_size(8);
    frames::read(&frames, &section.bytes, section.open, &bases, code)
}

fn debug_frame(image: &Image<'_>, code: &Code) -> Result<Frames, TableError> {
    if image.header(b".zdebug_frame").is_some() {
        return Err(TableError::Compressed(".zdebug_frame"));
    }
    let Some(section) = image.section(".debug_frame")? else { return Ok(Frames::default()) };
    let mut frames = DebugFrame::new(&section.bytes, LittleEndian);
    frames.set_address_size(8);
    frames::read(&frames, &section.bytes, section.open, &BaseAddresses::default(), code)
}

fn covered<'a>(pieces: impl IntoIterator<Item = &'a Piece>) -> u64 {
    pieces.into_iter().map(|piece| u64::from(piece.end - piece.start)).sum()
}

/// Rows for pieces in order and without overlaps. The first row is at offset 0, the last marks the end.
fn rows(pieces: &[Piece]) -> Vec<u64> {
    let mut rows = Vec::with_capacity(pieces.len() + 2);
    let (mut end, mut last) = (0, None);
    let mut push = |offset, rule| {
        if last != Some(rule) {
            rows.push(row(offset, rule));
            last = Some(rule);
        }
    };
    for piece in pieces {
        if piece.start - end > GAP_MAX || (end == 0 && piece.start > 0) {
            push(end, NONE);
        }
        push(piece.start, piece.rule);
        end = piece.end;
    }
    push(end, NONE);
    rows
}

/// For each page, the numbers of the last row that begins at or before it and of the last that begins in it.
fn index(rows: &[u64]) -> Vec<u64> {
    let offset = |row: &u64| row >> 32;
    let pages = rows.last().map_or(0, |last| (offset(last) >> PAGE_BITS) + 1);
    let (mut first, mut last) = (0_u64, 0_u64);
    let begins_by = |row: u64, limit: u64| {
        usize::try_from(row).ok().and_then(|row| rows.get(row)).is_some_and(|row| offset(row) <= limit)
    };
    (0..pages)
        .map(|page| {
            let start = page << PAGE_BITS;
            first = last;
            while begins_by(first + 1, start) {
                first += 1;
            }
            last = first;
            while begins_by(last + 1, start + (1 << PAGE_BITS) - 1) {
                last += 1;
            }
            first | (last << 32)
        })
        .collect()
}
