//! Lines of the programs that are watched, as far as they can be read.

use std::collections::BTreeMap;

use pyobs_model::{FrameId, Model, ProcessRef};

use crate::SourceLine;

/// More are forgotten, and read again.
const KNOWN_MAX: usize = 4096;

pub(crate) struct Sources {
    read: SourceLine,
    known: BTreeMap<(ProcessRef, FrameId), Option<String>>,
}

impl Sources {
    pub(crate) fn new(read: SourceLine) -> Self {
        Self { read, known: BTreeMap::new() }
    }

    /// Reads the line of a frame, unless that was tried before.
    pub(crate) fn read(&mut self, model: &Model, process: ProcessRef, frame: FrameId) -> Option<&str> {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let read = || {
            let (process, frame) = (model.process(process)?, model.frame(frame)?);
            (self.read)(process.process.pid, frame.file.as_deref()?, frame.line?)
        };
        self.known.entry((process, frame)).or_insert_with(read).as_deref()
    }

    /// What was read before.
    pub(crate) fn known(&self, process: ProcessRef, frame: FrameId) -> Option<&str> {
        self.known.get(&(process, frame)).and_then(Option::as_deref)
    }
}
