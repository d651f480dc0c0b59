//! The report's `heap`.

use std::rc::Rc;

use serde::Serialize;

use super::{FrameOut, StackOut, pid, source::Source};
use crate::families::heap::HeapTime;
use crate::views::{self, HeapLine, HeapProcess};
use crate::{Nanos, Pid, ProcessRef, Selection};

/// The resident memory of a process. The parts add up to `rss_bytes`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeapOut {
    pub pid: Pid,
    /// `peak` for a process that has ended, else `end`.
    pub at: &'static str,
    /// When the process had most; `None` if `at` is `end`.
    pub peak_s: Option<f64>,
    pub rss_bytes: u64,
    pub objects_bytes: u64,
    pub blocks_bytes: u64,
    pub other_bytes: u64,
    /// Anonymous memory without a known line.
    pub unknown_bytes: u64,
    pub shared_bytes: u64,
    pub files_bytes: u64,
    pub lines: Vec<HeapLineOut>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeapLineOut {
    pub kind: &'static str,
    pub bytes: u64,
    /// Includes memory that was released again.
    pub touched_bytes: u64,
    pub since_s: f64,
    /// As [`crate::views::own_line`] finds it.
    pub frame: Option<FrameOut>,
    /// The stack that leads to most of it, root first.
    pub stack: StackOut,
}

/// Sorted by size, largest first.
pub(super) fn heap<'m>(source: &Rc<Source<'m>>) -> impl Iterator<Item = HeapOut> + use<'m> {
    let source = Rc::clone(source);
    let rows = views::heap_processes(source.model, &source.selection);
    rows.into_iter().filter_map(move |row| process(&source, &row))
}

fn process(source: &Source<'_>, row: &HeapProcess) -> Option<HeapOut> {
    Some(HeapOut {
        pid: pid(source.model, row.process)?,
        at: if row.time == HeapTime::Peak { "peak" } else { "end" },
        peak_s: row.at.map(Nanos::as_secs_f64),
        rss_bytes: row.total(),
        objects_bytes: row.objects,
        blocks_bytes: row.blocks,
        other_bytes: row.other,
        unknown_bytes: row.unknown(),
        shared_bytes: row.counted.shared,
        files_bytes: row.counted.files,
        lines: lines(source, row.process),
    })
}

fn lines(source: &Source<'_>, process: ProcessRef) -> Vec<HeapLineOut> {
    let selection = Selection { processes: Some([process].into()), ..source.selection.clone() };
    let line = |line: HeapLine| HeapLineOut {
        kind: line.used_for.name(),
        bytes: line.bytes,
        touched_bytes: line.touched,
        since_s: line.since.as_secs_f64(),
        frame: line.frame.and_then(|frame| source.model.frame(frame)).map(FrameOut::from),
        stack: source.maybe_stack(line.stacks.first().map(|(stack, _)| *stack)),
    };
    views::heap_lines(source.model, &selection)
        .into_iter()
        .filter(HeapLine::is_sampled)
        .take(source.limit)
        .map(line)
        .collect()
}
