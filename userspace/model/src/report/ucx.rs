//! The report's `transfers`, `transfer_counts` and `workers`.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Serialize;

use super::{FrameOut, RegionOut, StackOut, pid, source::Source};
use crate::families::ucx::TransferState;
use crate::views;
use crate::{
    Library, Model, Nanos, Operation, Pid, ProcessRef, Protocol, Region, RegionId, Selection, Tid, TransferId,
};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransferOut {
    pub pid: Pid,
    /// The thread that requested it.
    pub tid: Tid,
    pub library: Library,
    pub operation: Operation,
    /// For a transfer of several buffers, the bytes of its parts without the header messages.
    pub bytes: u64,
    pub tag: Option<String>,
    pub immediate: bool,
    pub delayed: bool,
    /// `None` if it was not seen.
    pub protocol: Option<Protocol>,
    pub registered_s: Option<f64>,
    /// `None` if the moment was not seen.
    pub submitted_s: Option<f64>,
    pub completed_s: Option<f64>,
    pub notified_s: Option<f64>,
    pub woken_s: Option<f64>,
    /// A `ucs_status_t`: 0 for success.
    pub status: Option<i32>,
    pub parent: Option<String>,
    pub id: String,
    pub buffer: String,
    /// Address of the endpoint or, for receives, of the worker.
    pub endpoint: String,
    pub region: Option<BufferRegion>,
    pub submit_tid: Option<Tid>,
    pub complete_tid: Option<Tid>,
    pub wake_tid: Option<Tid>,
    /// Root first. For a part, the stack that requested the whole.
    pub stack: StackOut,
}

/// The innermost region that contains a buffer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BufferRegion {
    /// `arena`, `segment` or `meminfo`.
    pub kind: &'static str,
    /// Its `id`; for a MemInfo, `pid:address` of its data.
    pub id: String,
    /// The innermost Python frame of its birth stack, if that was seen.
    pub born_at: Option<FrameOut>,
}

/// All finished transfers of a kind, recorded individually or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransferCount {
    pub pid: Pid,
    pub library: Library,
    pub operation: Operation,
    pub count: u64,
    pub bytes: u64,
    pub immediate: u64,
    pub failed: u64,
    /// Total time from submission to completion.
    pub total_s: f64,
    /// The part of `count` that was only counted at submission, because there were too many. Their outcomes and
    /// durations are missing from the sums above.
    pub unfollowed: u64,
    /// At times, only one in this many of the others is in `transfers`.
    pub told_every: u32,
}

/// How long a stage took, over the process's entries in `transfers`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransferStage {
    pub pid: Pid,
    pub stage: &'static str,
    pub count: u64,
    pub p50_s: f64,
    pub p90_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
    /// Non-empty buckets, by powers of two.
    pub histogram: Vec<Bucket>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bucket {
    pub from_s: f64,
    pub count: u64,
}

/// How many of a process's transfers were registered but not handed to UCX.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransferQueue {
    pub pid: Pid,
    /// The times of the first and last change.
    pub from_s: f64,
    pub to_s: f64,
    /// The maximum in each of `QUEUE_PARTS` equal parts of the time in between.
    pub depths: Vec<u64>,
}

const QUEUE_PARTS: usize = 100;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worker {
    pub pid: Pid,
    pub tid: Tid,
    pub role: &'static str,
    pub mode: &'static str,
    /// The share of its time that it was running or runnable.
    pub busy: f64,
    /// The share of its time with Python on its stack; `None` if the family `cpu` has no sample of it.
    pub python: Option<f64>,
    /// Counted in bursts of a few milliseconds; `None` if it was not counted.
    pub progress_per_s: Option<f64>,
    pub queue_max: u64,
    /// `None` if the family `gil` was off.
    pub gil_wait_s: Option<f64>,
}

pub(super) fn transfers<'m>(source: &Rc<Source<'m>>) -> impl Iterator<Item = TransferOut> + use<'m> {
    let source = Rc::clone(source);
    let limit = source.limit;
    let rows = views::transfers(source.model, &source.selection);
    let out = move |(id, state, bytes): (_, &'m TransferState, _)| transfer(&source, id, state, bytes);
    rows.into_iter().take(limit).filter_map(out)
}

fn transfer(source: &Source<'_>, id: TransferId, state: &TransferState, bytes: u64) -> Option<TransferOut> {
    let model = source.model;
    let transfer = &state.transfer;
    let hex = |number: u64| format!("{number:#x}");
    let seconds = |at: Option<Nanos>| at.map(Nanos::as_secs_f64);
    Some(TransferOut {
        pid: pid(model, transfer.process)?,
        tid: transfer.tid,
        library: transfer.library,
        operation: transfer.operation,
        bytes,
        tag: transfer.tag.map(hex),
        immediate: transfer.immediate,
        delayed: transfer.is_delayed(),
        protocol: transfer.protocol,
        registered_s: seconds(transfer.registered),
        submitted_s: seconds(transfer.submitted),
        completed_s: seconds(transfer.completed),
        notified_s: seconds(state.woken.map(|woken| woken.notified)),
        woken_s: seconds(state.woken.map(|woken| woken.woken)),
        status: transfer.status,
        parent: transfer.parent.map(|parent| hex(parent.0)),
        id: hex(id.0),
        buffer: hex(transfer.buffer),
        endpoint: hex(transfer.through),
        region: views::buffer_region(model, transfer).and_then(|it| region(model, transfer.process, it)),
        submit_tid: transfer.submitter,
        complete_tid: transfer.completer,
        wake_tid: state.woken.map(|woken| woken.tid),
        stack: source.maybe_stack(model.ucx().stack(state)),
    })
}

fn region(model: &Model, process: ProcessRef, region: &Region) -> Option<BufferRegion> {
    let id = match region.id {
        RegionId::MemInfo(_) => format!("{}:{:#x}", pid(model, process)?, region.address),
        RegionId::Arena(_) | RegionId::Segment(_) => RegionOut::of(model, region.id)?.id,
    };
    let birth = views::birthplace(model, views::region_birth(model, region));
    Some(BufferRegion {
        kind: region.id.kind(),
        id,
        born_at: birth.and_then(|frame| model.frame(frame)).map(FrameOut::from),
    })
}

pub(super) fn counts(model: &Model, selection: &Selection) -> Vec<TransferCount> {
    model
        .ucx()
        .sums(selection)
        .into_iter()
        .filter_map(|(kind, sum)| {
            Some(TransferCount {
                pid: pid(model, kind.process)?,
                library: kind.library,
                operation: kind.operation,
                count: sum.count,
                bytes: sum.bytes,
                immediate: sum.immediate,
                failed: sum.failed,
                total_s: sum.spent.as_secs_f64(),
                unfollowed: sum.unfollowed,
                told_every: sum.every,
            })
        })
        .collect()
}

pub(super) fn stages(model: &Model, selection: &Selection) -> Vec<TransferStage> {
    let mut processes: BTreeMap<ProcessRef, Vec<&TransferState>> = BTreeMap::new();
    for (_, state) in model.ucx().transfers().filter(|(_, state)| views::has_transfer(selection, state)) {
        processes.entry(state.transfer.process).or_default().push(state);
    }
    let of_one = |(process, states): (ProcessRef, Vec<&TransferState>)| {
        let pid = pid(model, process)?;
        Some(views::stages(&states.into_iter()).map(|(stage, spread)| stage_out(pid, stage, &spread)))
    };
    processes.into_iter().filter_map(of_one).flatten().filter(|stage| stage.count > 0).collect()
}

fn stage_out(pid: Pid, stage: views::Stage, spread: &views::Spread) -> TransferStage {
    let buckets = spread.histogram.iter().enumerate().filter(|(_, count)| **count > 0);
    TransferStage {
        pid,
        stage: stage.name(),
        count: spread.count,
        p50_s: spread.p50.as_secs_f64(),
        p90_s: spread.p90.as_secs_f64(),
        p99_s: spread.p99.as_secs_f64(),
        max_s: spread.max.as_secs_f64(),
        histogram: buckets
            .map(|(bucket, count)| Bucket { from_s: views::bucket_start(bucket).as_secs_f64(), count: *count })
            .collect(),
    }
}

pub(super) fn queues(model: &Model, selection: &Selection) -> Vec<TransferQueue> {
    let of_one = |(process, changes): (ProcessRef, Vec<(Nanos, u64)>)| {
        Some(TransferQueue {
            pid: pid(model, process)?,
            from_s: changes.first()?.0.as_secs_f64(),
            to_s: changes.last()?.0.as_secs_f64(),
            depths: views::queue_over_time(&changes, QUEUE_PARTS),
        })
    };
    views::queues(model, selection).into_iter().filter_map(of_one).collect()
}

pub(super) fn workers(model: &Model, selection: &Selection) -> Vec<Worker> {
    let rows = views::workers(model, selection).into_iter();
    rows.filter_map(|row| {
        Some(Worker {
            pid: pid(model, row.process)?,
            tid: row.tid,
            role: row.role.name(),
            mode: row.mode,
            busy: row.busy,
            python: row.python,
            progress_per_s: row.progress,
            queue_max: row.queue_max,
            gil_wait_s: row.gil_wait.map(Nanos::as_secs_f64),
        })
    })
    .collect()
}
