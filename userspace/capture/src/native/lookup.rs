//! The rules of single addresses of a file, without the file's whole table.
//!
//! `.eh_frame_hdr` has the functions in the order of their addresses, so one is found in a moment
//! (<https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html>). For code that it
//! does not list, such as stubs of a procedure linkage table, the whole table is made after all.

use std::fs::File;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, UnwindContext, UnwindSection};
use pyobs_abi::unwind::Rule;

use super::rules::{NONE, Translator};
use super::table::image::{Image, Section, Source};
use super::table::{self, Code, Table};

/// Where to look.
pub enum From {
    File(File, u64),
    /// An ELF image copied from memory.
    Memory(Vec<u8>),
}

impl From {
    fn source(&self) -> Source<'_> {
        match self {
            Self::File(file, size) => Source::File(file, *size),
            Self::Memory(image) => Source::Memory(image),
        }
    }
}

/// The functions of a file, by their addresses.
struct Functions {
    header: Section,
    frames: Section,
    bases: BaseAddresses,
    code: Code,
}

impl Functions {
    fn read(from: &From) -> Option<Self> {
        let image = Image::parse(from.source()).ok()?;
        let (header, frames) = (image.eh_frame_hdr().ok()??, image.eh_frame().ok()??);
        let bases = image.bases().set_eh_frame_hdr(header.address).set_eh_frame(frames.address);
        Some(Self { header, frames, bases, code: image.code() })
    }

    fn rule(&self, offset: u64) -> Option<Rule> {
        let address = self.code.address(offset)?;
        let header = EhFrameHdr::new(&self.header.bytes, LittleEndian).parse(&self.bases, 8).ok()?;
        let mut frames = EhFrame::new(&self.frames.bytes, LittleEndian);
        frames.set_address_size(8);
        let function = header.table()?.fde_for_address(&frames, &self.bases, address, EhFrame::cie_from_offset).ok()?;
        let translator = Translator {
            section: &frames,
            encoding: function.cie().encoding(),
            signal: function.is_signal_trampoline(),
        };
        let mut context = UnwindContext::new();
        let row = function.unwind_info_for_address(&frames, &self.bases, &mut context, address).ok()?;
        Some(translator.rule(row))
    }
}

/// The rules of a file.
pub struct Rules {
    from: From,
    functions: Option<Functions>,
    /// Made when an address is not found among the functions.
    table: Option<Option<Table>>,
}

impl Rules {
    pub fn of(from: From) -> Self {
        let functions = Functions::read(&from);
        Self { from, functions, table: None }
    }

    /// Returns the rule for the instruction at an offset in the file, or `None` if the file has no call frame information.
    pub fn rule(&mut self, offset: u64) -> Option<Rule> {
        if let Some(rule) = self.functions.as_ref().and_then(|functions| functions.rule(offset)) {
            return Some(rule);
        }
        let from = &self.from;
        let table = self.table.get_or_insert_with(|| {
            let table = match from {
                From::File(file, size) => table::read(file, *size),
                From::Memory(image) => table::of_memory(image),
            };
            table.ok().filter(|table| table.rows > 1)
        });
        match table {
            Some(table) => Some(table.rule(offset)),
            None if self.functions.is_some() => Some(NONE),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oracle is the whole table, which is compared with gimli's own look-up elsewhere.
    #[test]
    fn every_rule_is_that_of_the_whole_table() {
        let program = std::env::current_exe().unwrap();
        for path in [program, "/lib/x86_64-linux-gnu/libc.so.6".into()] {
            let Ok(file) = File::open(&path) else { continue };
            let size = file.metadata().unwrap().len();
            let table = table::read(&file, size).unwrap();
            let mut rules = Rules::of(From::File(file, size));
            let (mut same, mut all) = (0, 0);
            for segment in &table.code.segments {
                for offset in (segment.offset..segment.offset + segment.size).step_by(1009) {
                    let Some(own) = rules.functions.as_ref().unwrap().rule(offset) else { continue };
                    all += 1;
                    same += usize::from(own == table.rule(offset));
                    assert_eq!(Some(own), rules.rule(offset));
                }
            }
            assert!(all > 500 && same == all, "{}: {same} of {all}", path.display());
        }
    }
}
