//! Findings: statements worth reading first, with the numbers that support them.

pub mod advice;
mod arena;
mod board;
mod gil;
mod heap;
mod joins;
mod limits;
mod nrt;
mod redundancy;
mod shm;
mod tasks;
mod times;
mod ucx;
mod unread;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

pub use self::board::{Board, Entry, Key};
pub(crate) use self::limits::{near_limit, throttled};
pub use self::redundancy::gain as redundancy_gain;
pub use self::times::marks;
use crate::families::Times;
use crate::views::{HeapUse, Role, own_line, role};
use crate::{FrameId, Model, Nanos, Pid, ProcessRef, SegmentId, Selection, StackId, TaskId, Tid, TransferId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    Warning,
    Serious,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Serious => "serious",
        }
    }
}

/// A number or a name that supports a finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Evidence {
    Count(u64),
    Number(f64),
    Text(String),
}

/// The cost of a finding, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// As a share of one thread's time.
    pub time: f64,
    /// Memory that is held, or bytes that are sent, for nothing.
    pub bytes: u64,
}

impl Cost {
    pub fn time(share: f64) -> Self {
        Self { time: share.clamp(0.0, f64::MAX), bytes: 0 }
    }

    pub fn bytes(bytes: u64) -> Self {
        Self { time: 0.0, bytes }
    }

    /// The sort key: a GiB weighs as much as the whole time of a thread.
    pub fn weight(self) -> f64 {
        self.time + self.bytes as f64 / f64::from(1 << 30)
    }

    fn add(&mut self, other: Self) {
        self.time += other.time;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What the dashboard shows for the facts behind a finding, within the finding's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A thread's waits for the GIL.
    GilWaits(Tid),
    /// Arenas that were born at a line.
    Arenas(Option<FrameId>),
    /// Memory that a line uses in one way.
    Memory(HeapUse, Option<FrameId>),
    /// MemInfos that were born at a line.
    MemInfos(Option<FrameId>),
    Segment(SegmentId),
    /// A thread that works on transfers.
    Worker(Tid),
    /// All transfers, or one of them.
    Transfers(Option<TransferId>),
    /// Native code that a line calls.
    Line(FrameId),
    /// A task of an event loop.
    Task(TaskId),
}

/// Text contains names from watched processes: escape it before it reaches a terminal or a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// `family/name`.
    pub id: &'static str,
    pub severity: Severity,
    pub summary: String,
    /// What was observed, in whole sentences.
    pub detail: String,
    /// What to try, in whole sentences.
    pub advice: String,
    #[serde(skip)]
    pub process: Option<ProcessRef>,
    pub pid: Option<Pid>,
    pub evidence: BTreeMap<&'static str, Evidence>,
    #[serde(skip)]
    pub cost: Cost,
    #[serde(skip)]
    pub target: Option<Target>,
}

/// The most serious first; within a severity, the most costly first.
pub fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let mut findings = gil::find(model, selection);
    findings.extend(arena::find(model, selection));
    findings.extend(heap::find(model, selection));
    findings.extend(shm::find(model, selection));
    findings.extend(nrt::find(model, selection));
    findings.extend(ucx::find(model, selection));
    findings.extend(redundancy::find(model, selection));
    findings.extend(tasks::find(model, selection));
    findings.extend(limits::find(model, selection));
    findings.extend(unread::find(model, selection));
    let joined = joins::find(model, selection);
    findings.retain(|finding| !joined.iter().any(|join| joins::says_more(join, finding)));
    findings.extend(joined);
    // A finding is about one process, not about a sum of many.
    findings.retain(|finding| finding.process.is_none_or(|process| !model.is_evicted(process)));
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| b.cost.weight().total_cmp(&a.cost.weight())));
    findings
}

fn seconds(time: Nanos) -> f64 {
    time.as_secs_f64()
}

fn mean(times: Times) -> f64 {
    seconds(times.total) / times.count.max(1) as f64
}

fn commonest(frames: impl Iterator<Item = (Option<FrameId>, Nanos)>) -> Option<FrameId> {
    let mut sums: BTreeMap<FrameId, Nanos> = BTreeMap::new();
    for (frame, time) in frames {
        if let Some(frame) = frame {
            let sum = sums.entry(frame).or_default();
            *sum = sum.saturating_add(time);
        }
    }
    sums.into_iter().max_by_key(|(frame, time)| (*time, Reverse(*frame))).map(|(frame, _)| frame)
}

const UNKNOWN_PLACE: &str = "an unknown place";

/// For example `fetch (/app/client.py:31)` or `memcpy (libc.so.6)`.
pub fn place(model: &Model, frame: Option<FrameId>) -> String {
    let Some(frame) = frame.and_then(|frame| model.frame(frame)) else { return UNKNOWN_PLACE.to_owned() };
    let file = frame.file.as_deref().or(frame.module.as_deref()).unwrap_or("?");
    let line = frame.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!("{} ({file}{line})", frame.function)
}

/// The line of the program that a stack belongs to. Library code belongs to its caller.
fn own_place(model: &Model, stack: Option<StackId>) -> String {
    place(model, stack.and_then(|stack| own_line(model, stack)))
}

/// For example `4250 (io-worker)`, or `4251 (python, progress)` for a thread with a role.
fn name(model: &Model, process: ProcessRef, tid: Tid) -> String {
    let thread = model.process(process).and_then(|state| state.threads.get(&tid));
    let name = thread.and_then(|thread| thread.name.as_deref());
    let words: Vec<&str> = name.into_iter().chain(role(model, process, tid).map(Role::name)).collect();
    if words.is_empty() { tid.to_string() } else { format!("{tid} ({})", words.join(", ")) }
}
