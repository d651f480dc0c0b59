//! What keeps an event loop from turning: calls in which a task sleeps instead of awaiting, and long computations.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cost, Evidence, Finding, Severity, Target, place, seconds};
use crate::number::{plural, time};
use crate::views::{self, BlockedRow, StarvedRow};
use crate::{Model, Nanos, ProcessRef, Selection, TaskId, TaskKind, WaitReason};

/// A line is found if one of its sleeps is at least this long: people notice it,
const LONG: Nanos = Nanos(50_000_000);
/// or if all of them take at least this share of the time.
const SHARE: f64 = 0.02;
/// From this share of the time on, the finding is serious.
const SERIOUS: f64 = 0.2;
/// How many tasks the detail names.
const NAMED: usize = 3;

/// `tasks/blocked` and `tasks/starved`.
pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let since = model.offcpu().since(selection);
    let rows = views::blocked_loops(model, selection).into_iter();
    let blocked = rows.filter_map(|row| blocked(model, &row, model.observed(row.process, selection, since)));
    let rows = views::starved_loops(model, selection).into_iter();
    let since = model.cpu().since(selection);
    let starved = rows.filter_map(|row| starved(model, &row, model.observed(row.process, selection, since)));
    blocked.chain(starved).collect()
}

/// Such as `, while 49 other tasks waited`, and their number.
fn waiting(model: &Model, process: ProcessRef) -> (String, u64) {
    let others = model.tasks().alive_in(process).saturating_sub(1) as u64;
    if others == 0 {
        return (String::new(), 0);
    }
    (format!(", while {} waited", plural(others, "other task", "other tasks")), others)
}

/// The first of these tasks by name, and how many more there are.
fn names(model: &Model, tasks: &BTreeSet<TaskId>) -> String {
    let mut names: Vec<String> = tasks.iter().filter_map(|id| model.task_label(*id)).collect();
    names.sort_unstable();
    let rest = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let more = if rest == 0 { String::new() } else { format!(" and {}", plural(rest as u64, "other", "others")) };
    names.join(", ") + &more
}

fn starved(model: &Model, row: &StarvedRow, observed: Nanos) -> Option<Finding> {
    let share = seconds(row.turns.total) / seconds(observed).max(f64::MIN_POSITIVE);
    let state = model.process(row.process)?;
    let line = place(model, row.frame);
    let (total, longest, whole) = (time(row.turns.total), time(row.turns.max), time(observed));
    let (times, (waiting, others)) = (plural(row.turns.count, "time", "times"), waiting(model, row.process));
    let tasks = names(model, &row.tasks);
    let within = if tasks.is_empty() { String::new() } else { format!(", in {tasks}") };
    Some(Finding {
        id: "tasks/starved",
        severity: if share >= SERIOUS { Severity::Serious } else { Severity::Warning },
        summary: format!(
            "{line} computed for {total} of {whole} without returning to the event loop, up to {longest} at a time{waiting}"
        ),
        detail: format!(
            "The event loop did not look for input for more than 50 ms {times}, up to {longest} at a time and {total} of \
             {whole} in all, because it computed, mostly at {line}{within}{waiting}."
        ),
        advice:
            "Compute in a process of its own (`loop.run_in_executor` with a `ProcessPoolExecutor`), or in parts with \
                 `await asyncio.sleep(0)` between them."
                .to_owned(),
        process: Some(row.process),
        pid: Some(state.process.pid),
        evidence: BTreeMap::from([
            ("starved_s", Evidence::Number(seconds(row.turns.total))),
            ("longest_s", Evidence::Number(seconds(row.turns.max))),
            ("observed_s", Evidence::Number(seconds(observed))),
            ("count", Evidence::Count(row.turns.count)),
            ("tasks_waiting", Evidence::Count(others)),
            ("line", Evidence::Text(line)),
        ]),
        cost: Cost::time(share),
        target: row.tasks.first().map(|task| Target::Task(*task)),
    })
}

fn blocked(model: &Model, row: &BlockedRow, observed: Nanos) -> Option<Finding> {
    let share = seconds(row.times.total) / seconds(observed).max(f64::MIN_POSITIVE);
    if (row.times.max < LONG && share < SHARE) || !row.sampled.is_enough() {
        return None;
    }
    let state = model.process(row.process)?;
    let line = place(model, row.frame);
    let (total, longest, whole) = (time(row.times.total), time(row.times.max), time(observed));
    let sleeps = plural(row.times.count, "time", "times");
    let (waiting, others) = waiting(model, row.process);
    let kind = row.tasks.iter().find_map(|id| model.tasks().get(*id)).map_or(TaskKind::Coroutine, |task| task.kind);
    let (held_up, advice) = match kind {
        TaskKind::Asyncio => (
            "the event loop",
            "Await an asynchronous equivalent, or move the call to a thread with `asyncio.to_thread`.",
        ),
        TaskKind::Coroutine => ("the event loop", "Await an asynchronous equivalent, or move the call to a thread."),
        TaskKind::Greenlet => (
            "the greenlets of its thread",
            "Use a call that switches to other greenlets, as after `gevent.monkey.patch_all()`, or move it to a thread.",
        ),
    };
    let instead = if kind == TaskKind::Greenlet { "that does not switch to others" } else { "that is not awaited" };
    let what = match row.reason {
        WaitReason::Sleep => format!("a sleep {instead}"),
        WaitReason::Io | WaitReason::Poll => format!("input or output {instead}"),
        WaitReason::Lock => "a lock of threads".to_owned(),
        _ => "a call that waits".to_owned(),
    };
    let detail = format!(
        "{line} blocked {held_up} for {total} of {whole}. It was in {what} {sleeps}, up to {longest} at a time, in \
         {}{waiting}.",
        names(model, &row.tasks)
    );
    Some(Finding {
        id: "tasks/blocked",
        severity: if share >= SERIOUS { Severity::Serious } else { Severity::Warning },
        summary: format!("{line} blocked {held_up} for {total} of {whole}, up to {longest} at a time{waiting}"),
        detail,
        advice: advice.to_owned(),
        process: Some(row.process),
        pid: Some(state.process.pid),
        evidence: BTreeMap::from([
            ("blocked_s", Evidence::Number(seconds(row.times.total))),
            ("longest_s", Evidence::Number(seconds(row.times.max))),
            ("observed_s", Evidence::Number(seconds(observed))),
            ("count", Evidence::Count(row.times.count)),
            ("tasks_waiting", Evidence::Count(others)),
            ("line", Evidence::Text(line)),
        ]),
        cost: Cost::time(share),
        target: row.tasks.first().map(|task| Target::Task(*task)),
    })
}
