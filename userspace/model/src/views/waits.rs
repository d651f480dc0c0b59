//! What threads wait for.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{By, Group, Groups};
use crate::families::gil::GilSum;
use crate::families::offcpu::SleepSum;
use crate::families::{Sampled, Times};
use crate::{
    Frame, FrameId, FrameKind, Model, Nanos, Place, ProcessRef, Selection, Sleep, StackId, Tid, WaitReason, Waker,
};

/// Whole sleeps: one that was reported in pieces while it lasted is merged. Of a sleep that began before the selection,
/// only the part inside remains.
pub fn whole_sleeps(model: &Model, selection: &Selection) -> Vec<Sleep> {
    let mut whole: Vec<Sleep> = Vec::new();
    let mut latest: BTreeMap<(ProcessRef, Tid), usize> = BTreeMap::new();
    for sleep in model.offcpu().sleeps(selection) {
        let thread = (sleep.process, sleep.tid);
        let before = latest.get(&thread).map(|index| &mut whole[*index]);
        match before.filter(|before| sleep.count == 0 && before.stack == sleep.stack && before.at <= sleep.at) {
            Some(before) => {
                before.length = before.length.saturating_add(sleep.at.saturating_sub(before.at));
                before.total = before.total.saturating_add(sleep.total);
                (before.at, before.waker) = (sleep.at, sleep.waker);
            }
            None => {
                latest.insert(thread, whole.len());
                let length = if sleep.count == 0 { sleep.total } else { sleep.length };
                whole.push(Sleep { length, ..sleep });
            }
        }
    }
    whole
}

/// Sleeps at one place for one reason: of a thread, or of all threads of a group of processes.
#[derive(Clone, Debug, PartialEq)]
pub struct SleepRow {
    pub process: ProcessRef,
    /// 0 for all threads of a group.
    pub tid: Tid,
    pub reason: WaitReason,
    /// The innermost Python frame.
    pub frame: Option<FrameId>,
    /// The native or kernel function below it, in which the thread waits.
    pub inner: Option<FrameId>,
    pub times: Times,
    pub sampled: Sampled,
    /// Share of the time that the thread was watched, at most 1.
    pub share: f64,
    /// The waker with the largest total of sleep that it ended.
    pub waker: Option<Waker>,
}

/// Waits at one place for the GIL, behind another place: between two threads, or between those of a group of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GilRow {
    pub process: ProcessRef,
    /// 0 for all threads of a group, as is the holder.
    pub waiter: Tid,
    /// The innermost Python frame of the waiter.
    pub frame: Option<FrameId>,
    pub holder: Option<Tid>,
    /// The innermost Python frame of the holder.
    pub holder_frame: Option<FrameId>,
    /// A wait counts under the thread that held the GIL when it began. The maximum is the longest whole wait that was
    /// at least partly here.
    pub times: Times,
    pub sampled: Sampled,
}

/// How much of the time a process's GIL was held, and how much threads waited for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GilShare {
    /// The time that the others are shares of.
    pub observed: Nanos,
    pub held: Nanos,
    /// Over all threads. If stacks were sampled, the time is exact, but the count is of pieces of waits, and the
    /// maximum is a piece.
    pub wanted: Times,
    pub sampled: Sampled,
    pub threads: BTreeMap<Tid, GilThread>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GilThread {
    pub held: Nanos,
    pub wanted: Times,
    pub sampled: Sampled,
}

impl GilShare {
    /// At most 1.
    pub fn held_share(&self) -> f64 {
        share(self.held, self.observed)
    }

    /// How many threads waited on average: more than 1 if they queued up.
    pub fn wanted_share(&self) -> f64 {
        ratio(self.wanted.total, self.observed)
    }

    /// The thread that held the GIL longest.
    pub fn holder(&self) -> Option<(Tid, GilThread)> {
        let threads = self.threads.iter().filter(|(_, thread)| thread.held > Nanos(0));
        threads.max_by_key(|(tid, thread)| (thread.held, Reverse(**tid))).map(|(tid, thread)| (*tid, *thread))
    }
}

/// Sorted by time, most first.
pub fn sleeps(model: &Model, selection: &Selection, by: By, group: Group) -> Vec<SleepRow> {
    let groups = Groups::new(model, group);
    let sums = model.offcpu().sums(selection);
    let mut rows: BTreeMap<_, SleepSum<'_>> = BTreeMap::new();
    for (key, sum) in sums {
        let Place { process, tid, stack } = key.place;
        let frame = python_leaf(model, stack, by);
        let (process, tid) = groups.thread(process, tid);
        // A limit stops a thread anywhere, so the native function means nothing.
        let inner = if key.reason == WaitReason::Throttled { None } else { inner(model, stack) };
        rows.entry((process, tid, key.reason, frame, inner)).or_default().add(sum);
    }
    let since = model.offcpu().since(selection);
    let row = |((process, tid, reason, frame, inner), sum): ((ProcessRef, _, _, _, _), SleepSum<'_>)| SleepRow {
        process,
        tid,
        reason,
        frame,
        inner,
        times: sum.times.settled(),
        sampled: sum.sampled,
        share: share(sum.times.total, model.observed(process, selection, since)),
        waker: sum.wakers.most().first().map(|(waker, _)| (*waker).clone()),
    };
    let mut rows: Vec<SleepRow> = rows.into_iter().map(row).collect();
    rows.sort_by_key(|row| Reverse(row.times.total));
    rows
}

/// Sorted by time, most first.
pub fn gil_waits(model: &Model, selection: &Selection, by: By, group: Group) -> Vec<GilRow> {
    let groups = Groups::new(model, group);
    let mut rows: BTreeMap<_, GilSum> = BTreeMap::new();
    for (key, times) in model.gil().sums(selection) {
        let Place { process, tid, stack } = key.waiter;
        let holder_frame = key.holder.and_then(|holder| python_leaf(model, holder.stack, by));
        let holder = key.holder.map(|holder| groups.thread(process, holder.tid).1);
        let (process, tid) = groups.thread(process, tid);
        let row = (process, tid, python_leaf(model, stack, by), holder, holder_frame);
        rows.entry(row).or_default().add(times);
    }
    let row = |((process, waiter, frame, holder, holder_frame), GilSum { times, sampled })| GilRow {
        process,
        waiter,
        frame,
        holder,
        holder_frame,
        times: times.settled(),
        sampled,
    };
    let mut rows: Vec<GilRow> = rows.into_iter().map(row).collect();
    rows.sort_by_key(|row| Reverse(row.times.total));
    rows
}

/// Covers each process with a thread that held the GIL or waited for it. A sum of many processes has no shares.
pub fn gil_shares(model: &Model, selection: &Selection) -> BTreeMap<ProcessRef, GilShare> {
    let mut shares: BTreeMap<ProcessRef, GilShare> = BTreeMap::new();
    for ((process, tid), held) in model.gil().held(selection) {
        let share = shares.entry(process).or_default();
        share.held = share.held.saturating_add(held);
        share.threads.entry(tid).or_default().held = held;
    }
    for (key, GilSum { times, sampled }) in model.gil().sums(selection) {
        let share = shares.entry(key.waiter.process).or_default();
        share.wanted.add(times);
        share.sampled.add(sampled);
        let thread = share.threads.entry(key.waiter.tid).or_default();
        thread.wanted.add(times);
        thread.sampled.add(sampled);
    }
    shares.remove(&ProcessRef::OTHERS);
    let since = model.gil().since(selection);
    for (process, share) in &mut shares {
        share.observed = model.observed(*process, selection, since);
    }
    shares
}

fn share(part: Nanos, whole: Nanos) -> f64 {
    ratio(part, whole).min(1.0)
}

fn ratio(part: Nanos, whole: Nanos) -> f64 {
    if whole == Nanos(0) { 0.0 } else { part.0 as f64 / whole.0 as f64 }
}

fn python_leaf(model: &Model, stack: StackId, by: By) -> Option<FrameId> {
    let leaf = model.stack(stack).iter().rfind(|id| is(model, **id, FrameKind::Python));
    leaf.map(|id| by.frame(model, *id))
}

/// The innermost native function below Python. If the stack goes straight into the kernel, the system call.
fn inner(model: &Model, stack: StackId) -> Option<FrameId> {
    let stack = model.stack(stack);
    let python = stack.iter().rposition(|id| is(model, *id, FrameKind::Python));
    let below = &stack[python.map_or(0, |at| at + 1)..];
    let native = below.iter().rfind(|id| is(model, **id, FrameKind::Native));
    let call = || below.iter().find(|id| model.frame(**id).is_some_and(is_system_call));
    native.or_else(call).or(below.last()).map(|id| model.function_of(*id))
}

fn is(model: &Model, frame: FrameId, kind: FrameKind) -> bool {
    model.frame(frame).is_some_and(|frame| frame.kind == kind)
}

fn is_system_call(frame: &Frame) -> bool {
    frame.kind == FrameKind::Kernel && frame.function.starts_with("__x64_sys_")
}
