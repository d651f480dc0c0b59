//! Tasks of event loops: what each computes, and where each blocks its loop.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::own_line;
use crate::families::cpu::CpuSum;
use crate::families::tasks::Status;
use crate::families::{Sampled, Times};
use crate::{FrameId, Model, ProcessRef, Selection, StackId, TaskId, WaitReason};

/// What a task has done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskRow {
    pub task: TaskId,
    pub cpu: CpuSum,
    /// Its sleeps, other than waits for the GIL. Each blocks the loop.
    pub blocked: Times,
    /// `None` if it has ended or was never listed.
    pub status: Option<Status>,
}

/// A task's time at a line of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TaskLine {
    pub frame: Option<FrameId>,
    pub cpu: CpuSum,
    pub blocked: Times,
}

/// A line that blocks an event loop.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockedRow {
    pub process: ProcessRef,
    pub frame: Option<FrameId>,
    pub tasks: BTreeSet<TaskId>,
    pub times: Times,
    pub sampled: Sampled,
    /// The reason with the most time.
    pub reason: WaitReason,
}

/// A coroutine that computes for long without returning to the event loop.
#[derive(Clone, Debug, PartialEq)]
pub struct StarvedRow {
    pub process: ProcessRef,
    /// The line with the most time of these turns.
    pub frame: Option<FrameId>,
    pub tasks: BTreeSet<TaskId>,
    /// Turns of loops that spent most of their CPU time in tasks of this coroutine.
    pub turns: Times,
}

/// The tasks that have run, blocked their loop or are alive: the busiest first.
pub fn tasks(model: &Model, selection: &Selection) -> Vec<TaskRow> {
    let mut sums: BTreeMap<TaskId, (CpuSum, Times)> = BTreeMap::new();
    for (place, sum) in model.cpu().sums(selection) {
        if let Some(task) = model.tasks().of(place.stack) {
            sums.entry(task).or_default().0.add(sum);
        }
    }
    for (key, sum) in model.offcpu().sums(selection) {
        if let Some(task) = model.tasks().of(key.place.stack).filter(|_| key.reason.is_of_a_call()) {
            sums.entry(task).or_default().1.add(sum.times);
        }
    }
    for (task, of) in model.tasks().alive() {
        if selection.has_process(of.process) && selection.tid.is_none() {
            sums.entry(task).or_default();
        }
    }
    let row = |(task, (cpu, blocked)): (TaskId, (CpuSum, Times))| TaskRow {
        task,
        cpu,
        blocked: blocked.settled(),
        status: model.tasks().status(task).copied(),
    };
    let mut rows: Vec<TaskRow> = sums.into_iter().map(row).collect();
    rows.sort_by_key(|row| Reverse(row.cpu.time.saturating_add(row.blocked.total)));
    rows
}

/// Where a task spent its time, most first.
pub fn task_lines(model: &Model, selection: &Selection, task: TaskId) -> Vec<TaskLine> {
    let mut lines: BTreeMap<Option<FrameId>, TaskLine> = BTreeMap::new();
    let is_its = |stack| model.tasks().of(stack) == Some(task);
    for (place, sum) in model.cpu().sums(selection).into_iter().filter(|(place, _)| is_its(place.stack)) {
        lines.entry(own_line(model, place.stack)).or_default().cpu.add(sum);
    }
    let sleeps = model.offcpu().sums(selection).into_iter();
    for (key, sum) in sleeps.filter(|(key, _)| is_its(key.place.stack) && key.reason.is_of_a_call()) {
        lines.entry(own_line(model, key.place.stack)).or_default().blocked.add(sum.times);
    }
    let line = |(frame, line): (_, TaskLine)| TaskLine { frame, blocked: line.blocked.settled(), ..line };
    let mut lines: Vec<TaskLine> = lines.into_iter().map(line).collect();
    lines.sort_by_key(|line| Reverse(line.cpu.time.saturating_add(line.blocked.total)));
    lines
}

/// The lines that block event loops, most time first.
pub fn blocked_loops(model: &Model, selection: &Selection) -> Vec<BlockedRow> {
    let mut rows: BTreeMap<(ProcessRef, Option<FrameId>), Blocked> = BTreeMap::new();
    for (key, sum) in model.offcpu().sums(selection) {
        let Some(task) = model.tasks().of(key.place.stack).filter(|_| key.reason.is_of_a_call()) else { continue };
        let row = rows.entry((key.place.process, own_line(model, key.place.stack))).or_default();
        row.tasks.insert(task);
        row.times.add(sum.times);
        row.sampled.add(sum.sampled);
        *row.reasons.entry(key.reason).or_default() += sum.times.total.0;
    }
    let row = |((process, frame), row): ((ProcessRef, Option<FrameId>), Blocked)| {
        let reason = row.reasons.into_iter().max_by_key(|(_, time)| *time)?.0;
        Some(BlockedRow { process, frame, tasks: row.tasks, times: row.times.settled(), sampled: row.sampled, reason })
    };
    let mut rows: Vec<BlockedRow> = rows.into_iter().filter_map(row).collect();
    rows.sort_by_key(|row| Reverse(row.times.total));
    rows
}

/// The coroutines that compute for long without returning to the event loop, most time first.
pub fn starved_loops(model: &Model, selection: &Selection) -> Vec<StarvedRow> {
    let mut rows: BTreeMap<(ProcessRef, Option<FrameId>), Starved> = BTreeMap::new();
    let coroutine_of = |stack: StackId| {
        let task = model.tasks().of(stack)?;
        Some((task, model.tasks().get(task)?.coroutine))
    };
    for turn in model.turns().starving(selection) {
        let mut coroutines: BTreeMap<Option<FrameId>, u64> = BTreeMap::new();
        for (stack, time) in &turn.stacks {
            *coroutines.entry(coroutine_of(*stack).map(|(_, coroutine)| coroutine)).or_default() += time.0;
        }
        let Some((coroutine, _)) = coroutines.into_iter().max_by_key(|(_, time)| *time) else { continue };
        let row = rows.entry((turn.process, coroutine)).or_default();
        row.turns.add(Times { count: 1, total: turn.length(), max: turn.length() });
        for (stack, time) in &turn.stacks {
            let of = coroutine_of(*stack);
            if of.map(|(_, coroutine)| coroutine) == coroutine {
                row.tasks.extend(of.map(|(task, _)| task));
                *row.lines.entry(own_line(model, *stack)).or_default() += time.0;
            }
        }
    }
    let row = |((process, _), row): (_, Starved)| {
        let frame = row.lines.into_iter().max_by_key(|(_, time)| *time)?.0;
        Some(StarvedRow { process, frame, tasks: row.tasks, turns: row.turns })
    };
    let mut rows: Vec<StarvedRow> = rows.into_iter().filter_map(row).collect();
    rows.sort_by_key(|row| Reverse(row.turns.total));
    rows
}

#[derive(Default)]
struct Starved {
    lines: BTreeMap<Option<FrameId>, u64>,
    tasks: BTreeSet<TaskId>,
    turns: Times,
}

/// The sums of a line that blocks an event loop.
#[derive(Default)]
struct Blocked {
    tasks: BTreeSet<TaskId>,
    times: Times,
    sampled: Sampled,
    reasons: BTreeMap<WaitReason, u64>,
}
