//! The pieces of code that a section of call frame information is about.

use std::ops::Range;

use gimli::{BaseAddresses, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindOffset};
use gimli::{UnwindSection, UnwindTableRow};
use pyobs_abi::unwind::Rule;

use super::{Code, Part, TableError};
use crate::native::rules::{Bytes, Translator, UNSUPPORTED};

/// Rows that are read of one section at the most; the 400,000 of a large OpenBLAS take 50 ms.
const ROWS_READ_MAX: u32 = 1 << 24;
/// Pieces at the most: 96 MiB. A row takes 4 bytes (OpenBLAS) to 6 (LLVM), so 20 MB of `.eh_frame` have 5 million at the
/// most, some of which merge.
const PIECES_MAX: usize = 1 << 23;
/// A function's rows are had by running its CIE's instructions, then its own. What is run is at most this many times
/// the section: real functions come to 3, as many functions sharing a large CIE would be quadratic.
const WORK_MAX: u64 = 16;

/// Code from `start` to `end` (exclusive), as offsets in the file from [`Code::origin`] on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub start: u32,
    pub end: u32,
    pub rule: Rule,
}

/// Less than gimli's own storage of 192 rules: a row is copied with its rules, and x86-64 has 17 registers to restore,
/// 27 where functions of the Windows convention save vectors.
struct Storage;

impl<T: gimli::ReaderOffset> UnwindContextStorage<T> for Storage {
    type Rules = [(Register, RegisterRule<T>); 32];
    type Stack = Box<[UnwindTableRow<T, Self>; 4]>;
}

/// What was read of a section.
#[derive(Default)]
pub struct Frames {
    pub pieces: Vec<Piece>,
    pub fdes: u32,
    /// Entries that cannot be read, or are about no code of the file.
    pub skipped: u32,
    pub rows: u32,
}

/// Pieces in the order of their starts, none of which overlaps another.
pub fn read<'data, S: UnwindSection<Bytes<'data>>>(
    section: &S,
    bytes: &'data [u8],
    open: bool,
    bases: &BaseAddresses,
    code: &Code,
) -> Result<Frames, TableError> {
    let mut frames = Frames::default();
    let mut context = UnwindContext::<usize, Storage>::new_in();
    // Nearly all functions in a row share their CIE.
    let mut known: Option<(S::Offset, gimli::CommonInformationEntry<Bytes<'data>>)> = None;
    let mut work = (bytes.len() as u64).saturating_mul(WORK_MAX);
    let mut at = 0;
    while let Some(length) = entry_length(bytes, at) {
        let start = at;
        at += length;
        if length == TERMINATOR {
            // With the section's size known, what follows is read too: by `.eh_frame_hdr` it would be found.
            if open {
                break;
            }
            continue;
        }
        let partial = match section.partial_fde_from_offset(bases, start.into()) {
            Err(gimli::Error::NotCiePointer(_)) => continue,
            other => other,
        };
        let mut cie_length = 0;
        let fde = partial.and_then(|partial| {
            cie_length = entry_length(bytes, UnwindOffset::into(partial.cie_offset())).unwrap_or(0);
            partial.parse(|section, bases, offset| match &known {
                Some((last, cie)) if *last == offset => Ok(cie.clone()),
                _ => {
                    let cie = section.cie_from_offset(bases, offset)?;
                    known = Some((offset, cie.clone()));
                    Ok(cie)
                }
            })
        });
        work = work.checked_sub((length + cie_length) as u64).ok_or(TableError::TooMuchWork)?;
        // A linker that dropped a function leaves its address as 0 in `.debug_frame`.
        let Some((fde, part)) = fde.ok().filter(|fde| fde.initial_address() != 0).and_then(|fde| {
            let part = code.part(fde.initial_address(), fde.end_address())?;
            Some((fde, part))
        }) else {
            frames.skipped += 1;
            continue;
        };
        frames.fdes += 1;
        let translator = Translator { section, encoding: fde.cie().encoding(), signal: fde.is_signal_trampoline() };
        let mut end = part.start;
        if let Ok(mut rows) = fde.rows(section, bases, &mut context) {
            while let Ok(Some(row)) = rows.next_row() {
                frames.rows += 1;
                if frames.rows > ROWS_READ_MAX {
                    return Err(TableError::TooMuchWork);
                }
                let from = row.start_address().clamp(part.start, part.end);
                end = row.end_address().clamp(part.start, part.end);
                if from < end {
                    frames.push(&part, from..end, translator.rule(row))?;
                }
            }
        }
        // A program that breaks off.
        if end < part.end {
            frames.push(&part, end..part.end, UNSUPPORTED)?;
        }
    }
    in_order(&mut frames.pieces);
    Ok(frames)
}

/// The length of an entry without contents.
const TERMINATOR: usize = 4;

/// Bytes of the entry at an offset, with its length field; `None` at the end, or where the length is wrong.
fn entry_length(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let (short, rest) = rest.split_first_chunk()?;
    let (field, length) = match u32::from_le_bytes(*short) {
        // 64-bit DWARF.
        u32::MAX => (12, u64::from_le_bytes(*rest.first_chunk()?)),
        length => (4, u64::from(length)),
    };
    let length = usize::try_from(length).ok()?.checked_add(field)?;
    (length <= bytes.len() - at).then_some(length)
}

impl Frames {
    fn push(&mut self, part: &Part, addresses: Range<u64>, rule: Rule) -> Result<(), TableError> {
        let (start, end) = (part.offset(addresses.start), part.offset(addresses.end));
        let full = self.pieces.len() == PIECES_MAX;
        match self.pieces.last_mut() {
            Some(last) if last.end == start && last.rule == rule => last.end = end,
            _ if full => return Err(TableError::TooMuchWork),
            _ => self.pieces.push(Piece { start, end, rule }),
        }
        Ok(())
    }
}

/// Sorts pieces by their starts and takes from each what the ones before it cover.
pub fn in_order(pieces: &mut Vec<Piece>) {
    pieces.sort_by_key(|piece| piece.start);
    let mut covered = 0;
    pieces.retain_mut(|piece| {
        piece.start = piece.start.max(covered);
        covered = covered.max(piece.end);
        piece.start < piece.end
    });
}

/// All pieces of `over`, and of `under` what lies between them. Both in order and without overlaps, as is what comes out.
pub fn overlay(over: Vec<Piece>, under: &[Piece]) -> Vec<Piece> {
    if under.is_empty() {
        return over;
    }
    let mut all = Vec::with_capacity(over.len() + under.len());
    let mut over = over.into_iter().peekable();
    for piece in under {
        let mut start = piece.start;
        while start < piece.end {
            if let Some(done) = over.next_if(|next| next.end <= start) {
                all.push(done);
                continue;
            }
            match over.peek() {
                Some(next) if next.start <= start => start = next.end,
                next => {
                    let end = next.map_or(piece.end, |next| next.start.min(piece.end));
                    all.push(Piece { start, end, rule: piece.rule });
                    start = end;
                }
            }
        }
    }
    all.extend(over);
    all
}
