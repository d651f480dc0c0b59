//! Events: the vocabulary that capture, recordings and every display share.

mod heap;
mod limits;
mod memory;
mod placement;
mod redundancy;
mod tasks;
mod waits;

use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::heap::HeapChange;
pub use self::limits::{CpuLimit, Limits, MemoryLimit};
pub use self::memory::{
    Arena, ArenaChange, Filled, MemInfoChange, Objects, Resident, Segment, SegmentChange, SegmentKind,
};
pub use self::placement::{Container, Placement};
pub use self::redundancy::{Access, CalledBy, Compared, NativeCall, Pair, PairKind, Sampler, Touched, Watchpoints};
pub use self::tasks::{Task, TaskKind, TaskState, TaskStatus};
pub use self::waits::{GilHolder, GilWait, Sleep, WaitReason, Waker};
use crate::package;
use crate::transfer::{TransferChange, TransferThread, Transfers};
use crate::{
    ArenaId, FrameId, MemInfoId, Nanos, Pid, Place, ProcessRef, Reason, SegmentId, StackId, TaskId, Tid, TransferId,
};

/// A recording's metadata, which precedes its first event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// RFC 3339, UTC.
    pub started: String,
    pub host: String,
    pub kernel: String,
    /// The version of pyobs that made the capture.
    pub pyobs: String,
    pub rate_hz: u32,
    /// Online CPUs; 0 if the recording does not say.
    pub cpus: u32,
    /// Families that were on, in the order of the registry.
    pub probes: Vec<String>,
    /// Families that were requested but are unavailable.
    pub refused: Vec<Refused>,
    /// The clock of the CPU samples: `cycles` or `cpu-clock`.
    pub sampler: String,
    /// How the segments of a process are checked against the events about them: `iterators` (the kernel's) or `proc`.
    /// Empty if the family `shm` was off.
    pub segment_repair: String,
}

/// A family that is unavailable because of the machine or the user's rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub family: String,
    /// What is missing, and the next step.
    pub reason: String,
}

impl Meta {
    /// Time between two samples on one CPU.
    pub fn period(&self) -> Nanos {
        Nanos(1_000_000_000 / u64::from(self.rate_hz.max(1)))
    }

    /// One sentence per reason, each naming all the families that it disables.
    pub fn refusals(&self) -> Vec<String> {
        let mut reasons: Vec<&str> = Vec::new();
        for refused in &self.refused {
            if !reasons.contains(&refused.reason.as_str()) {
                reasons.push(&refused.reason);
            }
        }
        let sentence = |reason: &str| {
            let of_reason = self.refused.iter().filter(|refused| refused.reason == reason);
            let families: Vec<&str> = of_reason.map(|refused| refused.family.as_str()).collect();
            let are = if families.len() == 1 { "is" } else { "are" };
            format!("{} {are} off: {reason}", families.join(", "))
        };
        reasons.into_iter().map(sentence).collect()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Frame {
        id: FrameId,
        frame: Frame,
    },
    /// Frames are root first.
    Stack {
        id: StackId,
        frames: Arc<[FrameId]>,
    },
    /// Family `tasks`: a task is seen for the first time.
    Task {
        id: TaskId,
        task: Task,
    },
    /// Family `tasks`: the task that runs where this stack was taken. It follows the stack's definition.
    StackTask {
        stack: StackId,
        task: TaskId,
    },
    /// Family `tasks`.
    TaskStatus(TaskStatus),
    /// A process is seen for the first time, or something about it changed (its command after exec, its Python
    /// version).
    Process {
        id: ProcessRef,
        process: Process,
    },
    ProcessEnd {
        id: ProcessRef,
        at: Nanos,
    },
    /// Where a process runs. It follows the process's definition.
    Placement {
        process: ProcessRef,
        placement: Placement,
    },
    /// The limits of a control group of watched processes, and what it has used of them.
    Limits(Limits),
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
    /// Family `gil`: how long a thread held the GIL since its last such event.
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
    /// Family `heap`: something happened to the private memory of a process.
    Heap {
        at: Nanos,
        process: ProcessRef,
        change: HeapChange,
    },
    /// Family `nrt`: something happened to a MemInfo.
    MemInfo {
        at: Nanos,
        id: MemInfoId,
        change: MemInfoChange,
    },
    /// Family `ucx`: something became known about a transfer.
    Transfer {
        at: Nanos,
        id: TransferId,
        change: TransferChange,
    },
    /// Family `ucx`: finished transfers of one kind since the last such event.
    Transfers(Transfers),
    /// Family `ucx`: what a thread has done with transfers, as totals so far.
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
    /// Family `shm`: a process's resident memory when it was last examined.
    Resident {
        at: Nanos,
        process: ProcessRef,
        resident: Resident,
    },
    /// The CPU time that all programs of the machine have used since the first such event, watched or not.
    Machine {
        at: Nanos,
        used: Nanos,
    },
    /// `count` more things were lost for `reason`.
    Loss {
        at: Nanos,
        reason: Reason,
        count: u64,
    },
    /// The resources pyobs has used since the recording began.
    Cost {
        at: Nanos,
        bpf: Nanos,
        cpu: Nanos,
        /// The part of `cpu` spent once per file or process: unwind tables, names, the first scan.
        startup: Nanos,
        rss_bytes: u64,
    },
    /// Something was shed to stay inside the budget. The text is one sentence.
    Shed {
        at: Nanos,
        what: Arc<str>,
    },
    /// A measure that keeps pyobs inside the budget starts or stops applying.
    Measure {
        at: Nanos,
        family: Arc<str>,
        measure: Arc<str>,
        on: bool,
    },
}

/// The time of an event, by reference; `None` for a definition.
macro_rules! time {
    ($event:expr) => {
        match $event {
            Event::Frame { .. }
            | Event::Stack { .. }
            | Event::Task { .. }
            | Event::StackTask { .. }
            | Event::Process { .. }
            | Event::Placement { .. }
            | Event::Thread { .. } => None,
            Event::ProcessEnd { at, .. }
            | Event::Sample(Sample { at, .. })
            | Event::TaskStatus(TaskStatus { at, .. })
            | Event::Limits(Limits { at, .. })
            | Event::Sleep(Sleep { at, .. })
            | Event::GilWait(GilWait { at, .. })
            | Event::GilHeld { at, .. }
            | Event::Calls(Calls { at, .. })
            | Event::Segment { at, .. }
            | Event::Arena { at, .. }
            | Event::Heap { at, .. }
            | Event::MemInfo { at, .. }
            | Event::Transfer { at, .. }
            | Event::Transfers(Transfers { at, .. })
            | Event::TransferThread(TransferThread { at, .. })
            | Event::Access(Access { at, .. })
            | Event::Pair(Pair { at, .. })
            | Event::Call(NativeCall { at, .. })
            | Event::Watchpoints { at, .. }
            | Event::Resident { at, .. }
            | Event::Machine { at, .. }
            | Event::Loss { at, .. }
            | Event::Cost { at, .. }
            | Event::Shed { at, .. }
            | Event::Measure { at, .. } => Some(at),
        }
    };
}

/// The process that an event is attributed to, by reference; `None` for other events.
macro_rules! process {
    ($event:expr) => {
        match $event {
            Event::Sample(Sample { process, .. })
            | Event::Sleep(Sleep { process, .. })
            | Event::GilWait(GilWait { process, .. })
            | Event::GilHeld { process, .. }
            | Event::Calls(Calls { process, .. })
            | Event::Arena { change: ArenaChange::Begun(Arena { process, .. }), .. }
            | Event::Heap { process, .. }
            | Event::MemInfo { change: MemInfoChange::Born { process, .. }, .. }
            | Event::Transfers(Transfers { process, .. })
            | Event::TransferThread(TransferThread { process, .. })
            | Event::Access(Access { process, .. })
            | Event::Pair(Pair { process, .. })
            | Event::Call(NativeCall { process, .. }) => Some(process),
            _ => None,
        }
    };
}

impl Event {
    pub fn measure(at: Nanos, family: &str, measure: &str, on: bool) -> Self {
        Self::Measure { at, family: Arc::from(family), measure: Arc::from(measure), on }
    }

    /// When it happened; definitions have no time.
    pub fn at(&self) -> Option<Nanos> {
        time!(self).copied()
    }

    /// The same event for the process that `resolve` returns; `None` if that is its own. Only for what a process does: its
    /// definition and its end stay.
    pub(crate) fn of_process(&self, resolve: impl Fn(ProcessRef) -> ProcessRef) -> Option<Self> {
        let process = self.process()?;
        let known = resolve(process);
        if known == process {
            return None;
        }
        let mut event = self.clone();
        *process!(&mut event)? = known;
        Some(event)
    }

    fn process(&self) -> Option<ProcessRef> {
        process!(self).copied()
    }

    /// Moves its times, for a recording that begins at `from`. What is earlier is at the beginning.
    pub fn begin_at(&mut self, from: Nanos) {
        let moved = |at: &mut Nanos| *at = at.saturating_sub(from);
        match self {
            Self::Process { process, .. } => {
                process.started = process.started.filter(|started| *started > from);
                process.started.iter_mut().for_each(moved);
            }
            Self::Sleep(Sleep { from: begun, .. }) | Self::GilWait(GilWait { from: begun, .. }) => moved(begun),
            Self::Transfer { change: TransferChange::Seen(transfer), .. } => {
                let times = [&mut transfer.registered, &mut transfer.submitted, &mut transfer.completed];
                times.into_iter().flatten().for_each(moved);
            }
            Self::Transfer { change: TransferChange::Woken { notified, .. }, .. } => moved(notified),
            _ => {}
        }
        time!(self).into_iter().for_each(moved);
    }

    /// Takes what pyobs had used before, as an earlier event says, off what it has used.
    pub fn cost_since(&mut self, before: Option<&Self>) {
        if let (
            Self::Cost { bpf, cpu, startup, .. },
            Some(Self::Cost { bpf: bpf_before, cpu: cpu_before, startup: of, .. }),
        ) = (self, before)
        {
            *bpf = bpf.saturating_sub(*bpf_before);
            *cpu = cpu.saturating_sub(*cpu_before);
            *startup = startup.saturating_sub(*of);
        }
    }

    /// Caps its time at `last`.
    pub fn not_after(&mut self, last: Nanos) {
        match self {
            Self::Process { process, .. } => process.started = process.started.map(|started| started.min(last)),
            Self::Sleep(Sleep { from, .. }) | Self::GilWait(GilWait { from, .. }) => *from = (*from).min(last),
            _ => {}
        }
        if let Some(at) = time!(self) {
            *at = (*at).min(last);
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

/// One line of one function. Text comes unmodified from the watched process: escape it before it reaches a terminal or
/// a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    pub kind: FrameKind,
    /// The qualified name if the interpreter provides one.
    pub function: Arc<str>,
    /// Base name of the mapped file that contains the code; `None` for a Python frame.
    pub module: Option<Arc<str>>,
    pub file: Option<Arc<str>>,
    /// 1-based; `None` if unknown.
    pub line: Option<u32>,
    /// The function's first line, which distinguishes functions of one name in one file.
    pub first_line: Option<u32>,
    /// The installed package of its file, as [`crate::package::of_file`] judges it. Of a native frame, `file` is the source
    /// and the package that of the mapped file.
    pub package: Option<Arc<str>>,
}

impl Frame {
    /// A frame with only a name.
    pub fn new(kind: FrameKind, function: Arc<str>) -> Self {
        Self { kind, function, module: None, file: None, line: None, first_line: None, package: None }
    }

    pub fn python(function: Arc<str>, file: Arc<str>, line: Option<u32>, first_line: Option<u32>) -> Self {
        let package = package::of_file(&file);
        Self { file: Some(file), line, first_line, package, ..Self::new(FrameKind::Python, function) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: Pid,
    pub ppid: Pid,
    /// The command line's words, joined by spaces; the kernel's `comm` if it is empty.
    pub command: Arc<str>,
    /// The interpreter's version, such as `3.12.1`; `None` if the process runs no CPython.
    pub python: Option<Arc<str>>,
    /// `None` if it started before the recording began.
    pub started: Option<Nanos>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    pub cpu: u32,
    pub stack: StackId,
    /// The CPU time that the sample represents.
    pub weight: Nanos,
    /// How long the thread's event loop had run callbacks without looking for input, in microseconds. `None` outside of
    /// asyncio's loops. Exports hold millions of samples, and this fits into the padding.
    pub turn_us: Option<NonZeroU32>,
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
    /// All Python and native frames were walked.
    Complete,
    /// The stack is deeper than the walker goes. The frames next to the leaf were kept.
    Truncated,
    /// The thread has no Python frames: it is native, or its process runs no CPython.
    NoPython,
    Failed(Reason),
    /// All Python frames are there, but the native frames stop short of the outermost.
    NativePartial(Reason),
}

/// Calls of one function by one process since the last such event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    pub at: Nanos,
    pub process: ProcessRef,
    /// Its line is the function's first line.
    pub function: FrameId,
    /// Entries. Resuming a generator is an entry.
    pub count: u64,
    /// Entries whose return was seen. The times cover only these.
    pub timed: u64,
    pub total: Nanos,
    pub max: Nanos,
}
