//! Finds segments through `/proc`: those that existed before the capture began.

use std::ffi::OsStr;
use std::fs;
use std::ops::{ControlFlow, Range};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use pyobs_abi::shm::{Facts, Inode};
use pyobs_model::SegmentKind;
use rustix::fs::{FileType, Statx};

use super::FOLDER;
use crate::files::{link_status, status};
use crate::machine;
use crate::process_maps::lines;

/// Device numbers in the kernel's format.
pub struct Devices {
    /// Device of unlinked tmpfs files: memfd_create, anonymous shared mappings.
    internal: Option<u32>,
    /// Device of the shared memory folder.
    folder: Option<u32>,
}

impl Devices {
    pub fn of_this_machine() -> Self {
        let memory = rustix::fs::memfd_create(c"pyobs", rustix::fs::MemfdFlags::CLOEXEC);
        let internal = memory.and_then(rustix::fs::fstat).ok().map(|stat| kernel_device(stat.st_dev));
        Self { internal, folder: status(FOLDER).ok().map(|found| inode(&found).dev) }
    }

    /// The kind of a segment, and its name without the kernel's prefix.
    pub fn kind<'a>(&self, dev: u32, is_tmpfs: bool, in_folder: bool, name: &'a [u8]) -> (SegmentKind, &'a [u8]) {
        if is_tmpfs && self.internal == Some(dev) {
            return match name.strip_prefix(b"memfd:") {
                Some(name) => (SegmentKind::Memfd, name),
                None => (SegmentKind::Anonymous, &[]),
            };
        }
        let is_shm = is_tmpfs && (in_folder || self.folder == Some(dev));
        (if is_shm { SegmentKind::Shm } else { SegmentKind::File }, name)
    }
}

/// Converts stat(2)'s device number to the kernel's `dev_t`.
pub fn kernel_device(dev: u64) -> u32 {
    rustix::fs::major(dev) << 20 | rustix::fs::minor(dev)
}

fn inode(found: &Statx) -> Inode {
    Inode { ino: found.stx_ino, dev: found.stx_dev_major << 20 | found.stx_dev_minor, padding: 0 }
}

fn is_file(found: &Statx) -> bool {
    FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile
}

fn facts(found: &Statx) -> Facts {
    Facts { inode: inode(found), size: found.stx_size, generation: 0, links: found.stx_nlink }
}

/// Whether the shared memory folder still has this segment under this name.
pub fn is_in_folder(inode_of: Inode, name: &[u8]) -> bool {
    let path = Path::new(FOLDER).join(OsStr::from_bytes(name));
    link_status(&path).is_ok_and(|found| inode(&found) == inode_of)
}

/// The shared memory folder: whether a file was made there.
pub struct Folder {
    since: Stamp,
    changed: Option<Stamp>,
}

/// Seconds and nanoseconds of a file's time.
type Stamp = (i64, u32);

impl Folder {
    pub fn new() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let since = (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0));
        Self { since, changed: status(FOLDER).ok().map(|found| changed(&found)) }
    }

    /// Whether something that can be a segment is newer than this. Semaphores are not segments.
    pub fn has_new_segment(&mut self) -> bool {
        let Ok(found) = status(FOLDER) else { return false };
        let before = self.changed.replace(changed(&found));
        if before == self.changed {
            return false;
        }
        let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| Some((entry.file_name(), link_status(entry.path()).ok()?)));
        let mut new = files.filter(|(_, found)| is_file(found) && changed(found) >= self.since);
        new.any(|(name, found)| !SegmentKind::Shm.is_semaphore(name.as_bytes(), found.stx_size))
    }
}

/// When a file was last changed: its contents, or anything about it.
fn changed(found: &Statx) -> Stamp {
    (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec)
}

/// How a process holds a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    Descriptor {
        fd: u32,
        close_on_exec: bool,
    },
    Mapping {
        range: Range<u64>,
        offset: u64,
    },
    /// No process holds it: only its name in the folder exists.
    Name,
}

pub struct Found {
    pub facts: Facts,
    pub kind: SegmentKind,
    pub name: Vec<u8>,
    pub way: Way,
}

impl Found {
    /// The addresses of a mapping.
    pub fn mapping(&self) -> Option<Range<u64>> {
        match &self.way {
            Way::Mapping { range, .. } => Some(range.clone()),
            _ => None,
        }
    }
}

/// The result of scanning a process.
#[derive(Default)]
pub struct Shown {
    pub found: Vec<Found>,
    /// Number of mappings of any kind that were read.
    pub lines: usize,
    /// True if the process has too many mappings to read them all.
    pub is_truncated: bool,
}

impl Devices {
    /// The segments that a process holds: those that `is_known`, or with `others` everything it may share.
    pub fn of_process(&self, pid: u32, others: bool, is_known: impl Fn(&Inode) -> bool) -> Shown {
        let pid = machine::living_thread(pid);
        let mut mappings = Vec::new();
        let read = lines::each(pid, |line| {
            let key = Inode { ino: line.inode, dev: line.device.0 << 20 | line.device.1, padding: 0 };
            let may = line.is_shared() && (line.is_writable() || self.is_memory(key.dev));
            if line.inode != 0 && (is_known(&key) || others && may) {
                mappings.push((line.start..line.end, line.offset));
            }
            ControlFlow::Continue(())
        });
        let lines::Extent { lines, is_truncated } = read.unwrap_or_default();
        let mut found = Vec::new();
        for (range, offset) in mappings {
            let path = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", range.start, range.end));
            found.extend(self.found(&path, Way::Mapping { range, offset }));
        }
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let Ok(of_file) = status(entry.path()) else { continue };
            let key = inode(&of_file);
            let is_wanted = is_known(&key) || found.iter().any(|it| it.facts.inode == key);
            if is_file(&of_file) && (is_wanted || others && self.is_memory(key.dev)) {
                let way = Way::Descriptor { fd, close_on_exec: is_closed_on_exec(pid, fd) };
                found.extend(self.found(&entry.path(), way));
            }
        }
        Shown { found, lines, is_truncated }
    }

    /// The files in the shared memory folder.
    pub fn of_folder(&self) -> Vec<Found> {
        let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| Some((entry.file_name(), link_status(entry.path()).ok()?)));
        let found = files.filter(|(_, found)| is_file(found)).map(|(name, found)| Found {
            facts: facts(&found),
            kind: SegmentKind::Shm,
            name: name.into_vec(),
            way: Way::Name,
        });
        found.collect()
    }

    pub fn is_memory(&self, dev: u32) -> bool {
        self.internal == Some(dev) || self.folder == Some(dev)
    }

    /// Describes the target of a link in `/proc`.
    fn found(&self, link: &Path, way: Way) -> Option<Found> {
        let of_file = status(link).ok().filter(is_file)?;
        let facts = facts(&of_file);
        let target = fs::read_link(link).ok()?.into_os_string().into_vec();
        let target = target.strip_suffix(b" (deleted)").unwrap_or(&target);
        let name = target.rsplit(|byte| *byte == b'/').next().unwrap_or(target);
        // System V shared memory is not tracked.
        if name.starts_with(b"SYSV") && self.internal == Some(facts.inode.dev) {
            return None;
        }
        let (kind, name) = self.kind(facts.inode.dev, self.is_memory(facts.inode.dev), false, name);
        Some(Found { facts, kind, name: name.to_vec(), way })
    }
}

/// The process that a pidfd refers to
/// (<https://github.com/torvalds/linux/blob/v6.1/Documentation/filesystems/proc.rst>).
pub fn behind_pidfd(pid: u32, pidfd: u64) -> Option<u32> {
    let about = fs::read_to_string(format!("/proc/{}/fdinfo/{pidfd}", machine::living_thread(pid))).ok()?;
    about.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

fn is_closed_on_exec(pid: u32, fd: u32) -> bool {
    let about = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_CLOEXEC as u32 != 0)
}
