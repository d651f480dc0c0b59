//! Reads a code object's function name, file, first line and line table from a process that keeps running.
//!
//! The kernel side saw an address, and user space reads it some milliseconds later. By then the code object
//! may have been freed and its memory reused, so that the name would be wrong. There are three safeguards:
//! the kernel's check word must match what was read, the object must still be a code object, and its fields
//! are read again after everything they point to was copied. A read that fails these has a [`Reason`] and no
//! name.
//!
//! All of it is hostile input. Every length is bounded before it is used. Text is decoded but not escaped:
//! code that shows it must escape control characters, escape sequences and markup.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use pyobs_abi::code::OBJECT_MAX;
use pyobs_abi::process::{Check, Tail};
use pyobs_model::Reason;

use super::lines::{Format, LineTable};
use super::long_table::{LONG_MAX, LongTable};
use super::offsets::{Layout, Unicode};
use crate::memory::{Memory, is_gone};

/// The eight bytes that contain `co_firstlineno`.
fn line_word(layout: &Layout) -> u32 {
    layout.code.firstlineno & !7
}

/// The offset of `co_version` from 3.12 on, if the check word covers it: the sixth `int` after `co_firstlineno`
/// (`_PyCode_DEF` in <https://github.com/python/cpython/blob/v3.12.0/Include/cpython/code.h>).
pub fn version(layout: &Layout) -> Option<u32> {
    let offset = layout.code.firstlineno.checked_add(24)?;
    (!checks_texts(layout) && check_words(layout).contains(&(offset & !7))).then_some(offset)
}

/// The range of a code object's words that go into its check word. CPython later changes nothing between the
/// first and the last (`_PyCode_DEF` in
/// <https://github.com/python/cpython/blob/v3.12.0/Include/cpython/code.h>). From 3.12 on, one of them is
/// `co_version`.
pub fn check_words(layout: &Layout) -> RangeInclusive<u32> {
    let code = &layout.code;
    let words = [line_word(layout), code.name, qualified(layout), code.filename, code.linetable];
    let first = words.into_iter().min().unwrap_or_default();
    first..=words.into_iter().max().unwrap_or_default()
}

/// Whether the texts of the name and the file go into the check word too. From 3.12 on each code object has a
/// unique version (`init_code` in <https://github.com/python/cpython/blob/v3.12.0/Objects/codeobject.c>);
/// before, all words of an object can equal those of its predecessor.
pub fn checks_texts(layout: &Layout) -> bool {
    layout.version < [3, 12]
}

/// In characters; longer names are truncated, because they cost memory as long as their process lives.
const FUNCTION_LIMIT: usize = 512;
const FILE_LIMIT: usize = 1024;
/// In bytes; larger line tables are not kept. CPython 3.12 writes about 6.3 bytes per line
/// (tests/workloads/long_lines.py).
const LINE_TABLE_LIMIT: u64 = 16 << 10;
/// All fields that we read are below this offset; the bound is for layouts that come from a process.
const OBJECT_LIMIT: u32 = 1024;

/// The names of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeObject {
    /// The qualified name from 3.11 on, the bare name before.
    pub function: Arc<str>,
    pub file: Arc<str>,
    pub first_line: u32,
    /// `co_flags`; 0 if unknown.
    flags: u32,
    lines: Lines,
}

/// `CO_COROUTINE` and `CO_ITERABLE_COROUTINE`
/// (<https://github.com/python/cpython/blob/v3.14.0/Include/cpython/code.h>, the same since 3.6).
const COROUTINE: u32 = 0x80 | 0x100;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Lines {
    /// Empty for a code object of one line, up to 3.9.
    Short(LineTable),
    Long(LongTable),
    /// The size of a table that was not read, in bytes.
    NotRead(u64),
}

/// What to do with a line table too large to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongTables {
    /// Read the whole table once.
    Read,
    LeaveOut,
}

impl CodeObject {
    /// The line of the instruction at `lasti` bytes from the start of the bytecode. A frame that has not
    /// started yet has a negative offset and is at its first line.
    ///
    /// - up to 3.9, `f_lasti` is this offset; in 3.10 it counts code units, so twice `f_lasti`;
    /// - in 3.11 and 3.12 it is `prev_instr - co_code_adaptive`, from 3.13 on `instr_ptr - co_code_adaptive`
    ///   (in free-threaded builds minus the thread's own copy of the bytecode), for the running frame and its
    ///   callers alike.
    ///
    /// `memory` is that of the code object's process. Fails with [`Reason::ProcessGone`] if that has ended, and with
    /// [`Reason::LineUnknown`] if the table was not read or no longer exists.
    pub fn line(&self, lasti: i32, memory: &impl Memory) -> Result<Option<u32>, Reason> {
        let Ok(address) = u32::try_from(lasti) else { return Ok(Some(self.first_line)) };
        match &self.lines {
            Lines::Short(table) => Ok(table.line(address)),
            Lines::Long(table) => table.line(memory, address).map_err(|error| match unreadable(&error) {
                Reason::ProcessGone => Reason::ProcessGone,
                _ => Reason::LineUnknown,
            }),
            Lines::NotRead(_) => Err(Reason::LineUnknown),
        }
    }

    /// Whether the interpreter itself runs it to call the `__init__` of a new object (`_Py_InitCleanup` in
    /// <https://github.com/python/cpython/blob/v3.13.0/Python/specialize.c>). Tracebacks leave it out.
    pub fn is_interpreters(&self) -> bool {
        const INIT: &str = "__init__";
        &*self.function == INIT && &*self.file == INIT && self.first_line == 0
    }

    /// Whether the line table could be read but was not.
    pub fn leaves_out_lines(&self) -> bool {
        matches!(self.lines, Lines::NotRead(size) if size <= LONG_MAX)
    }

    /// Whether calling its function makes a coroutine.
    pub fn is_coroutine(&self) -> bool {
        self.flags & COROUTINE != 0
    }

    pub fn has_long_table(&self) -> bool {
        matches!(self.lines, Lines::Long(_))
    }
}

/// Reads the code object at `address`. `check` is the kernel's check word, or 0; `code_type` is the address
/// of `PyCode_Type` in that process, if known.
pub fn read_code(
    memory: &impl Memory,
    address: u64,
    check: u32,
    layout: &Layout,
    code_type: Option<u64>,
    long_tables: LongTables,
) -> Result<CodeObject, Reason> {
    let mut window = window(&fields(layout))?;
    memory.read(address, &mut window).map_err(|error| unreadable(&error))?;
    let code = Fields::of(&window, layout);
    if code_type.is_some_and(|code_type| code_type != code.object_type) {
        return Err(Reason::CodeInvalid);
    }
    let has_texts = checks_texts(layout);
    let is_other = |seen: Check| check != 0 && check != seen.fold();
    if !has_texts && is_other(code.check) {
        return Err(Reason::CodeChanged);
    }
    let first_line = u32::try_from(code.first_line).map_err(|_| Reason::CodeInvalid)?;

    // Three reads in all: the object, the headers of the objects it points to, and their contents.
    let unicode = &layout.unicode;
    let mut name_head = self::window(&[layout.object.type_, unicode.length, unicode.state])?;
    let mut file_head = name_head.clone();
    let mut table_size = [0; 8];
    memory
        .read_many(&mut [
            (code.name, &mut name_head),
            (code.file, &mut file_head),
            (code.table.wrapping_add(layout.bytes.length.into()), &mut table_size),
        ])
        .map_err(|error| unreadable(&error))?;
    // Both must be exact `str` objects: a subclass is never compact
    // (https://github.com/python/cpython/blob/v3.13.0/Include/cpython/unicodeobject.h).
    if word(&name_head, layout.object.type_) != word(&file_head, layout.object.type_) {
        return Err(Reason::NameInvalid);
    }
    let name = Text::of(code.name, &name_head, layout, FUNCTION_LIMIT, Keep::Head)?;
    let file = Text::of(code.file, &file_head, layout, FILE_LIMIT, Keep::Tail)?;
    // As unsigned, a negative size is too large as well.
    let table_size = u64::from_ne_bytes(table_size);
    let table_start = code.table.wrapping_add(layout.bytes.data.into());
    let format = Format::of(layout.version[1]);
    let long_table = if long_tables == LongTables::Read && (LINE_TABLE_LIMIT + 1..=LONG_MAX).contains(&table_size) {
        let table = LongTable::read(memory, table_start, table_size, format, first_line);
        Some(table.map_err(|error| unreadable(&error))?)
    } else {
        None
    };

    let mut name_bytes = vec![0; name.size()];
    let mut file_bytes = vec![0; file.size()];
    let (mut name_tail, mut file_tail) = (vec![0; name.tail_size(has_texts)], vec![0; file.tail_size(has_texts)]);
    let mut table = vec![0; if table_size <= LINE_TABLE_LIMIT { table_size as usize } else { 0 }];
    memory
        .read_many(&mut [
            (name.start, &mut name_bytes),
            (file.start, &mut file_bytes),
            (name.tail_start, &mut name_tail),
            (file.tail_start, &mut file_tail),
            (table_start, &mut table),
            (address, &mut window),
        ])
        .map_err(|error| unreadable(&error))?;
    let has_changed = has_texts && is_other(file.add_to(name.add_to(code.check, &name_tail), &file_tail));
    if has_changed || Fields::of(&window, layout) != code {
        return Err(Reason::CodeChanged);
    }

    let lines = match long_table {
        Some(table) => Lines::Long(table),
        None if table_size > LINE_TABLE_LIMIT => Lines::NotRead(table_size),
        None => Lines::Short(LineTable { format, first_line, bytes: table.into() }),
    };
    Ok(CodeObject {
        function: name.decode(&name_bytes),
        file: file.decode(&file_bytes),
        first_line,
        flags: code.flags,
        lines,
    })
}

fn unreadable(error: &io::Error) -> Reason {
    match error.kind() {
        _ if is_gone(error) => Reason::ProcessGone,
        io::ErrorKind::TimedOut => Reason::ReadHeldUp,
        _ => Reason::CodeUnreadable,
    }
}

/// Offsets of the words read from a code object.
fn fields(layout: &Layout) -> [u32; 6] {
    let code = &layout.code;
    [layout.object.type_, code.name, qualified(layout), code.filename, code.linetable, line_word(layout)]
}

/// How much of a code object the kernel side copies; `None` if it is too large.
pub fn object_size(layout: &Layout) -> Option<u32> {
    let fields = fields(layout);
    let size = fields.into_iter().max()? + 8;
    (size <= OBJECT_MAX as u32 && fields.iter().all(|offset| offset % 8 == 0)).then_some(size)
}

/// A buffer for an object up to the last of these words.
fn window(offsets: &[u32]) -> Result<Vec<u8>, Reason> {
    let last = offsets.iter().copied().max().unwrap_or(0);
    if last > OBJECT_LIMIT { Err(Reason::InterpreterUnknown) } else { Ok(vec![0; last as usize + 8]) }
}

/// The word at `offset` of a buffer made for it.
fn word(window: &[u8], offset: u32) -> u64 {
    let bytes = window.get(offset as usize..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
    u64::from_ne_bytes(bytes)
}

/// The best name available: before 3.11 a code object does not record the class its function is in.
pub fn qualified(layout: &Layout) -> u32 {
    layout.code.qualname.unwrap_or(layout.code.name)
}

/// The fields of a PyCodeObject that we need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    object_type: u64,
    first_line: i32,
    flags: u32,
    name: u64,
    file: u64,
    table: u64,
    /// Without the texts.
    check: Check,
}

impl Fields {
    fn of(window: &[u8], layout: &Layout) -> Self {
        let words = check_words(layout).step_by(8).map(|offset| word(window, offset));
        let int = |offset: u32| (word(window, offset & !7) >> (offset % 8 * 8)) as u32;
        Self {
            object_type: word(window, layout.object.type_),
            first_line: int(layout.code.firstlineno) as i32,
            flags: layout.code.flags.map_or(0, int),
            name: word(window, qualified(layout)),
            file: word(window, layout.code.filename),
            table: word(window, layout.code.linetable),
            check: words.fold(Check::default(), Check::add),
        }
    }
}

/// Which end of a long text to keep: the start of a function's name, or the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Head,
    Tail,
}

/// The part of a `str` to read, stored as described in PEP 393.
#[derive(Clone, Copy, Debug)]
struct Text {
    start: u64,
    characters: usize,
    /// Bytes per character: 1, 2 or 4.
    width: usize,
    truncated: Option<Keep>,
    /// Of the whole text: its length in characters, and the end that goes into a check word.
    length: u64,
    tail_start: u64,
    tail: Tail,
}

impl Text {
    fn of(address: u64, head: &[u8], layout: &Layout, limit: usize, keep: Keep) -> Result<Self, Reason> {
        let unicode = &layout.unicode;
        let state = State::of(word(head, unicode.state) as u32, unicode, layout.version[1]);
        let data = if state.ascii { unicode.ascii_data } else { unicode.compact_data };
        let width = match state.kind {
            1 => 1,
            2 | 4 if !state.ascii => state.kind,
            _ => return Err(Reason::NameInvalid),
        };
        let length = word(head, unicode.length);
        if !state.compact || length > LENGTH_LIMIT {
            return Err(Reason::NameInvalid);
        }
        let truncated = (length > limit as u64).then_some(keep);
        // The ellipsis takes one place.
        let characters = if truncated.is_some() { limit - 1 } else { length as usize };
        let skipped = if truncated == Some(Keep::Tail) { length - characters as u64 } else { 0 };
        let start = address.wrapping_add(data.into()).wrapping_add(skipped * u64::from(width));
        let tail = Tail::of(length, width.into(), data);
        let tail_start = address.wrapping_add(tail.offset);
        Ok(Self { start, characters, width: width as usize, truncated, length, tail_start, tail })
    }

    /// Bytes of the end that goes into a check word; 0 if texts do not.
    fn tail_size(&self, has_texts: bool) -> usize {
        if has_texts { self.tail.size as usize } else { 0 }
    }

    fn add_to(&self, check: Check, tail: &[u8]) -> Check {
        let words = tail.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(word)
        });
        words.fold(check.add(self.length), Check::add)
    }

    fn size(&self) -> usize {
        self.characters * self.width
    }

    /// Surrogates are never paired here (`os.fsdecode` creates them from bytes that are not UTF-8), so each
    /// is replaced. NUL is replaced too, because it ends strings early in many places that text goes to.
    fn decode(&self, bytes: &[u8]) -> Arc<str> {
        let code_points = bytes.chunks_exact(self.width).map(|bytes| match *bytes {
            [a] => u32::from(a),
            [a, b] => u32::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
            _ => 0,
        });
        let characters = code_points.map(|code| match char::from_u32(code) {
            Some('\0') | None => char::REPLACEMENT_CHARACTER,
            Some(character) => character,
        });
        let mut text = String::with_capacity(bytes.len() + 4);
        if self.truncated == Some(Keep::Tail) {
            text.push('…');
        }
        text.extend(characters);
        if self.truncated == Some(Keep::Head) {
            text.push('…');
        }
        text.into()
    }
}

/// A longer `str` would fill half the address space.
const LENGTH_LIMIT: u64 = 1 << 46;

/// `PyASCIIObject.state`.
struct State {
    kind: u32,
    compact: bool,
    ascii: bool,
}

impl State {
    /// The bits are interned, kind:3, compact:1, ascii:1. Since 3.14 `interned` is two bits or a whole byte,
    /// and some pre-releases had two bytes (CPython gh-128137), which the version does not show. But
    /// `interned` is at most 3 and kind is never 0, so the lowest position with a kind is the right one,
    /// whatever the padding above contains.
    fn of(state: u32, unicode: &Unicode, minor: u8) -> Self {
        let bits = |shift: u8, mask: u32| state.checked_shr(shift.into()).unwrap_or(0) & mask;
        let moved = match bits(unicode.kind_shift, 7) {
            0 if minor >= 14 => [8, 16].into_iter().find(|place| bits(*place, 7) != 0).unwrap_or(unicode.kind_shift),
            _ => unicode.kind_shift,
        };
        let relative = |shift: u8| shift.wrapping_sub(unicode.kind_shift).wrapping_add(moved);
        Self {
            kind: bits(moved, 7),
            compact: bits(relative(unicode.compact_shift), 1) == 1,
            ascii: bits(relative(unicode.ascii_shift), 1) == 1,
        }
    }
}

#[cfg(test)]
mod tests;
