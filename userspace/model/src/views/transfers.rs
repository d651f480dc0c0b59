//! Transfers as a table, and the threads behind them.

use crate::Family;
use std::collections::{BTreeMap, BTreeSet};

use super::{gil_shares, queues};
use crate::families::ucx::TransferState;
use crate::{Model, Nanos, ProcessRef, Selection, Tid, TransferId, TransferThread};

/// UCXX announces the parts of a transfer of several buffers in messages of this size, each for up to 100 parts
/// (cpp/include/ucxx/header.h, HeaderFramesSize).
const HEADER_BYTES: u64 = 1209;
const HEADER_PARTS: usize = 100;

/// Whether it matches the processes, threads and times of `selection`.
pub fn has_transfer(selection: &Selection, state: &TransferState) -> bool {
    let transfer = &state.transfer;
    let ends_after = selection.from.is_none_or(|from| state.ended().is_none_or(|ended| ended >= from));
    let begins_before = selection.to.is_none_or(|to| transfer.begun().is_none_or(|begun| begun < to));
    selection.has_thread(transfer.process, transfer.tid) && ends_after && begins_before
}

/// Transfers in the order of first sight, with their bytes. A transfer of several buffers has the bytes of its parts,
/// without the header messages.
pub fn transfers<'model>(model: &'model Model, selection: &Selection) -> Vec<(TransferId, &'model TransferState, u64)> {
    let mut parts: BTreeMap<TransferId, Vec<u64>> = BTreeMap::new();
    for (_, state) in model.ucx().transfers() {
        if let Some(parent) = state.transfer.parent {
            parts.entry(parent).or_default().push(state.transfer.bytes);
        }
    }
    let all = model.ucx().transfers().filter(|(_, state)| has_transfer(selection, state));
    all.map(|(id, state)| {
        let bytes = match parts.get(&id) {
            Some(parts) if state.transfer.operation.is_multi() => payload(parts),
            _ => state.transfer.bytes,
        };
        (id, state, bytes)
    })
    .collect()
}

fn payload(parts: &[u64]) -> u64 {
    let headers = parts.len().div_ceil(HEADER_PARTS + 1);
    let announcing = parts.iter().filter(|bytes| **bytes == HEADER_BYTES).take(headers).sum::<u64>();
    // A recording may contain any numbers.
    parts.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)).saturating_sub(announcing)
}

/// The role of a thread in transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Progress,
    Notifier,
    EventLoop,
}

impl Role {
    /// The name in JSON and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Progress => "progress",
            Self::Notifier => "notifier",
            Self::EventLoop => "event_loop",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerRow {
    pub process: ProcessRef,
    pub tid: Tid,
    pub role: Role,
    /// The process's mode of making progress.
    pub mode: &'static str,
    pub thread: TransferThread,
    /// The share of its time that it was running or runnable.
    pub busy: f64,
    /// The share of its time with Python on its stack. `None` if the family `cpu` has no sample of it.
    pub python: Option<f64>,
    /// Progress calls per second, if they were counted.
    pub progress: Option<f64>,
    /// For a thread that makes progress: the most transfers that were registered but not handed to UCX at one time.
    pub queue_max: u64,
    /// `None` if the family `gil` was off.
    pub gil_wait: Option<Nanos>,
    /// How often it waited for the GIL, and how long it held it.
    pub gil_waits: u64,
    pub gil_held: Nanos,
}

/// The busy share from which a thread does nothing but poll.
const POLLS: f64 = 0.9;
/// A thread leaves progress to another one that makes more than this many times as much of it. The thread that
/// requested the last transfers completes what is left when UCXX shuts down.
const LEAVES: u64 = 10;

/// Roles take long to tell, so a moving selection is extended to all kept time.
pub fn workers(model: &Model, selection: &Selection) -> Vec<WorkerRow> {
    let shares = gil_shares(model, selection);
    let samples = samples_by_thread(model, selection);
    let mut rows = Vec::new();
    let lasting = Selection { tid: None, ..selection.lasting() };
    let threads = model.ucx().threads_in(&lasting);
    let queues = queues(model, &Selection { tid: None, ..selection.clone() });
    let deepest = |process| queues.get(process)?.iter().map(|(_, depth)| *depth).max();
    for thread in threads.iter().filter(|thread| selection.has_thread(thread.process, thread.tid)) {
        let share = shares.get(&thread.process).and_then(|share| share.threads.get(&thread.tid));
        let progress = threads.iter().filter(|other| other.process == thread.process && makes_progress(other));
        let progress = progress.max_by_key(|other| progress_made(other));
        for role in roles(thread) {
            rows.push(WorkerRow {
                process: thread.process,
                tid: thread.tid,
                role,
                mode: progress.map_or("unknown", |thread| mode(model, &threads, thread)),
                thread: *thread,
                busy: busy(thread),
                python: samples
                    .get(&(thread.process, thread.tid))
                    .map(|(python, all)| busy(thread) * *python as f64 / *all as f64),
                progress: (role == Role::Progress && thread.probed > Nanos(0))
                    .then(|| thread.progress as f64 / thread.probed.as_secs_f64()),
                queue_max: if role == Role::Progress { deepest(&thread.process).unwrap_or(0) } else { 0 },
                gil_wait: model.is_on(Family::Gil).then(|| share.map_or(Nanos(0), |share| share.wanted.total)),
                gil_waits: share.map_or(0, |share| share.wanted.count),
                gil_held: share.map_or(Nanos(0), |share| share.held),
            });
        }
    }
    rows
}

/// For the threads that work on transfers: samples with Python frames, and all samples.
fn samples_by_thread(model: &Model, selection: &Selection) -> BTreeMap<(ProcessRef, Tid), (u64, u64)> {
    let threads: BTreeSet<_> = model.ucx().threads().map(|thread| (thread.process, thread.tid)).collect();
    let mut samples = BTreeMap::new();
    if threads.is_empty() {
        return samples;
    }
    for (place, sum) in model.cpu().sums(selection) {
        let thread = (place.process, place.tid);
        if threads.contains(&thread) {
            let (python, all) = samples.entry(thread).or_insert((0, 0));
            let is_python = model.stack(place.stack).iter().any(|id| model.is_python(*id));
            *python += if is_python { sum.samples } else { 0 };
            *all += sum.samples;
        }
    }
    samples
}

fn makes_progress(thread: &TransferThread) -> bool {
    progress_made(thread) > 0
}

fn progress_made(thread: &TransferThread) -> u64 {
    thread.completed.saturating_add(thread.dispatched)
}

/// The role that a thread is shown with. If it has several, the one farthest from UCX wins, because a thread that
/// notifies, or waits to be notified, may make progress meanwhile. `None` if it does not work on transfers.
pub fn role(model: &Model, process: ProcessRef, tid: Tid) -> Option<Role> {
    model.ucx().thread(process, tid).and_then(|thread| roles(thread).max())
}

fn roles(thread: &TransferThread) -> impl Iterator<Item = Role> {
    let roles = [
        (Role::Progress, makes_progress(thread)),
        (Role::Notifier, thread.notified > 0),
        (Role::EventLoop, thread.woken > 0),
    ];
    roles.into_iter().filter(|(_, plays)| *plays).map(|(role, _)| role)
}

fn busy(thread: &TransferThread) -> f64 {
    if thread.observed == Nanos(0) {
        return 0.0;
    }
    (thread.awake.as_secs_f64() / thread.observed.as_secs_f64()).min(1.0)
}

/// A thread that makes progress for others is dedicated to it. A thread that makes its own does so in between.
fn mode(model: &Model, threads: &[TransferThread], thread: &TransferThread) -> &'static str {
    match (is_apart(model, threads, thread), busy(thread) >= POLLS) {
        (true, false) => "thread",
        (true, true) => "thread-polling",
        (false, true) => "polling",
        (false, false) => "blocking",
    }
}

/// Whether other threads request transfers or are woken, and leave progress to this one. It may request some itself,
/// because the parts of a transfer are requested where the one before them is completed. If nobody requests what
/// arrives (active messages), it must be a thread other than the first.
fn is_apart(model: &Model, threads: &[TransferThread], thread: &TransferThread) -> bool {
    let leaves = |other: &TransferThread| progress_made(other).saturating_mul(LEAVES) < progress_made(thread);
    let mut others = threads.iter().filter(|other| other.process == thread.process && other.tid != thread.tid);
    let is_first = || model.process(thread.process).is_some_and(|state| state.process.pid.0 == thread.tid.0);
    others.any(|other| (other.registered > 0 || other.woken > 0) && leaves(other))
        || (thread.registered == 0 && !is_first())
}
