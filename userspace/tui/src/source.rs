//! A cache of the watched programs' source lines.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pyobs_model::{FrameId, Model, ProcessRef};

use crate::SourceLine;

/// The most lines that are cached. When the cache is full, it is cleared.
const CACHED_MAX: usize = 4096;

pub(crate) struct Sources {
    read: SourceLine,
    cached: RefCell<BTreeMap<(ProcessRef, FrameId), Option<String>>>,
}

impl Sources {
    pub(crate) fn new(read: SourceLine) -> Self {
        Self { read, cached: RefCell::default() }
    }

    /// The line of a frame. It is read only once, even if that fails.
    pub(crate) fn read(&self, model: &Model, process: ProcessRef, frame: FrameId) -> Option<String> {
        let mut cached = self.cached.borrow_mut();
        if cached.len() >= CACHED_MAX {
            cached.clear();
        }
        let read = || {
            let (process, frame) = (model.process(process)?, model.frame(frame)?);
            (self.read)(process.process.pid, frame.file.as_deref()?, frame.line?)
        };
        cached.entry((process, frame)).or_insert_with(read).clone()
    }

    /// The line of a frame, if it has been read.
    pub(crate) fn cached(&self, process: ProcessRef, frame: FrameId) -> Option<String> {
        self.cached.borrow().get(&(process, frame)).cloned().flatten()
    }
}
