//! The one vocabulary between capture, recordings and everything that shows something.

mod redundancy;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::redundancy::{Access, Compared, NativeCall, Pair, PairKind, Sampler, Touched, Watchpoints};
use crate::transfer::{TransferChange, TransferThread, Transfers};
use crate::{ArenaId, FrameId, MemInfoId, Nanos, Pid, Place, ProcessRef, Reason, SegmentId, StackId, Tid, TransferId};

/// What a recording says of itself before the first event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// RFC 3339, UTC.
    pub started: String,
    pub host: String,
    pub kernel: String,
    /// The version of pyobs that captured.
    pub pyobs: String,
    pub rate_hz: u32,
    /// Families that were on, in the order of the registry.
    pub probes: Vec<String>,
    /// What drove the CPU samples: `cycles` or `cpu-clock`.
    pub sampler: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Frame {
        id: FrameId,
        frame: Frame,
    },
    /// Frames root first.
    Stack {
        id: StackId,
        frames: Arc<[FrameId]>,
    },
    /// First sight of a process, or news about one already known (its command after exec, its Python version).
    Process {
        id: ProcessRef,
        process: Process,
    },
    ProcessEnd {
        id: ProcessRef,
        at: Nanos,
    },
    Thread {
        process: ProcessRef,
        tid: Tid,
        name: Arc<str>,
    },
    Sample(Sample),
    /// Family `offcpu`.
    Sleep(Sleep),
    /// Family `gil`.
    GilWait(GilWait),
    /// Family `gil`: a thread held the GIL for so much of the time since the last word of it.
    GilHeld {
        at: Nanos,
        process: ProcessRef,
        tid: Tid,
        held: Nanos,
    },
    /// Family `eval`.
    Calls(Calls),
    /// Family `shm`: something happened to a shared segment.
    Segment {
        at: Nanos,
        id: SegmentId,
        change: SegmentChange,
    },
    /// Family `arena`: something happened to an arena.
    Arena {
        at: Nanos,
        id: ArenaId,
        change: ArenaChange,
    },
    /// Family `nrt`: something happened to a MemInfo.
    MemInfo {
        at: Nanos,
        id: MemInfoId,
        change: MemInfoChange,
    },
    /// Family `ucx`: something is known of a transfer.
    Transfer {
        at: Nanos,
        id: TransferId,
        change: TransferChange,
    },
    /// Family `ucx`: transfers of one kind that are over, since the last word of them.
    Transfers(Transfers),
    /// Family `ucx`: what a thread has done with transfers so far.
    TransferThread(TransferThread),
    /// Family `redundancy`.
    Access(Access),
    /// Family `redundancy`.
    Pair(Pair),
    Call(NativeCall),
    /// Family `redundancy`: counts since the recording began.
    Watchpoints {
        at: Nanos,
        counts: Watchpoints,
    },
    /// Family `shm`: what of a process's memory was there when somebody looked.
    Resident {
        at: Nanos,
        process: ProcessRef,
        resident: Resident,
    },
    /// `count` more things were lost for `reason`.
    Loss {
        at: Nanos,
        reason: Reason,
        count: u64,
    },
    /// What pyobs itself has used since the recording began.
    Cost {
        at: Nanos,
        bpf: Nanos,
        cpu: Nanos,
        rss_bytes: u64,
    },
    /// Something was given up to stay inside the budget: one sentence.
    Shed {
        at: Nanos,
        what: Arc<str>,
    },
}

impl Event {
    /// When it happened; definitions have no time.
    pub fn at(&self) -> Option<Nanos> {
        match self {
            Self::Frame { .. } | Self::Stack { .. } | Self::Process { .. } | Self::Thread { .. } => None,
            Self::ProcessEnd { at, .. } | Self::Loss { at, .. } | Self::Cost { at, .. } | Self::Shed { at, .. } => {
                Some(*at)
            }
            Self::Sample(sample) => Some(sample.at),
            Self::Sleep(sleep) => Some(sleep.at),
            Self::GilWait(wait) => Some(wait.at),
            Self::GilHeld { at, .. } => Some(*at),
            Self::Calls(calls) => Some(calls.at),
            Self::Access(access) => Some(access.at),
            Self::Pair(pair) => Some(pair.at),
            Self::Call(call) => Some(call.at),
            Self::Watchpoints { at, .. } => Some(*at),
            Self::Segment { at, .. }
            | Self::Arena { at, .. }
            | Self::MemInfo { at, .. }
            | Self::Transfer { at, .. }
            | Self::Resident { at, .. } => Some(*at),
            Self::Transfers(transfers) => Some(transfers.at),
            Self::TransferThread(thread) => Some(thread.at),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    Python,
    Native,
    Kernel,
}

/// One line of one function. Text is as the watched process has it: escape it before it reaches a terminal or a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    pub kind: FrameKind,
    /// Qualified name where the interpreter has one.
    pub function: Arc<str>,
    /// The base name of the mapped file that holds the code; for a Python frame `None`.
    pub module: Option<Arc<str>>,
    pub file: Option<Arc<str>>,
    /// 1-based; `None` where there is no line.
    pub line: Option<u32>,
    /// The function's first line: tells two functions of one name in one file apart.
    pub first_line: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: Pid,
    pub ppid: Pid,
    /// The command line's words, joined by spaces; the kernel's `comm` where it has none.
    pub command: Arc<str>,
    /// The interpreter's version, such as `3.12.1`; `None` for a process that runs no CPython.
    pub python: Option<Arc<str>>,
    /// When it started; `None` when that was before the recording began.
    pub started: Option<Nanos>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    pub cpu: u32,
    pub stack: StackId,
    pub outcome: Outcome,
}

impl Sample {
    pub fn place(&self) -> Place {
        Place { process: self.process, tid: self.tid, stack: self.stack }
    }
}

/// How the walk of a sample's stack ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The frames were followed to their end, Python and native.
    Complete,
    /// Deeper than the walker goes; the leaf side was kept.
    Truncated,
    /// The thread has no Python frames: a native thread, or a process that runs no CPython.
    NoPython,
    Failed(Reason),
    /// All Python frames are there; the native ones lead only part of the way to the outermost.
    Cut(Reason),
}

/// Why a thread was not on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitReason {
    /// A lock, a condition or another thing between threads, other than the GIL.
    Lock,
    /// A file, a socket, a pipe or a page of memory.
    Io,
    /// Nothing but time.
    Sleep,
    Gil,
    /// One of several files, sockets or pipes: poll, select, epoll.
    Poll,
    Other,
}

impl WaitReason {
    pub const ALL: &'static [Self] = &[Self::Lock, Self::Io, Self::Sleep, Self::Gil, Self::Poll, Self::Other];

    /// The name in JSON, recordings and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Io => "io",
            Self::Sleep => "sleep",
            Self::Gil => "gil",
            Self::Poll => "poll",
            Self::Other => "other",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.name() == name)
    }
}

/// Whose doing it was that a thread went on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Waker {
    pub pid: Pid,
    pub tid: Tid,
    /// The thread's name.
    pub name: Arc<str>,
}

/// A thread slept and was woken. Where threads sleep too often for each to be told, one stands for several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// When it ended.
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    /// Where it went to sleep.
    pub stack: StackId,
    pub reason: WaitReason,
    /// The sleeps that this one stands for, itself included.
    pub count: u64,
    /// The time that it stands for.
    pub total: Nanos,
    /// How long it was itself.
    pub length: Nanos,
    pub waker: Option<Waker>,
}

impl Sleep {
    pub fn place(&self) -> Place {
        Place { process: self.process, tid: self.tid, stack: self.stack }
    }
}

/// Who held the GIL when another began to wait for it, and where it was. Where the GIL was on its way from one thread to
/// the next: who had it then, and a stack without frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GilHolder {
    pub tid: Tid,
    pub stack: StackId,
}

/// A thread waited for the GIL, or went on waiting: a wait is told in pieces of at most CPython's switch interval, each
/// with who held the GIL when the piece began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GilWait {
    /// When the piece ended.
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    /// Where the thread asked for the GIL.
    pub stack: StackId,
    pub holder: Option<GilHolder>,
    /// The waits that begin with it: 0 for a later piece of one that was told of before.
    pub count: u64,
    /// The time that it stands for.
    pub total: Nanos,
    /// How long the piece was itself.
    pub length: Nanos,
}

impl GilWait {
    pub fn place(&self) -> Place {
        Place { process: self.process, tid: self.tid, stack: self.stack }
    }
}

/// Calls of one function since the last word of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    pub at: Nanos,
    pub process: ProcessRef,
    /// Its line is the function's first.
    pub function: FrameId,
    /// Entries, which include a generator's being resumed.
    pub count: u64,
    /// Entries that were seen to return, which are those that the times are about.
    pub timed: u64,
    pub total: Nanos,
    /// The longest.
    pub max: Nanos,
}

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
    /// `pymalloc` for CPython's own.
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
