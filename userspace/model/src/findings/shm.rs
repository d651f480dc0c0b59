//! Shared segments that nobody will remove, or that were removed too early.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Cost, Evidence, Finding, Severity, Target, UNKNOWN_PLACE, own_place};
use crate::families::shm::{SegmentState, SegmentVerdict, Unlink};
use crate::number::{plural, size};
use crate::views;
use crate::{Model, Nanos, Process, SegmentId, Selection};

/// In the command line of the process that `multiprocessing` starts to clean up after others.
const TRACKER: &str = "multiprocessing.resource_tracker";

/// A resource tracker, or torch's manager, removes what is left within this time of the last user's exit.
const CLEANED: Nanos = Nanos(5_000_000_000);
/// Prefix of the segments that `torch_shm_manager` removes (aten/src/ATen/MapAllocator.cpp, NewProcessWideShmHandle). It is no
/// Python program, so the model does not know whether it still runs.
const OF_TORCH: &str = "torch_";
/// How far up the process tree to look for the process that started the tracker.
const GENERATIONS: usize = 16;

pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let selection = &selection.lasting();
    let end = selection.end().min(model.now());
    let mut found = Vec::new();
    // One finding for each line that made segments, or for each process where the line is unknown.
    let mut left: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (id, state) in views::segments(model, selection) {
        let is_cleaned = || is_fresh(state, end) && tracker(model, state, end).is_some();
        if state.verdict_at(selection.end()) == SegmentVerdict::Residue && !is_cleaned() {
            let line = own_place(model, state.stack);
            let maker = state.segment.creator.filter(|_| line == UNKNOWN_PLACE);
            left.entry((line, maker)).or_default().push((id, state));
        }
        let unlinked = state.unlinked.filter(|unlink| selection.has_time(unlink.at));
        found.extend(unlinked.and_then(|unlink| unlinked_in_use(model, id, state, &unlink)));
    }
    found.extend(left.values().map(|segments| residue(model, segments, end)));
    found
}

/// Whether the last process that held it exited a moment ago.
fn is_fresh(state: &SegmentState, end: Nanos) -> bool {
    let last = state.past.iter().filter_map(|past| past.ended).filter(|ended| *ended < end).max();
    end.saturating_sub(last.unwrap_or(state.begun)) < CLEANED
}

fn is_of_torch(state: &SegmentState) -> bool {
    state.segment.name.as_deref().is_some_and(|name| name.starts_with(OF_TORCH))
}

/// The resource tracker of the segment's creator, or of one of its ancestors, if it is still running.
fn tracker<'a>(model: &'a Model, state: &SegmentState, end: Nanos) -> Option<&'a Process> {
    let mut family = Vec::new();
    let mut next = state.segment.creator;
    while let Some(pid) = next.filter(|pid| family.len() < GENERATIONS && !family.contains(pid)) {
        family.push(pid);
        next = model.process_at(pid, state.begun).map(|(_, state)| state.process.ppid);
    }
    let lives = |ended: Option<Nanos>| ended.is_none_or(|ended| ended >= end);
    let mut processes = model.processes().map(|(_, state)| state).filter(|state| lives(state.ended));
    let is_tracker = |process: &Process| process.command.contains(TRACKER) && family.contains(&process.ppid);
    processes.find(|state| is_tracker(&state.process)).map(|state| &state.process)
}

/// A finding for segments that one line, or one process, left behind.
fn residue(model: &Model, segments: &[(SegmentId, &SegmentState)], end: Nanos) -> Finding {
    let taken = |state: &SegmentState| state.allocated.unwrap_or(state.segment.bytes);
    let largest = segments.iter().copied().max_by_key(|(id, state)| (taken(state), Reverse(*id)));
    let (id, state) = largest.unwrap_or(segments[0]);
    let bytes: u64 = segments.iter().fold(0, |sum, (_, state)| sum.saturating_add(state.segment.bytes));
    let (name, line, count) = (named(state), own_place(model, state.stack), segments.len());
    let (what, has, all, it, them) = match count {
        1 => (name, "has", size(bytes), "it", "It"),
        _ => (format!("{name} and {} more", count - 1), "have", size(bytes), "them", "They"),
    };
    let (left, names) = if count == 1 { ("is", "its name") } else { ("are", "their names") };
    let maker = match state.segment.creator {
        Some(pid) if count == 1 => format!("Process {pid} made it at {line}."),
        Some(_) => format!("{count} segments were made at {line}."),
        None => format!("{them} {} there before the recording began.", if count == 1 { "was" } else { "were" }),
    };
    let may_be_removed = is_fresh(state, end) && is_of_torch(state);
    let until = match tracker(model, state, end) {
        Some(tracker) => {
            format!(
                "the resource tracker {} removes {it} when process {} ends, and not before",
                tracker.pid, tracker.ppid
            )
        }
        None if may_be_removed => {
            format!("torch_shm_manager removes {it} if it still runs; else nobody will, and the memory stays taken")
        }
        None => format!("nobody will remove {it}, and the memory stays taken until the machine restarts"),
    };
    let detail = format!(
        "{what} {has} {all} and still {has} {names} in the folder of shared memory, but every process that held {it} has \
         ended: {until}. {maker}"
    );
    let advice = "Remove what is left from the folder of shared memory, and have the program unlink its segments when it ends, \
                  or as soon as all who need them have them.";
    let summary = format!("{what} ({all}) {left} left behind by processes that have ended");
    let mut finding = finding(model, (id, state), "shm/residue", (summary, detail, advice));
    if may_be_removed {
        finding.severity = Severity::Info;
    }
    finding.evidence.insert("segments", Evidence::Count(count as u64));
    finding.evidence.insert("bytes", Evidence::Count(bytes));
    finding.cost = Cost::bytes(segments.iter().fold(0, |sum, (_, state)| sum.saturating_add(taken(state))));
    finding
}

/// The resource tracker of a process that only attached to a segment takes it away from those that use it.
fn unlinked_in_use(model: &Model, id: SegmentId, state: &SegmentState, unlink: &Unlink) -> Option<Finding> {
    let by = unlink.by.filter(|_| unlink.users > 0)?;
    let (_, tracker) = model.process_at(by, unlink.at)?;
    if !tracker.process.command.contains(TRACKER) || Some(tracker.process.ppid) == state.segment.creator {
        return None;
    }
    let (name, line, of) = (named(state), own_place(model, state.stack), tracker.process.ppid);
    let users = unlink.users;
    let detail = format!(
        "The resource tracker {by} of process {of} removed {name} while {} held it. Nobody \
         can attach to that memory any more. It was made at {line}. Up to Python 3.12 every process that \
         attaches to a segment has its tracker remove it in the end.",
        plural(u64::from(users), "other process", "other processes"),
    );
    let advice = "Attach with track=False from Python 3.13 on; before that, take the segment from the tracker \
                  (resource_tracker.unregister).";
    let summary = format!("{name} was removed under its users by the resource tracker of process {of}");
    let mut finding = finding(model, (id, state), "shm/unlinked_in_use", (summary, detail, advice));
    finding.evidence.insert("unlinked_by", Evidence::Count(by.0.into()));
    finding.severity = Severity::Serious;
    Some(finding)
}

fn finding(
    model: &Model,
    (segment, state): (SegmentId, &SegmentState),
    id: &'static str,
    (summary, detail, advice): (String, String, &str),
) -> Finding {
    let creator = state.segment.creator;
    Finding {
        id,
        severity: Severity::Warning,
        summary,
        detail,
        advice: advice.to_owned(),
        process: creator.and_then(|pid| model.process_at(pid, state.begun)).map(|(id, _)| id),
        pid: creator,
        evidence: BTreeMap::from([
            ("segment", Evidence::Text(state.id())),
            ("name", Evidence::Text(named(state))),
            ("bytes", Evidence::Count(state.segment.bytes)),
            ("line", Evidence::Text(own_place(model, state.stack))),
        ]),
        cost: Cost::default(),
        target: Some(Target::Segment(segment)),
    }
}

fn named(state: &SegmentState) -> String {
    let kind = state.segment.kind.name();
    state.segment.name.as_deref().map_or_else(|| kind.to_owned(), str::to_owned)
}
