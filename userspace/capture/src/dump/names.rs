//! Names, lines and source text of Python frames.

use std::sync::Arc;

use foldhash::HashMap;
use pyobs_abi::stack::Frame as Raw;
use pyobs_model::Frame;
use pyobs_model::dump::DumpFrame;
use pyobs_model::report::FrameOut;

use crate::cpython::attached::Attached;
use crate::cpython::names::{CodeObject, LongTables, read_code};
use crate::files::read_text;
use crate::machine::living_thread;
use crate::memory::Memory;

/// Larger source files are not read.
const SOURCE_MAX: u64 = 4 << 20;
/// Files whose text is kept.
const FILES_MAX: usize = 1024;
/// Characters of a source line.
const LINE_MAX: usize = 200;

/// What stands for code that cannot be read.
const UNREADABLE: &str = "<unreadable>";

/// The code objects of a process.
#[derive(Default)]
pub struct Codes {
    by_address: HashMap<u64, Option<CodeObject>>,
}

impl Codes {
    /// `None` for a frame of the interpreter's own.
    pub fn frame(&mut self, memory: &impl Memory, python: &Attached, raw: Raw) -> Option<Frame> {
        let code = self.by_address.entry(raw.address).or_insert_with(|| {
            let tables = LongTables::Read;
            read_code(memory, raw.address, 0, &python.layout, python.code_type, tables).ok()
        });
        let Some(code) = code else {
            return Some(Frame::python(Arc::from(UNREADABLE), Arc::from(UNREADABLE), None, None));
        };
        if code.is_interpreters() {
            return None;
        }
        let line = raw.offset().and_then(|offset| code.line(offset, memory).ok().flatten());
        Some(Frame::python(Arc::clone(&code.function), Arc::clone(&code.file), line, Some(code.first_line)))
    }
}

/// The text of source files, as the process sees them.
#[derive(Default)]
pub struct Sources {
    texts: HashMap<Arc<str>, Option<Vec<String>>>,
}

impl Sources {
    pub fn with_source(&mut self, pid: u32, frame: &Frame) -> DumpFrame {
        let source = frame.file.as_ref().zip(frame.line).and_then(|(file, line)| self.line(pid, file, line));
        DumpFrame { frame: FrameOut::from(frame), source }
    }

    fn line(&mut self, pid: u32, file: &Arc<str>, line: u32) -> Option<String> {
        if self.texts.len() >= FILES_MAX && !self.texts.contains_key(file) {
            return None;
        }
        let text = self.texts.entry(Arc::clone(file)).or_insert_with(|| text(pid, file));
        let line = text.as_ref()?.get(line.checked_sub(1)? as usize)?.trim();
        (!line.is_empty()).then(|| line.chars().take(LINE_MAX).collect())
    }
}

/// The lines of a file. Its name comes from the process and may be anything.
fn text(pid: u32, file: &str) -> Option<Vec<String>> {
    let pid = living_thread(pid);
    let path = match file.strip_prefix('/') {
        Some(below) => format!("/proc/{pid}/root/{below}"),
        None if file.starts_with('<') => return None,
        None => format!("/proc/{pid}/cwd/{file}"),
    };
    let bytes = read_text(path.as_ref(), SOURCE_MAX)?;
    Some(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}
