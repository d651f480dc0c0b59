//! The interpreters that a process maps, and which of them runs.

use std::io;
use std::sync::Arc;

use super::attached::{self, Attachment, NotAttached};
use crate::files::{ElfInterpreter, FileFacts, FileId, Files, Refusal};
use crate::libc_layout::LibcLayout;
use crate::memory::ProcessMemory;
use crate::process_maps::{Mapping, Mappings};

/// The most interpreter mappings checked per process.
const INTERPRETERS_MAX: usize = 16;

/// Attaches to a process's interpreter without a file cache. Returns `None` if the process maps no CPython.
pub fn attach_to(pid: u32) -> io::Result<Option<Result<Attachment, NotAttached>>> {
    let (mappings, mut files) = (Mappings::of(pid)?, Files::default());
    let mapped = Mapped::of(pid, &mappings, &mut files);
    Ok(match mapped {
        Ok(mapped) => mapped.attach(),
        Err((_, refusal)) => Some(Err(NotAttached::Never(refusal.reason))),
    })
}

/// A mapping with an interpreter's code.
struct Found<'a> {
    mapping: &'a Mapping,
    file: FileId,
    facts: Arc<FileFacts>,
}

impl Found<'_> {
    fn interpreter(&self) -> Option<&ElfInterpreter> {
        self.facts.interpreter.as_ref()
    }

    /// Orders mappings: not loaded, loaded but not started, running.
    fn rank(&self, memory: &ProcessMemory) -> Option<bool> {
        let interpreter = self.interpreter().filter(|it| it.is_loaded_at(self.mapping, memory))?;
        Some(interpreter.is_started(self.mapping, memory))
    }
}

/// What the files that a process maps say about CPython.
pub struct Mapped<'a> {
    pid: u32,
    found: Vec<Found<'a>>,
    pub libc: Option<LibcLayout>,
}

impl<'a> Mapped<'a> {
    /// Inspects the mapped files. Fails on the first unsupported interpreter, with its file name.
    pub fn of(pid: u32, mappings: &'a Mappings, files: &mut Files) -> Result<Self, (&'a str, Refusal)> {
        let mut mapped = Self { pid, found: Vec::new(), libc: None };
        for mapping in mappings.iter() {
            let Some(file) = mapping.file else { continue };
            // The file is gone with its process, or is on a file system that root may not read.
            let Ok(facts) = files.facts(pid, mapping) else { continue };
            if mapped.libc.is_none() {
                mapped.libc = facts.libc;
            }
            if let Some(refusal) = &facts.refused {
                return Err((&mapping.name, refusal.clone()));
            }
            if facts.interpreter.is_some() && mapped.found.len() < INTERPRETERS_MAX {
                mapped.found.push(Found { mapping, file, facts });
            }
        }
        Ok(mapped)
    }

    /// Attaches to the interpreter that is running. Returns `None` if the process maps no CPython.
    pub fn attach(&self) -> Option<Result<Attachment, NotAttached>> {
        let chosen = self.chosen()?;
        let interpreter = chosen.interpreter()?;
        Some(attached::attach(self.pid, chosen.file, interpreter, chosen.mapping, self.libc.as_ref()))
    }

    /// Returns the file names of the other interpreters that are running, and of the one that [`Self::attach`] picks.
    pub fn left_out(&self) -> (Vec<&'a str>, Option<&'a str>) {
        let chosen = self.chosen().map(|chosen| chosen.mapping);
        let memory = ProcessMemory::new(self.pid);
        let is_other = |found: &&Found<'_>| {
            chosen.is_some_and(|chosen| chosen.start != found.mapping.start) && found.rank(&memory) == Some(true)
        };
        let others = self.found.iter().filter(is_other).map(|found| &*found.mapping.name);
        (others.collect(), chosen.map(|chosen| &*chosen.name))
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    fn chosen(&self) -> Option<&Found<'a>> {
        let memory = ProcessMemory::new(self.pid);
        match &self.found[..] {
            [only] => Some(only),
            several => several.iter().rev().max_by_key(|found| found.rank(&memory)),
        }
    }
}
