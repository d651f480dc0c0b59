//! Event loops that do not turn, because a task sleeps in a call instead of awaiting.

use std::collections::BTreeMap;

use super::cycles::place_of;
use super::{Dump, ProcessDump, State, TaskDump, TaskState, ThreadDump};
use crate::Nanos;
use crate::WaitReason;
use crate::findings::{Cost, Evidence, Finding, Severity};
use crate::number::{plural, time};

/// A shorter sleep is not worth a finding.
const LEAST_S: f64 = 0.05;

/// A finding for each thread that sleeps while its loop runs a task.
pub fn blocked_loops(dump: &Dump) -> Vec<Finding> {
    let blocked = |process: &ProcessDump| -> Vec<Finding> {
        let tasks = process.tasks.iter().flatten().filter(|task| task.state == TaskState::Running);
        let blocked = tasks.filter_map(|task| {
            let thread = process.threads.iter().find(|thread| Some(thread.tid) == task.tid)?;
            finding(process, task, thread)
        });
        blocked.collect()
    };
    dump.processes.iter().flat_map(blocked).collect()
}

fn finding(process: &ProcessDump, task: &TaskDump, thread: &ThreadDump) -> Option<Finding> {
    let asleep = thread.asleep_s.filter(|asleep| *asleep >= LEAST_S)?;
    let sleeps = matches!(thread.state, State::Asleep | State::Uninterruptible);
    if !sleeps || thread.reason == Some(WaitReason::Gil) {
        return None;
    }
    let line = thread.line()?;
    let others = process.tasks.iter().flatten().filter(|other| other.tid == task.tid).count().saturating_sub(1);
    let (place, call) = (place_of(line), thread.call.as_deref().unwrap_or("a page fault"));
    let name = task.name.as_deref().unwrap_or(&task.id);
    let task = if name.starts_with("Task-") { name.to_owned() } else { format!("Task {name}") };
    let (others, took) = (plural(others as u64, "other task", "other tasks"), time(Nanos::from_secs_f64(asleep)));
    Some(Finding {
        id: "tasks/blocked",
        severity: Severity::Serious,
        summary: format!("{} at {place} blocks the event loop for {took}, while {others} wait", line.function),
        detail: format!(
            "{task} has slept in {call} for {took}, called at {place} in {}. The event loop of thread {} does not turn \
             meanwhile, and {others} wait.",
            line.function, thread.tid
        ),
        advice: "Await an asynchronous equivalent, or move the call to a thread with `asyncio.to_thread`.".to_owned(),
        process: None,
        pid: Some(process.pid),
        evidence: BTreeMap::from([("asleep_s", Evidence::Number(asleep))]),
        cost: Cost::default(),
        target: None,
    })
}
