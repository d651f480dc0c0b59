//! What mapped files are, asked once per file and remembered, so that a program that is not CPython costs a look-up.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use pyobs_model::Reason;

use crate::cpython::find::{self, InspectError, Interpreter};
use crate::elf::Elf;
use crate::libc_layout::{LibcLayout, inspect_libc};
use crate::process_maps::Mapping;
use crate::skim::{fill_loaded, skim};

/// A file by device (major, minor) and inode, as memory maps and the kernel's notices give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

/// Larger files are taken for something else: interpreters with all their debug information have some 40 MiB.
const SIZE_MAX: u64 = 1 << 30;
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
        let facts = Arc::new(look(pid, mapping)?);
        if self.known.len() >= FILES_MAX {
            self.known.clear();
        }
        self.known.insert(id, Arc::clone(&facts));
        Ok(facts)
    }
}

/// Opens the file behind a mapping, and says how large it is; `None` for what is no regular file.
pub fn open(pid: u32, mapping: &Mapping) -> io::Result<Option<(File, u64)>> {
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for way in mapping.ways(pid) {
        // A device's file may block or act when it is opened; what is mapped and no regular file is no library.
        match File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(&way) {
            Ok(file) => {
                let metadata = file.metadata()?;
                return Ok(metadata.is_file().then_some((file, metadata.len())));
            }
            Err(error) => failure = error,
        }
    }
    if failure.kind() == io::ErrorKind::NotFound && mapping.is_deleted() {
        failure = io::Error::other("it was deleted or replaced on disk, and the kernel does not open what is mapped");
    }
    Err(failure)
}

/// Says what a mapped file is. It is read, not mapped: a memory map of a file that its owner truncates would kill us
/// with SIGBUS.
fn look(pid: u32, mapping: &Mapping) -> io::Result<FileFacts> {
    let Some((file, size)) = open(pid, mapping)? else { return Ok(FileFacts::default()) };
    if size > SIZE_MAX {
        return Ok(FileFacts::default());
    }
    let Some(skimmed) = skim(&file, size).filter(|bytes| is_interesting(bytes)) else {
        return Ok(FileFacts::default());
    };
    Ok(fill_loaded(&file, skimmed).map_or_else(FileFacts::default, |bytes| examine(&bytes)))
}

/// Whether a file of which only the symbols' names were read deserves to be read whole.
fn is_interesting(bytes: &[u8]) -> bool {
    Elf::parse(bytes).is_ok_and(|elf| {
        find::may_be_interpreter(&elf)
            || elf.exported("pthread_getspecific").is_some()
            || elf.exported("_thread_db_pthread_specific").is_some()
    })
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
