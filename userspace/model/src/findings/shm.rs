//! Shared segments that nobody will remove, or that were removed too early.

use std::collections::BTreeMap;

use super::{Cost, Evidence, Finding, Severity, Target, own_place, size};
use crate::families::shm::{State, Unlink, Verdict};
use crate::views;
use crate::{Model, SegmentId, Selection};

/// In the command line of the process that `multiprocessing` starts to clean up after others.
const TRACKER: &str = "multiprocessing.resource_tracker";

pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let selection = &selection.lasting();
    let mut found = Vec::new();
    for (id, state) in views::segments(model, selection) {
        if state.verdict_at(selection.end()) == Verdict::Residue {
            found.push(residue(model, id, state));
        }
        let unlinked = state.unlinked.filter(|unlink| selection.has_time(unlink.at));
        found.extend(unlinked.and_then(|unlink| unlinked_in_use(model, id, state, &unlink)));
    }
    found
}

fn residue(model: &Model, id: SegmentId, state: &State) -> Finding {
    let (name, size, line) = (named(state), size(state.segment.bytes), own_place(model, state.stack));
    let maker = match state.segment.creator {
        Some(pid) => format!("Process {pid} made it at {line}."),
        None => "It was there before the recording began.".to_owned(),
    };
    let detail = format!(
        "{name} has {size} and still has its name in the folder of shared memory, but every process that held it has \
         ended: nobody will remove it, and its memory stays taken until the machine restarts. {maker}"
    );
    let advice = "Remove it from the folder of shared memory, and have the program unlink its segments when it ends, \
                  or as soon as all who need them have them.";
    let summary = format!("{name} ({size}) is left behind by processes that have ended");
    let mut finding = finding(model, (id, state), "shm/residue", (summary, detail, advice));
    finding.cost = Cost::bytes(state.allocated.unwrap_or(state.segment.bytes));
    finding
}

/// The resource tracker of a process that only attached to a segment takes it away from those that use it.
fn unlinked_in_use(model: &Model, id: SegmentId, state: &State, unlink: &Unlink) -> Option<Finding> {
    let by = unlink.by.filter(|_| unlink.users > 0)?;
    let (_, tracker) = model.process_at(by, unlink.at)?;
    if !tracker.process.command.contains(TRACKER) || Some(tracker.process.ppid) == state.segment.creator {
        return None;
    }
    let (name, line, of) = (named(state), own_place(model, state.stack), tracker.process.ppid);
    let users = unlink.users;
    let detail = format!(
        "The resource tracker {by} of process {of} removed {name} while {users} other process(es) held it: those go on \
         with memory that nobody can attach to any more. It was made at {line}. Up to Python 3.12 every process that \
         attaches to a segment has its tracker remove it in the end."
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
    (segment, state): (SegmentId, &State),
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

fn named(state: &State) -> String {
    let kind = state.segment.kind.name();
    state.segment.name.as_deref().map_or_else(|| kind.to_owned(), str::to_owned)
}
