//! What mapped files are, asked once per file and remembered, so that a program that is not CPython costs a look-up.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use pyobs_model::Reason;

use crate::cpython::find::{self, InspectError, Interpreter};
use crate::elf::Elf;
use crate::libc_layout::{LibcLayout, inspect_libc};
use crate::process_maps::Mapping;

/// A file by device (major, minor) and inode, as memory maps and the kernel's notices give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub device: (u32, u32),
    pub inode: u64,
}

/// What a mapped file is to us.
#[derive(Debug, Default)]
pub struct FileFacts {
    pub interpreter: Option<ElfInterpreter>,
    /// The file holds an interpreter, but none that we can watch.
    pub refused: Option<Reason>,
    pub libc: Option<LibcLayout>,
}

/// An interpreter in a file, and how the file's addresses become those of a process.
#[derive(Debug)]
pub struct ElfInterpreter {
    pub facts: Interpreter,
    /// Link-time address less file offset, of the executable segment.
    delta: u64,
}

impl ElfInterpreter {
    /// What to add to the file's link-time addresses in a process with this executable mapping of it.
    pub fn bias(&self, mapping: &Mapping) -> u64 {
        mapping.start.wrapping_sub(mapping.offset).wrapping_sub(self.delta)
    }
}

/// Larger files are taken for something else: interpreters with all their debug information have some 40 MiB, and what
/// is larger (CUDA's and PyTorch's libraries) would have to be read whole to say no.
const SIZE_MAX: u64 = 192 << 20;
/// Files that are remembered; each takes some 100 bytes.
const FILES_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub struct Files {
    known: HashMap<FileId, Arc<FileFacts>>,
}

impl Files {
    /// Whether a process that maps this file has to be looked at: it holds an interpreter, or is not known yet.
    pub fn may_be_interpreter(&self, id: FileId) -> bool {
        self.known.get(&id).is_none_or(|facts| facts.interpreter.is_some() || facts.refused.is_some())
    }

    /// What the file behind a mapping is. A failure to read it is not remembered: it may pass.
    pub fn facts(&mut self, pid: u32, mapping: &Mapping) -> io::Result<Arc<FileFacts>> {
        let Some(id) = mapping.file else { return Ok(Arc::default()) };
        if let Some(facts) = self.known.get(&id) {
            return Ok(Arc::clone(facts));
        }
        let facts = Arc::new(examine(&read(pid, mapping)?));
        if self.known.len() >= FILES_MAX {
            self.known.clear();
        }
        self.known.insert(id, Arc::clone(&facts));
        Ok(facts)
    }
}

/// The file's bytes, by reading: a memory map of a file that its owner truncates would kill us with SIGBUS.
fn read(pid: u32, mapping: &Mapping) -> io::Result<Vec<u8>> {
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for way in mapping.ways(pid) {
        match File::open(&way) {
            Ok(file) => {
                let metadata = file.metadata()?;
                if !metadata.is_file() || metadata.len() > SIZE_MAX {
                    return Ok(Vec::new());
                }
                let mut bytes = Vec::with_capacity(metadata.len() as usize);
                file.take(SIZE_MAX).read_to_end(&mut bytes)?;
                return Ok(bytes);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn examine(bytes: &[u8]) -> FileFacts {
    let (found, refused) = match find::inspect(bytes) {
        Ok(found) => (found, None),
        // What is no ELF file, or a broken one, is mapped for other ends than running it.
        Err(InspectError::Elf(_)) => (None, None),
        Err(InspectError::NoThreadState(_)) => (None, Some(Reason::ThreadStateUnknown)),
        Err(_) => (None, Some(Reason::InterpreterUnknown)),
    };
    let interpreter = found.and_then(|facts| {
        let delta = Elf::parse(bytes).ok()?.code_delta()?;
        Some(ElfInterpreter { facts, delta })
    });
    FileFacts { interpreter, refused, libc: inspect_libc(bytes).ok().flatten() }
}
