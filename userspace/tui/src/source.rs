//! A cache of the watched programs' source lines.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pyobs_model::{FrameId, Model, ProcessRef};

use crate::SourceLine;

/// The most lines that are cached. When the cache is full, it is cleared.
const KNOWN_MAX: usize = 4096;

pub(crate) struct Sources {
    read: SourceLine,
    known: RefCell<BTreeMap<(ProcessRef, FrameId), Option<String>>>,
}

impl Sources {
    pub(crate) fn new(read: SourceLine) -> Self {
        Self { read, known: RefCell::default() }
    }

    /// The line of a frame. It is read only once, even if that fails.
    pub(crate) fn read(&self, model: &Model, process: ProcessRef, frame: FrameId) -> Option<String> {
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        let read = || {
            let (process, frame) = (model.process(process)?, model.frame(frame)?);
            (self.read)(process.process.pid, frame.file.as_deref()?, frame.line?)
        };
        known.entry((process, frame)).or_insert_with(read).clone()
    }

    /// The line of a frame, if it has been read.
    pub(crate) fn known(&self, process: ProcessRef, frame: FrameId) -> Option<String> {
        self.known.borrow().get(&(process, frame)).cloned().flatten()
    }
}
