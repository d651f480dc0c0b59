//! Names and lines of Python frames.

use std::sync::Arc;

use foldhash::HashMap;
use pyobs_abi::stack::Frame as Raw;
use pyobs_model::Frame;

use crate::cpython::attached::Attached;
use crate::cpython::names::{CodeObject, LongTables, read_code};
use crate::memory::Memory;

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
