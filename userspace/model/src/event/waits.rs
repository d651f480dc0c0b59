//! Sleeps of threads, and waits for the GIL.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Nanos, Pid, Place, ProcessRef, StackId, Tid};

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
    /// The sleeps that this one stands for, itself included; 0 for more of one that went on when it was told of before.
    pub count: u64,
    /// The time that it stands for, which was not told of before.
    pub total: Nanos,
    /// How long it was itself, from its beginning on.
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
