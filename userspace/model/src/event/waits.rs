//! Sleeps of threads, and waits for the GIL.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Nanos, Pid, Place, ProcessRef, StackId, Tid};

/// Why a thread was not on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitReason {
    /// A lock, a condition variable or other synchronization between threads, except the GIL.
    Lock,
    /// A file, a socket, a pipe or a page fault.
    Io,
    /// Only a timer.
    Sleep,
    Gil,
    /// The first of several files, sockets or pipes: poll, select, epoll.
    Poll,
    Other,
    /// Not asleep: the thread's control group has used up its CPU limit.
    Throttled,
}

impl WaitReason {
    pub const ALL: &'static [Self] =
        &[Self::Lock, Self::Io, Self::Sleep, Self::Gil, Self::Poll, Self::Other, Self::Throttled];

    /// The name in JSON, recordings and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Io => "io",
            Self::Sleep => "sleep",
            Self::Gil => "gil",
            Self::Poll => "poll",
            Self::Other => "other",
            Self::Throttled => "throttled",
        }
    }

    /// Whether the thread's own call made it wait, not another thread or a limit.
    pub fn is_of_a_call(self) -> bool {
        !matches!(self, Self::Gil | Self::Throttled)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.name() == name)
    }
}

/// The thread that woke another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Waker {
    pub pid: Pid,
    pub tid: Tid,
    /// The thread's name.
    pub name: Arc<str>,
}

/// A sleep of a thread, or several of its sleeps whose stacks were sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// `total` lies between `from` and `at`; `at` is when the last sleep ended.
    pub from: Nanos,
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    /// Where the thread went to sleep.
    pub stack: StackId,
    pub reason: WaitReason,
    /// The number of sleeps; 0 if this continues a sleep from an earlier event.
    pub count: u64,
    /// Time that no other event accounts for.
    pub total: Nanos,
    /// Duration of the longest sleep, from its beginning.
    pub length: Nanos,
    /// The number of stacks behind this event. If it is less than `count`, the split of the thread's time over its
    /// stacks is an estimate, and stacks that stand for little time count for less. The sum over the thread is exact.
    pub stacks: u64,
    pub waker: Option<Waker>,
}

impl Sleep {
    pub fn place(&self) -> Place {
        Place { process: self.process, tid: self.tid, stack: self.stack }
    }
}

/// The thread that held the GIL when another began to wait for it, and its stack. While the GIL passes from one thread
/// to the next, this is the previous holder with an empty stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GilHolder {
    pub tid: Tid,
    pub stack: StackId,
}

/// A thread waited for the GIL. A wait comes in pieces of at most CPython's switch interval, each with the holder at
/// its beginning. One event may stand for several pieces whose stacks were sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GilWait {
    /// `total` lies between `from` and `at`; `at` is when the last piece ended.
    pub from: Nanos,
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    /// Where the thread asked for the GIL.
    pub stack: StackId,
    pub holder: Option<GilHolder>,
    /// The number of waits that begin with it; 0 for a later piece of a wait that began with an earlier event.
    pub count: u64,
    /// Time that no other event accounts for.
    pub total: Nanos,
    /// Duration of the longest piece.
    pub length: Nanos,
    /// The number of stacks behind this event, as in [`Sleep`].
    pub stacks: u64,
}

impl GilWait {
    /// How long the thread waited within a span, assuming that the event's time is spread evenly.
    pub fn within(&self, (from, to): (Nanos, Nanos)) -> Nanos {
        let overlap = self.at.min(to).saturating_sub(self.from.max(from));
        let whole = self.at.saturating_sub(self.from).0.max(1);
        Nanos((u128::from(overlap.0) * u128::from(self.total.0) / u128::from(whole)) as u64)
    }

    pub fn place(&self) -> Place {
        Place { process: self.process, tid: self.tid, stack: self.stack }
    }
}
