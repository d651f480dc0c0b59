//! Facts about mapped files. Each file is inspected once and cached, so that a program other than CPython
//! costs one look-up.

use std::convert::identity;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object::elf;
use pyobs_model::Reason;
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, StatxTimestamp};

use crate::blocking::{self, HeldUp, PATIENCE};
use crate::cache::Cache;
use crate::cpython::find::{self, InspectError, Interpreter};
use crate::elf::Elf;
use crate::libc_layout::{LibcLayout, inspect_libc};
use crate::memory::{Memory, ProcessMemory};
use crate::prefetch::{fill_loaded, prefetch};
use crate::process_maps::Mapping;

/// A file by device (major, minor) and inode, as in memory maps and the kernel's notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    pub device: (u32, u32),
    pub inode: u64,
}

/// What a mapped file means to us.
#[derive(Debug, Default)]
pub struct FileFacts {
    pub interpreter: Option<ElfInterpreter>,
    /// Set if the file contains an interpreter that we cannot watch.
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

/// An interpreter in a file, and how the file's addresses map to those of a process.
#[derive(Debug)]
pub struct ElfInterpreter {
    pub facts: Interpreter,
    /// Link-time address minus file offset of the executable segment.
    delta: u64,
    /// Link-time address of the file's first byte.
    header: Option<u64>,
}

impl ElfInterpreter {
    /// What to add to the file's link-time addresses in a process with this executable mapping of it.
    pub fn bias(&self, mapping: &Mapping) -> u64 {
        mapping.start.wrapping_sub(mapping.offset).wrapping_sub(self.delta)
    }

    /// Whether the file is loaded at this mapping; a part of its code may just be mapped a second time.
    pub fn is_loaded_at(&self, mapping: &Mapping, memory: &ProcessMemory) -> bool {
        let Some(header) = self.header else { return true };
        let mut start = [0; elf::ELFMAG.len()];
        memory.read(header.wrapping_add(self.bias(mapping)), &mut start).is_ok() && start == elf::ELFMAG
    }

    /// Whether this copy of the interpreter is running: dlmopen(3) can load a second one that is never
    /// started.
    pub fn is_started(&self, mapping: &Mapping, memory: &ProcessMemory) -> bool {
        let Some(code_type) = self.facts.code_type else { return true };
        let flags = memory.read_u64(code_type.wrapping_add(self.bias(mapping)).wrapping_add(TYPE_FLAGS));
        flags.is_ok_and(|flags| flags & TYPE_READY != 0)
    }
}

/// Offset of `tp_flags` in a `PyTypeObject`, the same since 3.0
/// (<https://github.com/python/cpython/blob/v3.13.0/Include/cpython/object.h>), and Py_TPFLAGS_READY
/// (<https://github.com/python/cpython/blob/v3.13.0/Include/object.h>).
const TYPE_FLAGS: u64 = 168;
const TYPE_READY: u64 = 1 << 12;

/// Larger files are not inspected: interpreters with all their debug information have about 40 MiB.
const SIZE_MAX: u64 = 1 << 30;
/// Cached files, of about 100 bytes each; the least recently used are evicted.
const FILES_MAX: usize = 65_536;

/// How long a file without an interpreter is assumed unchanged. Other files are checked each time.
const TRUST: Duration = Duration::from_secs(1);
/// A slow disk reads a file within this time; a file that takes longer does not respond.
const READ_FOR: Duration = Duration::from_millis(1500);

/// Files that did not respond, by device and inode.
static HELD_UP: HeldUp<(u32, u32), u64> = HeldUp::new();

/// A file as it was when it was last checked.
#[derive(Debug)]
struct Known {
    stamp: Stamp,
    checked: Instant,
    /// `None` while it could not be read.
    facts: Option<Arc<FileFacts>>,
}

#[derive(Debug)]
pub struct Files {
    known: Cache<FileId, Known>,
    /// Files that turned out to be others than they were.
    changed: Vec<FileId>,
}

/// Distinguishes a file from one that was written over it, or that reuses its inode. Programs that copy or
/// unpack can set the modification time, but not the time of the inode's last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn as_known(status: &Statx) -> Self {
        let time = |of: StatxTimestamp| (of.tv_sec, of.tv_nsec.into());
        Self { size: status.stx_size, modified: time(status.stx_mtime), changed: time(status.stx_ctime) }
    }
}

impl Default for Files {
    fn default() -> Self {
        Self { known: Cache::new(FILES_MAX), changed: Vec::new() }
    }
}

impl Files {
    /// Whether a process that maps this file has to be examined: the file contains an interpreter, or is not
    /// known at present.
    pub fn may_be_interpreter(&self, id: FileId) -> bool {
        let facts = self.known.peek(&id).and_then(|known| known.facts.as_ref());
        facts.is_none_or(|facts| facts.is_of_interest() || !self.is_trusted(id))
    }

    fn is_trusted(&self, id: FileId) -> bool {
        self.known.peek(&id).is_some_and(|known| known.checked.elapsed() <= TRUST)
    }

    /// Checks whether files that a process has mapped were replaced.
    pub fn check<'a>(&mut self, pid: u32, mappings: impl Iterator<Item = &'a Mapping>) {
        for mapping in mappings {
            if let Some(id) = mapping.file
                && !self.is_trusted(id)
                && let Ok(stamp) = stamp(pid, mapping)
            {
                self.note(id, stamp);
            }
        }
    }

    /// Records a file's stamp, and drops what is known about its predecessor.
    fn note(&mut self, id: FileId, stamp: Stamp) {
        let before = self.known.remove(&id);
        let is_other = before.as_ref().is_some_and(|known| known.stamp != stamp);
        let facts = before.and_then(|known| known.facts).filter(|_| !is_other);
        self.known.insert(id, Known { stamp, checked: Instant::now(), facts });
        if is_other {
            self.changed.push(id);
        }
    }

    /// The facts about the file behind a mapping. Failed reads are not cached, because they may be temporary.
    pub fn facts(&mut self, pid: u32, mapping: &Mapping) -> io::Result<Arc<FileFacts>> {
        let Some(id) = mapping.file else { return Ok(Arc::default()) };
        if self.may_be_interpreter(id) {
            self.note(id, stamp(pid, mapping)?);
        }
        if let Some(facts) = self.known.get(&id).and_then(|known| known.facts.as_ref()) {
            return Ok(Arc::clone(facts));
        }
        let facts = match open(pid, mapping)? {
            Some((file, size)) => Arc::new(read_from(mapping, move || inspect(&file, size))?),
            None => Arc::default(),
        };
        self.learn(id, &facts);
        Ok(facts)
    }

    /// Inspects a file that a process is about to map. If it cannot be read, this is retried when it is
    /// mapped.
    pub fn look_ahead(&mut self, path: &Path) {
        let Ok(Some((file, metadata))) = open_regular(path) else { return };
        let device = metadata.dev();
        let id = FileId { device: (rustix::fs::major(device), rustix::fs::minor(device)), inode: metadata.ino() };
        self.note(id, Stamp::of(&metadata));
        self.learn(id, &Arc::new(inspect(&file, metadata.len())));
    }

    fn learn(&mut self, id: FileId, facts: &Arc<FileFacts>) {
        if let Some(mut known) = self.known.remove(&id) {
            known.facts = Some(Arc::clone(facts));
            self.known.insert(id, known);
        }
    }

    /// The files replaced since the last call. Anything derived from them is out of date.
    pub fn take_changed(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.changed)
    }
}

impl FileFacts {
    fn is_of_interest(&self) -> bool {
        self.interpreter.is_some() || self.refused.is_some()
    }
}

/// What the kernel itself knows about an open or mapped file behind a link in `/proc`: everything for a file
/// in memory or on a disk. A file system that may not respond is not asked; what it said when the file was
/// opened is as recent as the running code.
pub fn status(link: impl rustix::path::Arg) -> rustix::io::Result<Statx> {
    known_of(link, AtFlags::empty())
}

/// Like [`status`], for a link itself.
pub fn link_status(path: impl rustix::path::Arg) -> rustix::io::Result<Statx> {
    known_of(path, AtFlags::SYMLINK_NOFOLLOW)
}

fn known_of(path: impl rustix::path::Arg, how: AtFlags) -> rustix::io::Result<Statx> {
    rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC | how, StatxFlags::BASIC_STATS)
}

fn stamp(pid: u32, mapping: &Mapping) -> io::Result<Stamp> {
    let [mapped, named] = mapping.ways(pid);
    if let Ok(known) = status(mapped) {
        return Ok(Stamp::as_known(&known));
    }
    let metadata = ask(mapping, PATIENCE, move || fs::metadata(named));
    metadata.and_then(identity).map(|metadata| Stamp::of(&metadata))
}

/// Reads mapped contents from an open file.
pub fn read_from<T: Send + 'static>(mapping: &Mapping, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    ask(mapping, READ_FOR, work)
}

fn ask<T: Send + 'static>(
    mapping: &Mapping,
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    match mapping.file {
        Some(id) => HELD_UP.run((id.device, id.inode), u64::eq, patience, work),
        None => blocking::run_for(patience, work),
    }
}

/// Opens the file behind a mapping and returns its size; `None` if it is not a regular file.
pub fn open(pid: u32, mapping: &Mapping) -> io::Result<Option<(File, u64)>> {
    let [first, second] = mapping.ways(pid);
    let opened = ask(mapping, PATIENCE, move || open_regular(&first).or_else(|_| open_regular(&second)));
    let mut failure = match opened.and_then(identity) {
        Ok(found) => return Ok(found.map(|(file, metadata)| (file, metadata.len()))),
        Err(error) => error,
    };
    if failure.kind() == io::ErrorKind::NotFound && mapping.is_deleted() {
        failure = io::Error::other("it was deleted or replaced on disk, and the kernel does not open what is mapped");
    }
    Err(failure)
}

/// Opening a device can block or have side effects. A mapped file that is not regular is not a library.
fn open_regular(path: &Path) -> io::Result<Option<(File, Metadata)>> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let metadata = file.metadata()?;
    Ok(metadata.is_file().then_some((file, metadata)))
}

/// Reads the file behind a mapping, if it has at most `size_max` bytes.
pub fn contents(pid: u32, mapping: &Mapping, size_max: u64) -> Option<Vec<u8>> {
    let (file, size) = open(pid, mapping).ok().flatten()?;
    let read = move || {
        let mut bytes = Vec::new();
        file.take(size_max).read_to_end(&mut bytes).ok().map(|_| bytes)
    };
    (size <= size_max).then(|| read_from(mapping, read).ok().flatten()).flatten()
}

/// Reads a regular file of at most `size_max` bytes. Returns `None` if it is larger or does not respond.
pub fn read_text(path: &Path, size_max: u64) -> Option<Vec<u8>> {
    let path = path.to_owned();
    let read = move || {
        let (file, metadata) = open_regular(&path).ok().flatten()?;
        let mut bytes = Vec::new();
        (metadata.len() <= size_max).then(|| file.take(size_max).read_to_end(&mut bytes).ok())??;
        Some(bytes)
    };
    blocking::run(read).ok().flatten()
}

/// Inspects a file. It is read, not mapped, because truncation by its owner would kill us with SIGBUS.
fn inspect(file: &File, size: u64) -> FileFacts {
    if size > SIZE_MAX {
        return FileFacts::default();
    }
    let Some(prefetched) = prefetch(file, size).filter(|bytes| is_interesting(bytes)) else {
        return FileFacts::default();
    };
    fill_loaded(file, prefetched).map_or_else(FileFacts::default, |bytes| examine(&bytes))
}

/// Whether a file of which only the symbols' names were read should be read completely.
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
        // A file that is not valid ELF is mapped for other purposes than running it.
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
        let elf = Elf::parse(bytes).ok()?;
        Some(ElfInterpreter { facts, delta: elf.code_delta()?, header: elf.header() })
    });
    FileFacts { interpreter, refused, libc: inspect_libc(bytes).ok().flatten() }
}
