//! Lifecycle of shared segments, arenas and MemInfos.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{ArenaId, Pid, ProcessRef, StackId};

/// How a shared segment was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SegmentKind {
    /// A file in the shared memory folder: shm_open.
    Shm,
    /// memfd_create.
    Memfd,
    /// Any other file mapped shared.
    File,
    /// Mapped shared without a file.
    Anonymous,
}

/// The names of semaphores' files begin with this, in glibc and musl: sem_open(3).
const SEMAPHORE: &[u8] = b"sem.";
/// Bytes of such a file: `sem_t` of glibc and musl.
const SEMAPHORE_BYTES: u64 = 32;

impl SegmentKind {
    pub const ALL: &'static [Self] = &[Self::Shm, Self::Memfd, Self::File, Self::Anonymous];

    /// Whether a segment is a semaphore rather than shared data. The shared memory folder of a container is another file
    /// system, whose files are of the kind `File`.
    pub fn is_semaphore(self, name: &[u8], bytes: u64) -> bool {
        matches!(self, Self::Shm | Self::File) && name.starts_with(SEMAPHORE) && bytes <= SEMAPHORE_BYTES
    }

    /// The name in JSON, recordings and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Memfd => "memfd",
            Self::File => "file",
            Self::Anonymous => "anonymous",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

/// What is known about a segment when it is first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The device number in stat(2)'s encoding.
    pub dev: u64,
    pub ino: u64,
    /// 0 if unknown.
    pub generation: u32,
    pub kind: SegmentKind,
    /// The last component of its file's path.
    pub name: Option<Arc<str>>,
    /// Whether it has a name in the file system.
    pub linked: bool,
    pub bytes: u64,
    /// The process that made it, if that was seen.
    pub creator: Option<Pid>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentChange {
    /// It is seen for the first time. If it has a creator, it was made at that moment.
    Begun(Segment),
    /// The stack that made it.
    Born(StackId),
    Resized(u64),
    /// What a process holds of it from now on.
    Holds {
        pid: Pid,
        fds: u32,
        mappings: u32,
    },
    /// A process maps this many bytes of it, starting at `offset`.
    Mapped {
        pid: Pid,
        address: u64,
        bytes: u64,
        offset: u64,
    },
    /// A process unmapped the part of it in this range.
    Unmapped {
        pid: Pid,
        address: u64,
        bytes: u64,
    },
    /// Bytes of the segment that have pages, whether or not a process maps them.
    Allocated(u64),
    /// Resident bytes in one process's mappings. `share` divides each page by the number of processes that map it.
    Shown {
        pid: Pid,
        resident: u64,
        share: u64,
    },
    /// A process that holds or held it ended.
    Ended {
        pid: Pid,
    },
    /// Its name was removed; `by` is the process if that was seen.
    Unlinked {
        by: Option<Pid>,
    },
    /// A descriptor was sent to another process and has not arrived.
    Sent {
        from: Pid,
    },
    /// A descriptor arrived; `from` is the sender if known.
    Passed {
        from: Option<Pid>,
        to: Pid,
    },
    /// Its memory was freed.
    Released,
    /// It is gone as far as pyobs can tell: no process holds it, and it has no name.
    Gone,
}

/// Resident memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// The process's RSS as the kernel counts it. A page shared by several processes counts in each.
    pub total: u64,
    /// Parts of the total: anonymous pages, file pages, shared memory.
    pub anonymous: u64,
    pub files: u64,
    pub shared: u64,
    /// Part of the total: pages of known segments, and the same with each page divided by the number of processes that
    /// map it.
    pub segments: u64,
    pub share: u64,
}

impl Resident {
    pub fn add(&mut self, other: Self) {
        let Self { total, anonymous, files, shared, segments, share } = self;
        let sums = [
            (total, other.total),
            (anonymous, other.anonymous),
            (files, other.files),
            (shared, other.shared),
            (segments, other.segments),
            (share, other.share),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }

    /// The process's memory if each page of a segment counts once across all processes.
    pub fn counted_once(&self) -> u64 {
        self.total.saturating_sub(self.segments).saturating_add(self.share)
    }
}

/// What is known about an arena when it is first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arena {
    pub process: ProcessRef,
    /// `pymalloc` or `mimalloc` for CPython's own arenas.
    pub kind: Arc<str>,
    pub address: u64,
    pub bytes: u64,
    /// Whether its birth was seen. Otherwise it existed before.
    pub born: bool,
    /// In a forked process, the parent's arena that this one is a copy of.
    pub parent: Option<ArenaId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArenaChange {
    Begun(Arena),
    /// The stack that made it.
    Born(StackId),
    /// How full it was when it was last examined.
    Filled(Filled),
    /// A library's arena received this memory.
    Slab {
        address: u64,
        bytes: u64,
    },
    /// Totals of the slabs and objects of a library's arena so far.
    Objects(Objects),
    /// A library's arena was closed for new objects, or should have been, while this many of its objects were alive.
    Closed {
        escaped: u64,
        /// Whether the library itself dropped it.
        popped: bool,
    },
    /// The stack at which these objects escaped.
    Escaped(StackId),
    /// It was freed.
    Died,
    /// It turned out not to be an arena.
    Mistaken,
}

/// How full an arena is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// The parts an arena is divided into; CPython calls them pools.
    pub slabs: u32,
    /// Slabs that hold at least one object.
    pub used: u32,
    /// Bytes of the objects in those slabs.
    pub bytes: u64,
}

/// The contents of a library's arena, as counts since it was first seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    pub born: u64,
    pub dead: u64,
    /// Pieces of memory that it received.
    pub slabs: u32,
    /// Bytes of the slabs, or of the live objects if there are no slabs.
    pub bytes: u64,
}

/// A reference-counted piece of memory of Numba's runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemInfoChange {
    Born {
        process: ProcessRef,
        /// Size of its data.
        bytes: u64,
        /// Address of its data; 0 if unknown.
        data: u64,
        stack: StackId,
    },
    /// The number of references when it was last examined.
    Referenced(u64),
    /// The last reference was dropped.
    Died,
}
