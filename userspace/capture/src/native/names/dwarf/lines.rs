//! The lines of a unit, by address.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{DebugLine, DebugLineOffset, IncompleteLineProgram, LineInstruction, LineRow, LittleEndian};

use super::reader::{Header, Reader, Root, Slice};

/// The longest line program, and the longest list of files in one. The latter takes many times that in memory.
const PROGRAM_MAX: u64 = 8 << 20;
const HEADER_MAX: u64 = 256 << 10;
const ROWS_MAX: usize = 1 << 18;
/// Sequences before an address that are looked at for one that reaches as far.
const LOOK_BACK: usize = 4;
/// Names of files are cut behind so many bytes.
const PATH_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Row {
    /// From the start of the sequence on.
    offset: u32,
    line: u32,
    file: u32,
}

/// Rows for addresses without a gap.
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

/// A line of a file; `None` where the compiler does not tell.
pub type Place = (Option<Arc<str>>, Option<u32>);

impl Lines {
    /// Reads a unit's lines, and the names of the files that they or `called` are in.
    pub fn read(reader: &Reader<'_>, root: &Root, header: &Header, called: impl Iterator<Item = u32>) -> Option<Self> {
        let offset = root.line_program?;
        let bytes = program(reader, offset)?;
        let address_size = header.encoding.address_size;
        let mut program =
            DebugLine::new(&bytes, LittleEndian).program(DebugLineOffset(0), address_size, None, None).ok()?;
        let mut lines = Self::default();
        // A broken end leaves what was read before it.
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
        // The linker left this code out.
        let mut is_gone = false;
        while let Some(instruction) = instructions.next_instruction(program.header())? {
            match instruction {
                LineInstruction::SetAddress(address) => {
                    is_gone = address == 0 || address < row.address() || address >= u64::MAX - 1;
                }
                // It would grow the list of files without a bound; no compiler writes it.
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
            // Rows differ also in what is not asked for: columns, views, statements.
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

    /// Bytes that this takes in memory, about.
    pub fn bytes(&self) -> usize {
        self.sequences.len() * size_of::<Sequence>()
            + self.rows.len() * size_of::<Row>()
            + self.files.values().map(|path| path.len() + 64).sum::<usize>()
    }
}

/// The bytes of a line program, if its sizes are sensible.
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

/// The path of a file as the compiler was told it.
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
