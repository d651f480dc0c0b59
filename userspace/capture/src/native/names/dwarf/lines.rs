//! A unit's lines by address.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{DebugLine, DebugLineOffset, IncompleteLineProgram, LineInstruction, LineRow, LittleEndian};

use super::reader::{Header, Reader, Root, Slice};

/// The longest line program, and its longest header, whose list of files takes many times its size in memory.
const PROGRAM_MAX: u64 = 8 << 20;
const HEADER_MAX: u64 = 256 << 10;
const ROWS_MAX: usize = 1 << 18;
/// Sequences before an address that are checked for one that extends to it.
const LOOK_BACK: usize = 4;
/// Longer file names are truncated.
const PATH_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Row {
    /// Relative to the start of the sequence.
    offset: u32,
    line: u32,
    file: u32,
}

/// Rows for a contiguous range of addresses.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    start: u64,
    length: u32,
    first: u32,
    rows: u32,
}

#[derive(Debug, Default)]
pub struct Lines {
    sequences: Vec<Sequence>,
    rows: Vec<Row>,
    files: HashMap<u32, Arc<str>>,
}

/// A file and a line; `None` if the compiler does not give it.
pub type Place = (Option<Arc<str>>, Option<u32>);

impl Lines {
    /// Reads a unit's lines, and the names of the files that they or `called` refer to.
    pub fn read(reader: &Reader<'_>, root: &Root, header: &Header, called: impl Iterator<Item = u32>) -> Option<Self> {
        let offset = root.line_program?;
        let bytes = program(reader, offset)?;
        let address_size = header.encoding.address_size;
        let mut program =
            DebugLine::new(&bytes, LittleEndian).program(DebugLineOffset(0), address_size, None, None).ok()?;
        let mut lines = Self::default();
        // On a malformed instruction, what was read before it is kept.
        let _ = lines.run(&mut program);
        lines.sequences.sort_unstable_by_key(|sequence| sequence.start);
        lines.sequences.shrink_to_fit();
        lines.rows.shrink_to_fit();
        let mut files: Vec<u32> = lines.rows.iter().map(|row| row.file).chain(called).collect();
        files.sort_unstable();
        files.dedup();
        for file in files {
            if let Some(path) = path(reader, root, &program, file) {
                lines.files.insert(file, path);
            }
        }
        Some(lines)
    }

    fn run(&mut self, program: &mut IncompleteLineProgram<Slice<'_>>) -> gimli::Result<()> {
        let mut instructions = program.header().instructions();
        let mut row = LineRow::new(program.header());
        let mut start = None;
        let mut first = 0;
        // Set if the linker removed this code.
        let mut is_gone = false;
        while let Some(instruction) = instructions.next_instruction(program.header())? {
            match instruction {
                LineInstruction::SetAddress(address) => {
                    is_gone = address == 0 || address < row.address() || address >= u64::MAX - 1;
                }
                // It would let the file list grow without bound, and no compiler emits it.
                LineInstruction::DefineFile(_) => continue,
                _ => {}
            }
            if !row.execute(instruction, program)? {
                continue;
            }
            if row.end_sequence() {
                if let Some(start) = start.take() {
                    self.end(start, row.address(), first);
                }
                first = self.rows.len();
                is_gone = false;
            } else if !is_gone {
                let start = *start.get_or_insert(row.address());
                self.add(start, first, &row);
            }
            if self.rows.len() >= ROWS_MAX {
                break;
            }
            row.reset(program.header());
        }
        self.rows.truncate(first);
        Ok(())
    }

    fn add(&mut self, start: u64, first: usize, row: &LineRow) {
        let Ok(offset) = u32::try_from(row.address().saturating_sub(start)) else { return };
        let row = Row {
            offset,
            line: row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0),
            file: u32::try_from(row.file_index()).unwrap_or(u32::MAX),
        };
        match self.rows.get_mut(first..).unwrap_or_default().last_mut() {
            // The last row for an address counts.
            Some(last) if last.offset == row.offset => *last = row,
            // Rows may differ only in details not needed here: columns, views, statements.
            Some(last) if (last.line, last.file) == (row.line, row.file) => {}
            _ => self.rows.push(row),
        }
    }

    fn end(&mut self, start: u64, end: u64, first: usize) {
        let length = end.checked_sub(start).and_then(|length| u32::try_from(length).ok());
        if let Some(length) = length.filter(|length| *length > 0) {
            let rows = (self.rows.len() - first) as u32;
            self.sequences.push(Sequence { start, length, first: first as u32, rows });
        } else {
            self.rows.truncate(first);
        }
    }

    pub fn find(&self, address: u64) -> Option<Place> {
        let after = self.sequences.partition_point(|sequence| sequence.start <= address);
        let mut before = self.sequences[..after].iter().rev().take(LOOK_BACK);
        let sequence = before.find(|sequence| address - sequence.start < u64::from(sequence.length))?;
        let offset = (address - sequence.start) as u32;
        let first = sequence.first as usize;
        let rows = self.rows.get(first..first + sequence.rows as usize)?;
        let row = rows[..rows.partition_point(|row| row.offset <= offset)].last()?;
        Some(self.place(row.file, row.line))
    }

    pub fn place(&self, file: u32, line: u32) -> Place {
        (self.files.get(&file).cloned(), (line != 0).then_some(line))
    }

    /// Approximate size in memory in bytes.
    pub fn bytes(&self) -> usize {
        self.sequences.len() * size_of::<Sequence>()
            + self.rows.len() * size_of::<Row>()
            + self.files.values().map(|path| path.len() + 64).sum::<usize>()
    }
}

/// The bytes of a line program, if its sizes are plausible.
fn program(reader: &Reader<'_>, offset: u64) -> Option<Vec<u8>> {
    let section = reader.parts.line;
    let head = section.read(reader.file, offset, 24)?;
    let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let wide = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let is_wide = word(0)? == u32::MAX;
    let (length, after) = if is_wide { (wide(4)?, 12) } else { (u64::from(word(0)?), 4) };
    let version = u16::from_le_bytes(head.get(after..after + 2)?.try_into().ok()?);
    let at = after + if version >= 5 { 4 } else { 2 };
    let files = if is_wide { wide(at)? } else { u64::from(word(at)?) };
    if length > PROGRAM_MAX || files > HEADER_MAX {
        return None;
    }
    section.read(reader.file, offset, usize::try_from(length).ok()? + after)
}

/// A file's path as it was passed to the compiler.
fn path(reader: &Reader<'_>, root: &Root, program: &IncompleteLineProgram<Slice<'_>>, file: u32) -> Option<Arc<str>> {
    let header = program.header();
    let text = |value| reader.text(root, header.encoding().format, value);
    let entry = header.file(u64::from(file))?;
    let name = text(entry.path_name())?;
    let folder = entry.directory(header).and_then(text).unwrap_or_default();
    let top = root.directory.as_deref().unwrap_or_default();
    let mut path = String::new();
    for part in [top, &folder, &name] {
        if part.starts_with('/') {
            path.clear();
        } else if !path.is_empty() && !path.ends_with('/') && !part.is_empty() {
            path.push('/');
        }
        path.push_str(part);
    }
    super::super::truncate(&mut path, PATH_MAX);
    Some(Arc::from(path))
}
