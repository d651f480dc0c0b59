//! Finds the code of the interpreter's loop: a frame with its program counter there stands for Python frames.
//!
//! Compilers split the loop. The symbol `_PyEval_EvalFrameDefault` can name the smaller part: in Debian's
//! 3.13 it has 2,384 bytes, and the 77 kB that run the instructions are an unnamed cold part elsewhere. With
//! symbols the parts have names. Without, the hot part's conditional branches lead to them, and the unwind
//! table gives their extent.

use super::code;
use crate::elf::Elf;
use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, UnwindSection};
use object::elf::{STT_FUNC, STT_NOTYPE};
use std::ops::Range;

/// Ranges kept. A tail-calling interpreter has one function for each of its about 250 instructions, and a few
/// compilers make clones.
const MAX_RANGES: usize = 1024;
/// How often the search for split-off parts continues from a part that it found.
const MAX_PARTS: usize = 8;

/// Every range of the loop's code in the file, in order of address.
pub(super) fn find(elf: &Elf<'_>) -> Vec<Range<u64>> {
    // .symtab names every part.
    let mut ranges: Vec<Range<u64>> = elf
        .symbols()
        .filter(|(name, symbol)| is_loop(name) && symbol.size > 0 && matches!(symbol.kind, STT_FUNC | STT_NOTYPE))
        .filter_map(|(_, symbol)| Some(symbol.address..symbol.address.checked_add(symbol.size)?))
        .filter(|range| elf.is_code(range.start))
        .take(MAX_RANGES)
        .collect();
    if ranges.is_empty() {
        ranges.extend(exported(elf));
        add_split_parts(elf, &mut ranges);
    }
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges.dedup();
    ranges
}

/// The name may be followed by `.cold`, `.constprop.0`, `.llvm.123` and the like. `_TAIL_CALL_…`: one
/// function per instruction of the tail-calling interpreter
/// (<https://github.com/python/cpython/blob/v3.14.0/Python/ceval_macros.h>).
fn is_loop(name: &[u8]) -> bool {
    let suffix_of = |base: &[u8]| name.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest[0] == b'.');
    suffix_of(b"_PyEval_EvalFrameDefault") || name.starts_with(b"_TAIL_CALL_")
}

fn exported(elf: &Elf<'_>) -> Option<Range<u64>> {
    let symbol = elf.exported("_PyEval_EvalFrameDefault").filter(|symbol| elf.is_code(symbol.address))?;
    Some(symbol.address..symbol.address.checked_add(symbol.size).filter(|_| symbol.size > 0)?)
}

fn add_split_parts(elf: &Elf<'_>, ranges: &mut Vec<Range<u64>>) {
    let Some(unwind) = UnwindTable::of(elf) else { return };
    let mut next = 0;
    while next < ranges.len().min(MAX_PARTS) {
        for target in code::branches_out(elf, &ranges[next]) {
            if ranges.iter().any(|range| range.contains(&target)) {
                continue;
            }
            if let Some(part) = unwind.function(target).filter(|part| part.contains(&target) && elf.is_code(part.start))
            {
                ranges.push(part);
            }
        }
        next += 1;
    }
}

/// The function that contains an address, by the unwind table.
pub(super) fn function(elf: &Elf<'_>, address: u64) -> Option<Range<u64>> {
    UnwindTable::of(elf)?.function(address)
}

type Slice<'data> = EndianSlice<'data, LittleEndian>;

struct UnwindTable<'data> {
    frames: EhFrame<Slice<'data>>,
    header: gimli::ParsedEhFrameHdr<Slice<'data>>,
    bases: BaseAddresses,
}

impl<'data> UnwindTable<'data> {
    fn of(elf: &Elf<'data>) -> Option<Self> {
        let (header_address, header) = elf.section(b".eh_frame_hdr")?;
        let (frames_address, frames) = elf.section(b".eh_frame")?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(header_address).set_eh_frame(frames_address);
        let header = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8).ok()?;
        Some(Self { frames: EhFrame::new(frames, LittleEndian), header, bases })
    }

    fn function(&self, address: u64) -> Option<Range<u64>> {
        let table = self.header.table()?;
        let entry = table.fde_for_address(&self.frames, &self.bases, address, EhFrame::cie_from_offset).ok()?;
        Some(entry.initial_address()..entry.end_address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_loop_are_known_by_name() {
        for (name, expected) in [
            ("_PyEval_EvalFrameDefault", true),
            ("_PyEval_EvalFrameDefault.cold", true),
            ("_PyEval_EvalFrameDefault.cold.1234", true),
            ("_PyEval_EvalFrameDefault.constprop.0", true),
            ("_TAIL_CALL_BINARY_OP.llvm.77", true),
            ("_TAIL_CALL_start_frame", true),
            ("_PyEval_EvalFrameDefaultly", false),
            ("_PyEval_EvalFrame", false),
            ("PyEval_EvalFrameEx", false),
            ("", false),
        ] {
            assert_eq!(is_loop(name.as_bytes()), expected, "{name}");
        }
    }
}
