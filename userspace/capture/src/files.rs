//! What mapped files are, asked once per file and remembered, so that a program that is not CPython costs a look-up.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;
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
    pub refused: Option<Refusal>,
    pub libc: Option<LibcLayout>,
}

/// Why an interpreter is not watched.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub reason: Reason,
    /// For the user.
    pub sentence: String,
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

/// For how long a file that is of no interest is taken to be the same. Others are asked each time.
const TRUST: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Files {
    known: HashMap<FileId, Known>,
    /// Files that turned out to be others than they were.
    changed: Vec<FileId>,
}

#[derive(Debug)]
struct Known {
    stamp: Stamp,
    since: Instant,
    facts: Arc<FileFacts>,
}

/// Tells a file from one that was written over it, or that has the inode of one that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    pub fn of(metadata: &Metadata) -> Self {
        Self { size: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

impl Files {
    /// Whether a process that maps this file has to be looked at: it holds an interpreter, or is not known now.
    pub fn may_be_interpreter(&self, id: FileId) -> bool {
        self.known.get(&id).is_none_or(|known| known.facts.is_of_interest() || known.since.elapsed() > TRUST)
    }

    /// What the file behind a mapping is. A failure to read it is not remembered: it may pass.
    pub fn facts(&mut self, pid: u32, mapping: &Mapping) -> io::Result<Arc<FileFacts>> {
        let Some(id) = mapping.file else { return Ok(Arc::default()) };
        let known = self.known.get_mut(&id);
        if let Some(known) =
            known.as_ref().filter(|known| !known.facts.is_of_interest() && known.since.elapsed() <= TRUST)
        {
            return Ok(Arc::clone(&known.facts));
        }
        let stamp = stamp(pid, mapping)?;
        if let Some(known) = known {
            if known.stamp == stamp {
                known.since = Instant::now();
                return Ok(Arc::clone(&known.facts));
            }
            self.changed.push(id);
        }
        let facts = match open(pid, mapping)? {
            Some((file, size)) => Arc::new(look(&file, size)),
            None => Arc::default(),
        };
        if self.known.len() >= FILES_MAX {
            self.known.clear();
        }
        self.known.insert(id, Known { stamp, since: Instant::now(), facts: Arc::clone(&facts) });
        Ok(facts)
    }

    /// Looks at a file that a process is about to map. What cannot be read is left for when it is mapped.
    pub fn look_ahead(&mut self, path: &Path) {
        let Ok(Some((file, metadata))) = open_regular(path) else { return };
        let device = metadata.dev();
        let id = FileId { device: (rustix::fs::major(device), rustix::fs::minor(device)), inode: metadata.ino() };
        let facts = Arc::new(look(&file, metadata.len()));
        self.known.insert(id, Known { stamp: Stamp::of(&metadata), since: Instant::now(), facts });
    }

    /// The files that have changed since the last call: what else was made of them is of the old ones.
    pub fn take_changed(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.changed)
    }
}

impl FileFacts {
    fn is_of_interest(&self) -> bool {
        self.interpreter.is_some() || self.refused.is_some()
    }
}

fn stamp(pid: u32, mapping: &Mapping) -> io::Result<Stamp> {
    let [first, second] = mapping.ways(pid);
    fs::metadata(first).or_else(|_| fs::metadata(second)).map(|metadata| Stamp::of(&metadata))
}

/// Opens the file behind a mapping, and says how large it is; `None` for what is no regular file.
pub fn open(pid: u32, mapping: &Mapping) -> io::Result<Option<(File, u64)>> {
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for way in mapping.ways(pid) {
        match open_regular(&way) {
            Ok(found) => return Ok(found.map(|(file, metadata)| (file, metadata.len()))),
            Err(error) => failure = error,
        }
    }
    if failure.kind() == io::ErrorKind::NotFound && mapping.is_deleted() {
        failure = io::Error::other("it was deleted or replaced on disk, and the kernel does not open what is mapped");
    }
    Err(failure)
}

/// A device's file may block or act when it is opened; what is mapped and no regular file is no library.
fn open_regular(path: &Path) -> io::Result<Option<(File, Metadata)>> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let metadata = file.metadata()?;
    Ok(metadata.is_file().then_some((file, metadata)))
}

/// Says what a file is. It is read, not mapped: a memory map of a file that its owner truncates would kill us with SIGBUS.
fn look(file: &File, size: u64) -> FileFacts {
    if size > SIZE_MAX {
        return FileFacts::default();
    }
    let Some(skimmed) = skim(file, size).filter(|bytes| is_interesting(bytes)) else { return FileFacts::default() };
    fill_loaded(file, skimmed).map_or_else(FileFacts::default, |bytes| examine(&bytes))
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
        Err(error) => {
            let reason = match error {
                InspectError::NoThreadState(_) => Reason::ThreadStateUnknown,
                _ => Reason::InterpreterUnknown,
            };
            (None, Some(Refusal { reason, sentence: error.to_string() }))
        }
    };
    let interpreter = found.and_then(|facts| {
        let delta = Elf::parse(bytes).ok()?.code_delta()?;
        Some(ElfInterpreter { facts, delta })
    });
    FileFacts { interpreter, refused, libc: inspect_libc(bytes).ok().flatten() }
}
