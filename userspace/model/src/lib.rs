//! What is known about the watched programs, computed from events alone.
//!
//! This crate is pure: no I/O, no BPF, no terminal, and no clock except event times. Capture turns kernel records into
//! [`Event`]s, and a recording yields the same events. [`Model::apply`] takes both, so a replay shows what the live
//! dashboard showed.
//!
//! Events define before they refer: an [`Event::Frame`] precedes the first stack that contains it, and an
//! [`Event::Stack`] and an [`Event::Process`] precede the first sample that refers to them.

pub mod diff;
pub mod dump;
pub mod event;
pub mod families;
pub mod family;
pub mod findings;
pub mod ids;
pub mod loss;
mod model;
pub mod number;
pub mod package;
pub mod regions;
pub mod report;
pub mod selection;
pub mod transfer;
pub mod views;

pub use event::{
    Access, Arena, ArenaChange, CalledBy, Calls, Compared, Container, CpuLimit, Event, Filled, Frame, FrameKind,
    GilHolder, GilWait, HeapChange, Limits, MemInfoChange, MemoryLimit, Meta, NativeCall, Objects, Outcome, Pair,
    PairKind, Placement, Process, Refused, Resident, Sample, Sampler, Segment, SegmentChange, SegmentKind, Sleep, Task,
    TaskKind, TaskState, TaskStatus, Touched, WaitReason, Waker, Watchpoints,
};
pub use family::Family;
pub use ids::{
    ArenaId, FrameId, MemInfoId, Nanos, Pid, Place, ProcessRef, SegmentId, StackId, TaskId, Tid, TransferId,
};
pub use loss::Reason;
pub use model::{EVENTS_KEPT, EVENTS_SHOWN, History, Model, ProcessState, Shed, ThreadState, is_interpreter_module};
pub use regions::{Region, RegionId};
pub use selection::Selection;
pub use transfer::{Library, Operation, Protocol, Transfer, TransferChange, TransferThread, Transfers};
