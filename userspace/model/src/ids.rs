//! Identities and units. Pids and pointers are reused within milliseconds, so no identity is a bare one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A process id: the kernel's `tgid`, in pyobs's own pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

/// A thread id: the kernel's `pid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tid(pub u32);

/// One run of one program image: (pid, start time, exec generation), numbered in the order of first sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessRef(pub u32);

impl ProcessRef {
    /// The sum of all processes that a [`crate::Model`] evicted. No recording defines it.
    pub const OTHERS: Self = Self(u32::MAX);
}

/// An interned [`crate::Frame`]; dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

/// An interned stack, root first; dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// A task of a process: a coroutine of an event loop; dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub u32);

impl FrameId {
    /// What stands for a task in views of stacks. No recording defines it.
    pub(crate) fn of_task(task: TaskId) -> Self {
        Self(u32::MAX - task.0)
    }

    /// The task that this stands for, if it is not a frame.
    pub(crate) fn task(self) -> TaskId {
        TaskId(u32::MAX - self.0)
    }
}

/// A shared segment: (device, inode, generation), numbered in the order of first sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u32);

/// An arena: (process, address, generation), numbered in the order of first sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArenaId(pub u32);

/// A MemInfo of Numba's runtime: (process, address, generation), numbered in the order of birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemInfoId(pub u32);

/// A UCX transfer: (process, request, generation), numbered in the order of first sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub u64);

/// A stack of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub process: ProcessRef,
    pub tid: Tid,
    pub stack: StackId,
}

/// Nanoseconds since the recording began, or a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds.max(0.0) * 1e9) as u64)
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
