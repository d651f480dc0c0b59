//! Calls that block an event loop: a task sleeps in them instead of awaiting.

use std::collections::BTreeMap;

use super::{Cost, Evidence, Finding, Severity, Target, place, seconds};
use crate::number::{plural, time};
use crate::views::{self, BlockedRow};
use crate::{Model, Nanos, Selection, TaskKind, WaitReason};

/// A line is found if one of its sleeps is at least this long: people notice it,
const LONG: Nanos = Nanos(50_000_000);
/// or if all of them take at least this share of the time.
const SHARE: f64 = 0.02;
/// From this share of the time on, the finding is serious.
const SERIOUS: f64 = 0.2;
/// How many tasks the detail names.
const NAMED: usize = 3;

pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let since = model.offcpu().since(selection);
    let rows = views::blocked_loops(model, selection).into_iter();
    rows.filter_map(|row| blocked(model, &row, model.observed(row.process, selection, since))).collect()
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
    let others = model.tasks().alive_in(row.process).saturating_sub(1) as u64;
    let waiting = if others == 0 {
        String::new()
    } else {
        format!(", while {} waited", plural(others, "other task", "other tasks"))
    };
    let what = match row.reason {
        WaitReason::Sleep => "a sleep that is not awaited",
        WaitReason::Io | WaitReason::Poll => "input or output that is not awaited",
        WaitReason::Lock => "a lock of threads",
        _ => "a call that waits",
    };
    let is_asyncio = row.tasks.iter().any(|id| model.tasks().get(*id).is_some_and(|it| it.kind == TaskKind::Asyncio));
    let mut names: Vec<String> = row.tasks.iter().filter_map(|id| model.task_label(*id)).collect();
    names.sort_unstable();
    let rest = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let more = if rest == 0 { String::new() } else { format!(" and {}", plural(rest as u64, "other", "others")) };
    let detail = format!(
        "The event loop did not turn for {total} of {whole}, because {line} was in {what}: {sleeps}, up to {longest} at \
         a time, in {}{more}{waiting}.",
        names.join(", ")
    );
    let advice = if is_asyncio {
        "Await an asynchronous equivalent, or move the call to a thread with `asyncio.to_thread`."
    } else {
        "Await an asynchronous equivalent, or move the call to a thread."
    };
    Some(Finding {
        id: "tasks/blocked",
        severity: if share >= SERIOUS { Severity::Serious } else { Severity::Warning },
        summary: format!("{line} blocked the event loop for {total} of {whole}, up to {longest} at a time{waiting}"),
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
