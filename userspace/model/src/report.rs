//! The contents of a recording, in the shape of `pyobs report --json` (docs/report-json.md).

mod arena;
mod nrt;
mod redundancy;
mod region;
mod resident;
mod shm;
mod source;
mod ucx;

use crate::Family;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

pub use self::arena::ArenaOut;
pub use self::nrt::MemInfos;
pub use self::redundancy::RedundancyOut;
pub use self::region::RegionOut;
pub use self::resident::Memory;
pub use self::shm::SegmentOut;
use self::source::Source;
pub use self::ucx::{TransferCount, TransferOut, TransferQueue, TransferStage, Worker};

use crate::Refused;
use crate::families::{Times, eval, gil, offcpu};
use crate::findings::{self, Finding};
use crate::model as held;
use crate::views::{self, GilShare, Role};
use crate::{Frame, FrameKind, Model, Nanos, Pid, ProcessRef, Selection, Tid, WaitReason, Waker};

/// Version of the JSON schema.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub version: u32,
    pub recording: Recording,
    /// Families that were requested but are unavailable.
    pub refused: Vec<Refused>,
    /// Lost records, samples and lookups, by reason.
    pub loss: BTreeMap<&'static str, u64>,
    pub cost: CostOut,
    pub shed: Vec<ShedOut>,
    pub processes: Vec<ProcessOut>,
    /// `None` if the family `cpu` was off.
    pub frames: Option<Vec<FrameCount>>,
    pub stacks: Option<StacksOut>,
    /// `None` if the family was off; the same holds for the fields below.
    pub offcpu: Option<Vec<SleepOut>>,
    pub gil: Option<Vec<GilWaitOut>>,
    pub calls: Option<Vec<CallCount>>,
    pub arenas: Option<Vec<ArenaOut>>,
    pub segments: Option<Vec<SegmentOut>>,
    pub meminfos: Option<MemInfos>,
    pub transfers: Option<Vec<TransferOut>>,
    pub transfer_counts: Option<Vec<TransferCount>>,
    pub transfer_stages: Option<Vec<TransferStage>>,
    pub transfer_queues: Option<Vec<TransferQueue>>,
    pub workers: Option<Vec<Worker>>,
    pub redundancy: Option<RedundancyOut>,
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
pub struct SleepOut {
    pub pid: Pid,
    pub tid: Tid,
    /// Root first.
    pub stack: StackOut,
    pub reason: WaitReason,
    #[serde(flatten)]
    pub spent: Spent,
    /// The number of stacks behind the figures. They are exact if it equals `count`.
    pub stacks: u64,
    /// Sorted by the total length of the sleeps they ended, longest first.
    pub wakers: Vec<WakerCount>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WakerCount {
    #[serde(flatten)]
    pub waker: Waker,
    pub count: u64,
    pub total_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GilWaitOut {
    pub pid: Pid,
    pub waiter: ThreadStack,
    pub holder: Option<ThreadStack>,
    /// The number of waits that began behind the holder, the time spent behind it, and the longest whole wait that was
    /// at least partly behind it.
    #[serde(flatten)]
    pub spent: Spent,
    /// The unit of `count`: `waits`, or `pieces` if stacks were sampled. Pieces last at most a switch interval, so
    /// there are at least as many. The times of a whole thread are exact, but their split over lines and holders is
    /// then an estimate.
    pub count_of: &'static str,
    /// The number of stacks behind the figures.
    pub stacks: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadStack {
    pub tid: Tid,
    pub stack: StackOut,
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

/// How many wakers each sleep lists.
const WAKERS: usize = 3;

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

impl From<(&Waker, Times)> for WakerCount {
    fn from((waker, times): (&Waker, Times)) -> Self {
        Self { waker: waker.clone(), count: times.count, total_s: times.total.as_secs_f64() }
    }
}

impl Report {
    /// `limit` bounds the lists that grow with the program: `frames`, `offcpu`, `gil` and `calls`.
    pub fn new(model: &Model, selection: &Selection, limit: Option<usize>) -> Self {
        let meta = model.meta();
        let cost = model.cost();
        let limit = limit.unwrap_or(usize::MAX);
        let source = &Source::new(model);
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
            },
            refused: meta.refused.clone(),
            loss: model.loss().iter().map(|(reason, count)| (reason.name(), count)).collect(),
            cost: CostOut {
                bpf_s: cost.bpf.as_secs_f64(),
                cpu_s: cost.cpu.as_secs_f64(),
                startup_s: cost.startup.as_secs_f64(),
                rss_bytes: cost.rss_bytes,
                shed: model.shed().iter().map(ToString::to_string).collect(),
            },
            shed: model.sheds().map(shed).collect(),
            processes: processes(model, selection),
            frames: model.is_on(Family::Cpu).then(|| frames(model, selection, limit)),
            stacks: model.is_on(Family::Cpu).then(|| stacks(model)),
            offcpu: model.is_on(Family::OffCpu).then(|| offcpu(source, selection, limit)),
            gil: model.is_on(Family::Gil).then(|| gil(source, selection, limit)),
            calls: model.is_on(Family::Eval).then(|| calls(model, selection, limit)),
            arenas: model.is_on(Family::Arena).then(|| arena::arenas(source, selection, limit)),
            segments: model.is_on(Family::Shm).then(|| shm::segments(source, selection, limit)),
            meminfos: model.is_on(Family::Nrt).then(|| nrt::meminfos(source, selection, limit)),
            transfers: model.is_on(Family::Ucx).then(|| ucx::transfers(source, selection, limit)),
            transfer_counts: model.is_on(Family::Ucx).then(|| ucx::counts(model, selection)),
            transfer_stages: model.is_on(Family::Ucx).then(|| ucx::stages(model, selection)),
            transfer_queues: model.is_on(Family::Ucx).then(|| ucx::queues(model, selection)),
            workers: model.is_on(Family::Ucx).then(|| ucx::workers(model, selection)),
            redundancy: model.is_on(Family::Redundancy).then(|| redundancy::redundancy(source, selection, limit)),
            findings: findings::find(model, selection),
        }
    }
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

fn frames(model: &Model, selection: &Selection, limit: usize) -> Vec<FrameCount> {
    let row = |row: &views::CpuRow| {
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
    views::cpu_frames(model, selection).iter().take(limit).filter_map(row).collect()
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

fn offcpu(source: &Source<'_>, selection: &Selection, limit: usize) -> Vec<SleepOut> {
    let model = source.model;
    let mut sums: Vec<_> = model.offcpu().sums(selection).into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse(sum.times.total));
    let row = |(key, sum): (offcpu::SleepKey, offcpu::SleepSum<'_>)| {
        Some(SleepOut {
            pid: pid(model, key.place.process)?,
            tid: key.place.tid,
            stack: source.stack(key.place.stack),
            reason: key.reason,
            spent: sum.times.into(),
            stacks: sum.sampled.stacks,
            wakers: sum.wakers.most().into_iter().take(WAKERS).map(WakerCount::from).collect(),
        })
    };
    sums.into_iter().take(limit).filter_map(row).collect()
}

fn gil(source: &Source<'_>, selection: &Selection, limit: usize) -> Vec<GilWaitOut> {
    let model = source.model;
    let mut sums: Vec<_> = model.gil().sums(selection).into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse(sum.times.total));
    let of_thread = |tid, id| ThreadStack { tid, stack: source.stack(id) };
    let row = |(key, sum): (gil::GilKey, gil::GilSum)| {
        Some(GilWaitOut {
            pid: pid(model, key.waiter.process)?,
            waiter: of_thread(key.waiter.tid, key.waiter.stack),
            holder: key.holder.map(|holder| of_thread(holder.tid, holder.stack)),
            spent: sum.times.into(),
            count_of: if sum.sampled.is_exact() { "waits" } else { "pieces" },
            stacks: sum.sampled.stacks,
        })
    };
    sums.into_iter().take(limit).filter_map(row).collect()
}

fn calls(model: &Model, selection: &Selection, limit: usize) -> Vec<CallCount> {
    let mut sums: Vec<_> = model.eval().sums(selection).into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse((sum.times.total, sum.times.count)));
    let row = |(key, sum): (eval::EvalKey, eval::EvalSum)| {
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
    sums.into_iter().take(limit).filter_map(row).collect()
}

fn pid(model: &Model, process: ProcessRef) -> Option<Pid> {
    Some(model.process(process)?.process.pid)
}
