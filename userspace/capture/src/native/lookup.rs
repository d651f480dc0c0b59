//! The rules of single addresses of a file, without the file's whole table.
//!
//! `.eh_frame_hdr` has the functions in the order of their addresses, so one is found in a moment
//! (<https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html>). For code that it
//! does not list, such as stubs of a procedure linkage table, the whole table is made after all.

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, UnwindContext, UnwindSection};
use pyobs_abi::unwind::Rule;

use super::contents::Contents;
use super::rules::{NONE, Translator};
use super::table::image::{Image, Section};
use super::table::{Code, Table};

/// The functions of a file, by their addresses.
struct Functions {
    header: Section,
    frames: Section,
    bases: BaseAddresses,
    code: Code,
}

impl Functions {
    fn read(contents: &Contents) -> Option<Self> {
        let image = Image::parse(contents.source()).ok()?;
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
    contents: Contents,
    functions: Option<Functions>,
    /// Made when an address is not found among the functions.
    table: Option<Option<Table>>,
}

impl Rules {
    pub fn of(contents: Contents) -> Self {
        let functions = Functions::read(&contents);
        Self { contents, functions, table: None }
    }

    /// Returns the rule for the instruction at an offset in the file, or `None` if the file has no call frame information.
    pub fn rule(&mut self, offset: u64) -> Option<Rule> {
        if let Some(rule) = self.functions.as_ref().and_then(|functions| functions.rule(offset)) {
            return Some(rule);
        }
        let contents = &self.contents;
        let make = || contents.table().ok().filter(|table| table.rows > 1);
        let table = self.table.get_or_insert_with(make);
        match table {
            Some(table) => Some(table.rule(offset)),
            None if self.functions.is_some() => Some(NONE),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// The oracle is the whole table, which is compared with gimli's own look-up elsewhere.
    #[test]
    fn every_rule_is_that_of_the_whole_table() {
        let program = std::env::current_exe().unwrap();
        for path in [program, "/lib/x86_64-linux-gnu/libc.so.6".into()] {
            let Ok(file) = File::open(&path) else { continue };
            let size = file.metadata().unwrap().len();
            let rules = Rules::of(Contents::File(file, size));
            let (table, functions) = (rules.contents.table().unwrap(), rules.functions.unwrap());
            let (mut same, mut all) = (0, 0);
            for segment in &table.code.segments {
                for offset in (segment.offset..segment.offset + segment.size).step_by(1009) {
                    let Some(own) = functions.rule(offset) else { continue };
                    all += 1;
                    same += usize::from(own == table.rule(offset));
                }
            }
            assert!(all > 500 && same == all, "{}: {same} of {all}", path.display());
        }
    }
}
