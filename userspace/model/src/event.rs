//! The one vocabulary between capture, recordings and everything that shows something.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{FrameId, Nanos, Pid, ProcessRef, Reason, StackId, Tid};

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

/// How the walk of a sample's Python stack ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The chain of frames was followed to its end.
    Complete,
    /// Deeper than the walker goes; the leaf side was kept.
    Truncated,
    /// The thread has no Python frames: a native thread, or a process that runs no CPython.
    NoPython,
    Failed(Reason),
}
