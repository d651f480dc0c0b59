//! Tasks of event loops.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{FrameId, Nanos, ProcessRef, StackId, TaskId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskKind {
    /// A task of asyncio.
    Asyncio,
    /// A coroutine that something else runs, such as trio.
    Coroutine,
    /// Of the library greenlet, on which gevent and eventlet are built.
    Greenlet,
}

impl TaskKind {
    pub const ALL: [Self; 3] = [Self::Asyncio, Self::Coroutine, Self::Greenlet];

    pub fn name(self) -> &'static str {
        match self {
            Self::Asyncio => "asyncio",
            Self::Coroutine => "coroutine",
            Self::Greenlet => "greenlet",
        }
    }
}

/// A named task, or the nameless tasks of one function together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    pub process: ProcessRef,
    pub kind: TaskKind,
    /// What asyncio calls it, such as `Task-7`. `None` if it stands for several tasks, or ended before it was looked up.
    pub name: Option<Arc<str>>,
    /// The function of its outermost coroutine, or the one that the greenlet began with, at its first line.
    pub coroutine: FrameId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    Running,
    /// The loop runs it in its next turn: it has yielded, or what it awaited is done.
    Scheduled,
    Waiting,
    /// It has not begun to run.
    Created,
}

impl TaskState {
    pub const ALL: [Self; 4] = [Self::Running, Self::Scheduled, Self::Waiting, Self::Created];

    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Scheduled => "scheduled",
            Self::Waiting => "waiting",
            Self::Created => "created",
        }
    }
}

/// What a task did when the tasks of its process were last listed. Only sent if it differs from the time before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskStatus {
    pub at: Nanos,
    pub task: TaskId,
    /// `None` if it has ended.
    pub state: Option<TaskState>,
    /// The task that it awaits.
    pub awaits: Option<TaskId>,
    /// Its coroutines, each awaited by the one before it.
    pub stack: StackId,
}
