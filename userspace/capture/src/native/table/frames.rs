//! Reads the call frame information of a section as pieces of code with a rule each.

use std::ops::Range;

use gimli::{BaseAddresses, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindOffset};
use gimli::{UnwindSection, UnwindTableRow};
use pyobs_abi::unwind::Rule;

use super::{Code, Part, TableError};
use crate::native::rules::{Bytes, Translator, UNSUPPORTED};

/// Rows read per section; further ones are an error. The 400,000 of a large OpenBLAS take 50 ms.
const ROWS_READ_MAX: u32 = 1 << 24;
/// Pieces per section: 96 MiB. A row takes 4 bytes (OpenBLAS) to 6 (LLVM) of the file, so 20 MB of
/// `.eh_frame` have at most 5 million, some of which merge.
const PIECES_MAX: usize = 1 << 23;
/// A function's rows result from running its CIE's instructions, then its own. At most this many times the
/// section's size is run: real functions need 3, but many functions with one large CIE would be quadratic.
const WORK_MAX: u64 = 16;

/// Code from `start` to `end` (exclusive), as file offsets relative to [`Code::origin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub start: u32,
    pub end: u32,
    pub rule: Rule,
}

/// Smaller than gimli's own storage of 192 rules, because a row is copied with its rules. x86-64 has 17
/// registers to restore, or 27 if functions of the Windows calling convention save vectors.
struct Storage;

impl<T: gimli::ReaderOffset> UnwindContextStorage<T> for Storage {
    type Rules = [(Register, RegisterRule<T>); 32];
    type Stack = Box<[UnwindTableRow<T, Self>; 4]>;
}

/// The result of reading a section.
#[derive(Default)]
pub struct Frames {
    pub pieces: Vec<Piece>,
    pub fdes: u32,
    /// Entries that cannot be read, or that describe no code of the file.
    pub skipped: u32,
    pub rows: u32,
}

/// Pieces in order, without overlaps.
pub fn read<'data, S: UnwindSection<Bytes<'data>>>(
    section: &S,
    bytes: &'data [u8],
    open: bool,
    bases: &BaseAddresses,
    code: &Code,
) -> Result<Frames, TableError> {
    let mut frames = Frames::default();
    let mut context = UnwindContext::<usize, Storage>::new_in();
    // Consecutive functions nearly always share their CIE.
    let mut known: Option<(S::Offset, gimli::CommonInformationEntry<Bytes<'data>>)> = None;
    let mut work = (bytes.len() as u64).saturating_mul(WORK_MAX);
    let mut at = 0;
    while let Some(length) = entry_length(bytes, at) {
        let start = at;
        at += length;
        if length == TERMINATOR {
            // The section's size is known, so entries after the terminator are read too, as they can be found
            // through `.eh_frame_hdr`.
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
        // A linker that removed a function leaves its address as 0 in `.debug_frame`.
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
        // The instructions end before the function does.
        if end < part.end {
            frames.push(&part, end..part.end, UNSUPPORTED)?;
        }
    }
    in_order(&mut frames.pieces);
    Ok(frames)
}

/// Size of an entry without contents.
const TERMINATOR: usize = 4;

/// Size of the entry at an offset, including its length field; `None` at the end, or if the length is wrong.
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

/// Sorts pieces by their starts and removes from each what earlier ones cover.
pub fn in_order(pieces: &mut Vec<Piece>) {
    pieces.sort_by_key(|piece| piece.start);
    let mut covered = 0;
    pieces.retain_mut(|piece| {
        piece.start = piece.start.max(covered);
        covered = covered.max(piece.end);
        piece.start < piece.end
    });
}

/// All pieces of `over`, and the pieces of `under` in the gaps. Inputs and result are in order and without
/// overlaps.
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
