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

/// A thread slept and was woken; or several of its sleeps, whose stacks were sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// All of `total` lies between `from` and `at`, which is when the last sleep ended.
    pub from: Nanos,
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    /// Where it went to sleep.
    pub stack: StackId,
    pub reason: WaitReason,
    /// How many sleeps these are; 0 for more of one that went on after an earlier event.
    pub count: u64,
    /// The time that no other event stands for.
    pub total: Nanos,
    /// How long the longest of them was, from its beginning on.
    pub length: Nanos,
    /// How many stacks this event rests on. With fewer than `count`, the split of the thread's time over its stacks is an
    /// estimate, and stacks that stand for little time count for less; the sum over the thread is exact.
    pub stacks: u64,
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

/// A thread waited for the GIL, or went on waiting: a wait comes in pieces of at most CPython's switch interval, each
/// with who held the GIL when the piece began. One event may stand for several pieces, whose stacks were sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GilWait {
    /// All of `total` lies between `from` and `at`, which is when the last piece ended.
    pub from: Nanos,
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    /// Where the thread asked for the GIL.
    pub stack: StackId,
    pub holder: Option<GilHolder>,
    /// The waits that begin with it: 0 for a later piece of one that began with an earlier event.
    pub count: u64,
    /// The time that no other event stands for.
    pub total: Nanos,
    /// How long the longest piece was.
    pub length: Nanos,
    /// How many stacks this event rests on, as of [`Sleep`].
    pub stacks: u64,
}

impl GilWait {
    /// The time of a span in which the thread waited: its part of the event's time, as if that were spread evenly.
    pub fn within(&self, (from, to): (Nanos, Nanos)) -> Nanos {
        let overlap = self.at.min(to).saturating_sub(self.from.max(from));
        let whole = self.at.saturating_sub(self.from).0.max(1);
        Nanos((u128::from(overlap.0) * u128::from(self.total.0) / u128::from(whole)) as u64)
    }

    pub fn place(&self) -> Place {
        Place { process: self.process, tid: self.tid, stack: self.stack }
    }
}
