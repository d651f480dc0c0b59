//! The contents of a recording, in the shape of `pyobs report --json` (docs/report-json.md).

mod arena;
mod heap;
mod limits;
mod nrt;
mod redundancy;
mod region;
mod resident;
mod rows;
mod shm;
mod source;
mod tasks;
mod ucx;
mod waits;

use crate::Family;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use serde::Serialize;

pub use self::arena::ArenaOut;
pub use self::heap::{HeapLineOut, HeapOut};
pub use self::limits::LimitOut;
pub use self::nrt::MemInfos;
pub use self::redundancy::RedundancyOut;
pub use self::region::RegionOut;
pub use self::resident::Memory;
pub use self::rows::{Made, Rows};
pub use self::shm::SegmentOut;
use self::source::Source;
pub use self::tasks::{TaskOut, TaskStatusOut};
pub use self::ucx::{TransferCount, TransferOut, TransferQueue, TransferStage, Worker};
pub use self::waits::{GilWaitOut, SleepOut, ThreadStack, WakerCount};

use crate::Refused;
use crate::families::{Times, eval};
use crate::findings::{self, Finding};
use crate::model as held;
use crate::views::{self, GilShare, Role};
use crate::{Container, Frame, FrameKind, Model, Nanos, Pid, ProcessRef, Selection, Tid};

/// Version of the JSON schema.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report<'m> {
    pub version: u32,
    pub recording: Recording,
    /// Families that were requested but are unavailable.
    pub refused: Vec<Refused>,
    /// Lost records, samples and lookups, by reason.
    pub loss: BTreeMap<&'static str, u64>,
    /// Events that are in sums only, by kind: more came after them than a report keeps one by one.
    pub summed: BTreeMap<&'static str, u64>,
    /// Events that are in no list and in no sum, by kind.
    pub left_out: BTreeMap<&'static str, u64>,
    pub cost: CostOut,
    pub shed: Vec<ShedOut>,
    pub processes: Vec<ProcessOut>,
    /// `None` if the family `cpu` was off.
    pub frames: Option<Rows<'m, FrameCount>>,
    pub stacks: Option<StacksOut>,
    /// `None` if the family was off; the same holds for the fields below.
    pub offcpu: Option<Rows<'m, SleepOut>>,
    pub gil: Option<Rows<'m, GilWaitOut>>,
    pub calls: Option<Rows<'m, CallCount>>,
    pub arenas: Option<Rows<'m, ArenaOut>>,
    pub heap: Option<Rows<'m, HeapOut>>,
    pub segments: Option<Rows<'m, SegmentOut>>,
    pub meminfos: Option<MemInfos>,
    pub transfers: Option<Rows<'m, TransferOut>>,
    pub transfer_counts: Option<Vec<TransferCount>>,
    pub transfer_stages: Option<Vec<TransferStage>>,
    pub transfer_queues: Option<Vec<TransferQueue>>,
    pub workers: Option<Vec<Worker>>,
    pub redundancy: Option<RedundancyOut>,
    pub tasks: Option<Rows<'m, TaskOut>>,
    /// Control groups that have a limit.
    pub limits: Vec<LimitOut>,
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recording {
    pub started: String,
    pub duration_s: f64,
    pub host: String,
    pub kernel: String,
    pub pyobs: String,
    pub rate_hz: u32,
    pub probes: Vec<String>,
    /// The clock of the CPU samples: `cycles` or `cpu-clock`.
    pub sampler: String,
    /// What corrected the knowledge about segments: `iterators` or `proc`. `None` if the family `shm` was off.
    pub segment_repair: Option<String>,
    /// How many CPUs all programs of the machine kept busy on average, watched or not. `None` in older recordings.
    pub machine_cpus: Option<f64>,
    /// `false` if it was cut off, or was still being written.
    pub finished: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostOut {
    pub bpf_s: f64,
    pub cpu_s: f64,
    /// The part of `cpu_s` spent once per file or process.
    pub startup_s: f64,
    pub rss_bytes: u64,
    pub shed: Vec<String>,
}

/// A measure that kept pyobs inside the budget, and when it applied.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShedOut {
    pub from_s: f64,
    /// `None` if it applied until the end.
    pub to_s: Option<f64>,
    pub family: String,
    pub measure: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessOut {
    pub pid: Pid,
    pub ppid: Pid,
    pub command: String,
    pub python: Option<String>,
    pub user: Option<String>,
    /// Its control group, from the root of the hierarchy.
    pub cgroup: Option<String>,
    pub container: Option<Container>,
    pub started_s: Option<f64>,
    pub ended_s: Option<f64>,
    pub samples: u64,
    /// The CPU time that the samples represent.
    pub cpu_s: f64,
    pub threads: Vec<Thread>,
    /// `None` if the family `shm` was off, or memory was never examined.
    pub memory: Option<Memory>,
    /// `None` if no thread was seen to hold the GIL or wait for it.
    pub gil: Option<GilTime>,
}

/// The GIL over the time in which the process was watched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GilTime {
    pub observed_s: f64,
    pub held_s: f64,
    /// The waits of all threads together.
    pub wanted_s: f64,
    pub threads: Vec<GilThreadOut>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GilThreadOut {
    pub tid: Tid,
    pub held_s: f64,
    pub wanted_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Thread {
    pub tid: Tid,
    pub name: Option<String>,
    /// One of its roles in `workers`.
    pub role: Option<&'static str>,
    pub samples: u64,
    pub cpu_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrameCount {
    pub pid: Pid,
    pub frame: FrameOut,
    /// Samples in which it is the leaf of the whole stack.
    #[serde(rename = "self")]
    pub own: u64,
    pub total: u64,
    /// The CPU time that these represent, and the standard error of each.
    pub self_s: f64,
    pub total_s: f64,
    pub self_error_s: f64,
    pub total_error_s: f64,
}

/// A frame as it appears in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrameOut {
    pub kind: FrameKind,
    pub function: Arc<str>,
    pub module: Option<Arc<str>>,
    pub file: Option<Arc<str>>,
    pub line: Option<u32>,
}

/// Root first. Rows with the same stack share it.
pub type StackOut = Arc<[FrameOut]>;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StacksOut {
    pub samples: u64,
    pub complete: u64,
    pub truncated: u64,
    pub failed: BTreeMap<&'static str, u64>,
    /// Complete samples with all their native frames.
    pub whole: u64,
    /// The other complete samples, by the reason that cut them short.
    pub cut: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spent {
    pub count: u64,
    pub total_s: f64,
    pub max_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallCount {
    pub pid: Pid,
    pub function: String,
    pub file: Option<String>,
    pub line: Option<u32>,
    #[serde(flatten)]
    pub spent: Spent,
    /// Calls whose return was seen. The times cover only these.
    pub timed: u64,
}

impl From<&Frame> for FrameOut {
    fn from(frame: &Frame) -> Self {
        Self {
            kind: frame.kind,
            function: Arc::clone(&frame.function),
            module: frame.module.clone(),
            file: frame.file.clone(),
            line: frame.line,
        }
    }
}

impl From<Times> for Spent {
    fn from(times: Times) -> Self {
        Self { count: times.count, total_s: times.total.as_secs_f64(), max_s: times.max.as_secs_f64() }
    }
}

impl From<&GilShare> for GilTime {
    fn from(share: &GilShare) -> Self {
        let thread = |(tid, thread): (&Tid, &views::GilThread)| GilThreadOut {
            tid: *tid,
            held_s: thread.held.as_secs_f64(),
            wanted_s: thread.wanted.total.as_secs_f64(),
        };
        Self {
            observed_s: share.observed.as_secs_f64(),
            held_s: share.held.as_secs_f64(),
            wanted_s: share.wanted.total.as_secs_f64(),
            threads: share.threads.iter().map(thread).collect(),
        }
    }
}

impl<'m> Report<'m> {
    /// `limit` bounds the lists that grow with the program.
    pub fn new(model: &'m Model, selection: &Selection, limit: Option<usize>) -> Self {
        let meta = model.meta();
        let cost = model.cost();
        let limit = limit.unwrap_or(usize::MAX);
        let source = &Rc::new(Source::new(model, selection.clone(), limit));
        Self {
            version: VERSION,
            recording: Recording {
                started: meta.started.clone(),
                duration_s: model.now().as_secs_f64(),
                host: meta.host.clone(),
                kernel: meta.kernel.clone(),
                pyobs: meta.pyobs.clone(),
                rate_hz: meta.rate_hz,
                probes: meta.probes.clone(),
                sampler: meta.sampler.clone(),
                segment_repair: Some(meta.segment_repair.clone()).filter(|way| !way.is_empty()),
                machine_cpus: model.load().busy(selection),
                finished: model.is_finished(),
            },
            refused: meta.refused.clone(),
            loss: model.loss().iter().map(|(reason, count)| (reason.name(), count)).collect(),
            summed: model.summed(),
            left_out: model.left_out(),
            cost: CostOut {
                bpf_s: cost.bpf.as_secs_f64(),
                cpu_s: cost.cpu.as_secs_f64(),
                startup_s: cost.startup.as_secs_f64(),
                rss_bytes: cost.rss_bytes,
                shed: model.shed().iter().map(ToString::to_string).collect(),
            },
            shed: model.sheds().map(shed).collect(),
            processes: processes(model, selection),
            frames: rows(source, Family::Cpu, frames),
            stacks: model.is_on(Family::Cpu).then(|| stacks(model)),
            offcpu: rows(source, Family::OffCpu, waits::offcpu),
            gil: rows(source, Family::Gil, waits::gil),
            calls: rows(source, Family::Eval, calls),
            arenas: rows(source, Family::Arena, arena::arenas),
            heap: rows(source, Family::Heap, heap::heap),
            segments: rows(source, Family::Shm, shm::segments),
            meminfos: model.is_on(Family::Nrt).then(|| nrt::meminfos(source, selection, limit)),
            transfers: rows(source, Family::Ucx, ucx::transfers),
            transfer_counts: model.is_on(Family::Ucx).then(|| ucx::counts(model, selection)),
            transfer_stages: model.is_on(Family::Ucx).then(|| ucx::stages(model, selection)),
            transfer_queues: model.is_on(Family::Ucx).then(|| ucx::queues(model, selection)),
            workers: model.is_on(Family::Ucx).then(|| ucx::workers(model, selection)),
            redundancy: model.is_on(Family::Redundancy).then(|| redundancy::redundancy(source, selection, limit)),
            tasks: rows(source, Family::Tasks, tasks::tasks),
            limits: limits::limits(model, selection),
            findings: findings::find(model, selection),
        }
    }
}

/// The list of a family; `None` if it was off.
fn rows<'m, T, I: Iterator<Item = T> + 'm>(
    source: &Rc<Source<'m>>,
    family: Family,
    make: impl Fn(&Rc<Source<'m>>) -> I + 'm,
) -> Option<Rows<'m, T>> {
    let source = Rc::clone(source);
    source.model.is_on(family).then(|| Rows::new(move || make(&source)))
}

fn shed(shed: &held::Shed) -> ShedOut {
    ShedOut {
        from_s: shed.from.as_secs_f64(),
        to_s: shed.to.map(Nanos::as_secs_f64),
        family: shed.family.to_string(),
        measure: shed.measure.to_string(),
    }
}

fn processes(model: &Model, selection: &Selection) -> Vec<ProcessOut> {
    let rows = views::processes(model, selection);
    let shares = views::gil_shares(model, selection);
    rows.iter()
        .filter_map(|row| Some((row, model.process(row.process)?)))
        .map(|(row, state)| ProcessOut {
            pid: state.process.pid,
            ppid: state.process.ppid,
            command: state.process.command.to_string(),
            python: state.process.python.as_deref().map(str::to_owned),
            user: state.placement.user.as_deref().map(str::to_owned),
            cgroup: state.placement.cgroup.as_deref().map(str::to_owned),
            container: state.placement.container.as_deref().cloned(),
            started_s: state.process.started.map(Nanos::as_secs_f64),
            ended_s: state.ended.map(Nanos::as_secs_f64),
            samples: row.cpu.samples,
            cpu_s: row.cpu.time.as_secs_f64(),
            threads: state
                .threads
                .iter()
                .map(|(tid, thread)| Thread {
                    tid: *tid,
                    name: thread.name.as_deref().map(str::to_owned),
                    role: views::role(model, row.process, *tid).map(Role::name),
                    samples: row.threads.get(tid).map_or(0, |sum| sum.samples),
                    cpu_s: row.threads.get(tid).map_or(0.0, |sum| sum.time.as_secs_f64()),
                })
                .collect(),
            memory: state.resident.map(Memory::from),
            gil: shares.get(&row.process).map(GilTime::from),
        })
        .collect()
}

fn frames<'m>(source: &Rc<Source<'m>>) -> impl Iterator<Item = FrameCount> + use<'m> {
    let model = source.model;
    let row = move |row: views::CpuRow| {
        let (process, frame) = (model.process(row.process)?, model.frame(row.frame)?);
        Some(FrameCount {
            pid: process.process.pid,
            frame: frame.into(),
            own: row.own.samples,
            total: row.total.samples,
            self_s: row.own.time.as_secs_f64(),
            total_s: row.total.time.as_secs_f64(),
            self_error_s: row.own_error.as_secs_f64(),
            total_error_s: row.total_error.as_secs_f64(),
        })
    };
    views::cpu_frames(model, &source.selection).into_iter().take(source.limit).filter_map(row)
}

fn stacks(model: &Model) -> StacksOut {
    let stacks = model.cpu().stacks();
    StacksOut {
        samples: stacks.samples,
        complete: stacks.complete,
        truncated: stacks.truncated,
        failed: stacks.failed.iter().map(|(reason, count)| (reason.name(), count)).collect(),
        whole: stacks.complete.saturating_sub(stacks.cut.total()),
        cut: stacks.cut.iter().map(|(reason, count)| (reason.name(), count)).collect(),
    }
}

fn calls<'m>(source: &Rc<Source<'m>>) -> impl Iterator<Item = CallCount> + use<'m> {
    let model = source.model;
    let mut sums: Vec<_> = model.eval().sums(&source.selection).into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse((sum.times.total, sum.times.count)));
    let row = move |(key, sum): (eval::EvalKey, eval::EvalSum)| {
        let frame = model.frame(key.function)?;
        Some(CallCount {
            pid: pid(model, key.process)?,
            function: frame.function.to_string(),
            file: frame.file.as_deref().map(str::to_owned),
            line: frame.line,
            spent: sum.times.into(),
            timed: sum.timed,
        })
    };
    sums.into_iter().take(source.limit).filter_map(row)
}

fn pid(model: &Model, process: ProcessRef) -> Option<Pid> {
    Some(model.process(process)?.process.pid)
}
