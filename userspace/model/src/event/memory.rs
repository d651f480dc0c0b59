//! Shared segments, arenas and MemInfos: what begins, changes and ends.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{ArenaId, Pid, ProcessRef, StackId};

/// What a shared segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SegmentKind {
    /// A file in the folder of shared memory: shm_open.
    Shm,
    /// memfd_create.
    Memfd,
    /// Another file, mapped shared.
    File,
    /// Mapped shared without a file.
    Anonymous,
}

impl SegmentKind {
    pub const ALL: &'static [Self] = &[Self::Shm, Self::Memfd, Self::File, Self::Anonymous];

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

/// What is known of a segment when it is first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// As stat(2) has it.
    pub dev: u64,
    pub ino: u64,
    /// 0 where it is not known.
    pub generation: u32,
    pub kind: SegmentKind,
    /// Its file's last component.
    pub name: Option<Arc<str>>,
    /// Whether it has a name in the file system.
    pub linked: bool,
    pub bytes: u64,
    /// Who made it, when that was seen.
    pub creator: Option<Pid>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentChange {
    /// It is seen for the first time; with a creator it was made then.
    Begun(Segment),
    /// Where it was made.
    Born(StackId),
    Resized(u64),
    /// What a process has of it from now on.
    Holds {
        pid: Pid,
        fds: u32,
        mappings: u32,
    },
    /// A process has a mapping of so much of it from now on, from `offset` on.
    Mapped {
        pid: Pid,
        address: u64,
        bytes: u64,
        offset: u64,
    },
    /// What a process had mapped of it there is gone.
    Unmapped {
        pid: Pid,
        address: u64,
        bytes: u64,
    },
    /// So many bytes of it have memory, whoever maps them.
    Allocated(u64),
    /// So many bytes of it are in a process's mappings; `share` is these divided by the number of processes that have each.
    Shown {
        pid: Pid,
        resident: u64,
        share: u64,
    },
    /// A process that holds or held it has ended.
    Ended {
        pid: Pid,
    },
    /// Its name was removed, by this process where that was seen.
    Unlinked {
        by: Option<Pid>,
    },
    /// A descriptor is on its way to another process.
    Sent {
        from: Pid,
    },
    /// A descriptor has come, out of `from` where that is known.
    Passed {
        from: Option<Pid>,
        to: Pid,
    },
    /// Its memory was given back.
    Released,
    /// It is no more, as far as can be told: nobody holds it, and it has no name.
    Gone,
}

/// What of a process's memory is there, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// What the kernel counts as the process's: pages of several processes are in each one's.
    pub total: u64,
    /// Of the total: its own, those of files, and those of memory to be shared.
    pub anonymous: u64,
    pub files: u64,
    pub shared: u64,
    /// Of the total: what lies in known segments, and that divided by the number of processes that have each page.
    pub segments: u64,
    pub share: u64,
}

impl Resident {
    /// The process's part when each page of a segment is counted once in all processes together.
    pub fn counted_once(&self) -> u64 {
        self.total.saturating_sub(self.segments).saturating_add(self.share)
    }
}

/// What is known of an arena when it is first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arena {
    pub process: ProcessRef,
    /// `pymalloc` or `mimalloc` for CPython's own.
    pub kind: Arc<str>,
    pub address: u64,
    pub bytes: u64,
    /// Whether it was seen to be born, rather than to be there.
    pub born: bool,
    /// The one that it is a copy of, in a process that was forked.
    pub parent: Option<ArenaId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArenaChange {
    Begun(Arena),
    /// Where it was born.
    Born(StackId),
    /// How full it was when somebody looked.
    Filled(Filled),
    /// A library's arena was given this memory.
    Slab {
        address: u64,
        bytes: u64,
    },
    /// What has become of the slabs and objects of a library's arena so far.
    Objects(Objects),
    /// A library's arena takes nothing more, or should not; so many of its objects live on.
    Closed {
        escaped: u64,
        /// Whether the library itself has let go of it.
        popped: bool,
    },
    /// Where these objects escaped.
    Escaped(StackId),
    /// It was given back.
    Died,
    /// What was taken for an arena is none.
    Mistaken,
}

/// How full an arena is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// The parts that it is divided into; CPython calls them pools.
    pub slabs: u32,
    /// Those that anything is in.
    pub used: u32,
    /// What lies in these.
    pub bytes: u64,
}

/// What lies in an arena of a library, as counts since it was first seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    pub born: u64,
    pub dead: u64,
    /// The pieces of memory that it was given.
    pub slabs: u32,
    /// Of the slabs, or where there are none of the objects that live.
    pub bytes: u64,
}

/// A piece of memory that code compiled by Numba counts references of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemInfoChange {
    Born {
        process: ProcessRef,
        /// Of its data.
        bytes: u64,
        /// Where its data lies; 0 where that is not known.
        data: u64,
        stack: StackId,
    },
    /// So many references there were when somebody looked.
    Referenced(u64),
    /// The last reference has gone.
    Died,
}
