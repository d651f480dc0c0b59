//! Names code objects from the copies that the kernel side sends, with the same reader as for live processes.

use std::io;
use std::mem::offset_of;

use pyobs_abi::code::{CodeCopy, FILE_AT, FILE_MAX, NAME_AT, NAME_MAX, OBJECT_AT, OBJECT_MAX, TABLE_AT, TABLE_MAX};
use pyobs_abi::record::Header;
use pyobs_abi::stack::Frame;

use super::names::{self, CodeObject, LongTables};
use super::offsets::Layout;
use crate::bytes::read;
use crate::memory::Memory;
use pyobs_model::Reason;

/// A decoded [`CodeCopy`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedCode {
    pub header: Header,
    address: u64,
    check: u32,
    object: Vec<u8>,
    name: Vec<u8>,
    file: Vec<u8>,
    table: Vec<u8>,
}

impl CopiedCode {
    /// Returns `None` if a size exceeds its slot or the record.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let number = |at| read::<u32>(bytes, at);
        let part = |at: usize, size: u32, most: usize| {
            let (start, size) = (offset_of!(CodeCopy, bytes) + at, size as usize);
            if size > most { None } else { Some(bytes.get(start..start + size)?.to_vec()) }
        };
        Some(Self {
            header: read(bytes, 0)?,
            address: read(bytes, offset_of!(CodeCopy, address))?,
            check: number(offset_of!(CodeCopy, check))?,
            object: part(OBJECT_AT, number(offset_of!(CodeCopy, object_size))?, OBJECT_MAX)?,
            name: part(NAME_AT, number(offset_of!(CodeCopy, name_size))?, NAME_MAX)?,
            file: part(FILE_AT, number(offset_of!(CodeCopy, file_size))?, FILE_MAX)?,
            table: part(TABLE_AT, number(offset_of!(CodeCopy, table_size))?, TABLE_MAX)?,
        })
    }

    /// A frame with this code object's address and check word, the key under which its name is cached.
    pub fn frame(&self) -> Frame {
        Frame::python(self.address, self.check, 0)
    }

    pub fn name(&self, layout: &Layout, code_type: Option<u64>) -> Result<CodeObject, Reason> {
        let word = |offset: u32| read::<u64>(&self.object, offset as usize).ok_or(Reason::CodeInvalid);
        let parts = Parts([
            (self.address, &self.object),
            (word(names::qualified(layout))?, &self.name),
            (word(layout.code.filename)?, &self.file),
            (word(layout.code.linetable)?, &self.table),
        ]);
        let code = names::read_code(&parts, self.address, self.check, layout, code_type, LongTables::LeaveOut)?;
        if code.leaves_out_lines() { Err(Reason::LineUnknown) } else { Ok(code) }
    }
}

/// Process memory limited to the copied ranges; any other read fails with `EFAULT`.
struct Parts<'a>([(u64, &'a [u8]); 4]);

impl Memory for Parts<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let held = |(start, bytes): &(u64, &[u8])| {
            let from = usize::try_from(address.checked_sub(*start)?).ok()?;
            into.copy_from_slice(bytes.get(from..from.checked_add(into.len())?)?);
            Some(())
        };
        let unknown = || io::Error::from_raw_os_error(libc::EFAULT);
        self.0.iter().find_map(held).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use std::iter::repeat_n;

    use pyobs_abi::process::Check;
    use pyobs_abi::record::CODE_COPY;

    use super::*;
    use crate::cpython::offsets::layout_for;
    use crate::cpython::version::Version;

    const CODE: u64 = 0x1000;
    const NAME: u64 = 0x2000;
    const FILE: u64 = 0x3000;
    const TABLE: u64 = 0x4000;

    fn text(text: &str) -> Vec<u8> {
        // PyASCIIObject of 3.12: `state` is kind 1, compact and ASCII.
        let words = [1, 0x77, text.len() as u64, 99, 0b110_0100];
        words.iter().flat_map(|word: &u64| word.to_ne_bytes()).chain(text.bytes()).chain(repeat_n(0, 16)).collect()
    }

    fn record() -> Vec<u8> {
        let mut object = vec![0; 144];
        let words = [(8, 0x88), (64, 42 << 32), (112, FILE), (120, NAME), (128, NAME), (136, TABLE)];
        for (at, word) in words {
            object[at..at + 8].copy_from_slice(&u64::to_ne_bytes(word));
        }
        let table: Vec<u8> =
            [1, 0x78, 3, 0].iter().flat_map(|word: &u64| word.to_ne_bytes()).chain([0x80 | 11 << 3, 0, 1]).collect();
        let parts =
            [(OBJECT_AT, object), (NAME_AT, text("Class.method")), (FILE_AT, text("/srv/app.py")), (TABLE_AT, table)];
        // From the word with the first line to the line table.
        let words = [42 << 32, 0, 0, 0, 0, 0, FILE, NAME, NAME, TABLE];
        let check = words.into_iter().fold(Check::default(), Check::add).fold();
        let mut bytes = vec![0; offset_of!(CodeCopy, bytes) + TABLE_AT + parts[3].1.len()];
        let mut put = |at: usize, number: &[u8]| bytes[at..at + number.len()].copy_from_slice(number);
        put(offset_of!(Header, kind), &CODE_COPY.to_ne_bytes());
        put(offset_of!(CodeCopy, address), &CODE.to_ne_bytes());
        put(offset_of!(CodeCopy, check), &check.to_ne_bytes());
        let sizes = [
            offset_of!(CodeCopy, object_size),
            offset_of!(CodeCopy, name_size),
            offset_of!(CodeCopy, file_size),
            offset_of!(CodeCopy, table_size),
        ];
        for ((at, part), size) in parts.iter().zip(sizes) {
            put(size, &(part.len() as u32).to_ne_bytes());
            put(offset_of!(CodeCopy, bytes) + at, part);
        }
        bytes
    }

    #[test]
    fn a_copy_has_the_names_and_lines_of_its_code_object() {
        let copy = CopiedCode::parse(&record()).unwrap();
        let layout = layout_for(&Version::new(3, 12, 0), false).unwrap();
        let code = copy.name(layout, Some(0x88)).unwrap();
        assert_eq!((&*code.function, &*code.file, code.first_line), ("Class.method", "/srv/app.py", 42));
        let lines = [-1, 0, 2].map(|lasti| code.line(lasti, &Parts([(0, &[]); 4])));
        assert_eq!(lines, [Some(42), Some(43), None].map(Ok));
        assert_eq!(copy.name(layout, Some(1)), Err(Reason::CodeInvalid));
        assert_eq!(copy.frame().address, CODE);
    }

    #[test]
    fn what_was_not_copied_whole_has_no_names() {
        let whole = record();
        for length in 0..whole.len() {
            assert_eq!(CopiedCode::parse(&whole[..length]), None, "{length} bytes");
        }
        let mut huge = whole.clone();
        let at = offset_of!(CodeCopy, name_size);
        huge[at..at + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(CopiedCode::parse(&huge), None);
        let mut other = whole;
        let at = offset_of!(CodeCopy, check);
        other[at] ^= 1;
        let layout = layout_for(&Version::new(3, 12, 0), false).unwrap();
        assert_eq!(CopiedCode::parse(&other).unwrap().name(layout, None), Err(Reason::CodeChanged));
    }
}
