//! Frames with their own and total samples.

use std::collections::HashMap;

use super::Look;
use crate::{FrameId, Model, ProcessRef, Selection};

/// One frame (of one process, when the view is split by process).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRow {
    pub process: Option<ProcessRef>,
    pub frame: FrameId,
    /// Samples in which it is the leaf.
    pub own: u64,
    /// Samples in which it appears; recursion counts once.
    pub total: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FramesView {
    /// Most own samples first, then most total ones, then in the order of frame ids.
    pub rows: Vec<FrameRow>,
    /// Samples that the rows are shares of.
    pub samples: u64,
}

/// Counts the frames of the selected samples.
pub fn frames(model: &Model, selection: &Selection, look: Look, split_by_process: bool) -> FramesView {
    let mut counts: HashMap<(Option<ProcessRef>, FrameId), (u64, u64)> = HashMap::new();
    let mut samples = 0;
    let mut seen = Vec::new();
    for (key, sum) in model.cpu().sums(selection) {
        samples += sum;
        let process = split_by_process.then_some(key.process);
        seen.clear();
        seen.extend(look.frames(model, key.stack));
        if let Some(leaf) = seen.last() {
            counts.entry((process, *leaf)).or_default().0 += sum;
        }
        seen.sort_unstable();
        seen.dedup();
        for frame in &seen {
            counts.entry((process, *frame)).or_default().1 += sum;
        }
    }
    let mut rows: Vec<FrameRow> =
        counts.into_iter().map(|((process, frame), (own, total))| FrameRow { process, frame, own, total }).collect();
    rows.sort_unstable_by(|a, b| {
        (b.own, b.total).cmp(&(a.own, a.total)).then((a.frame, a.process).cmp(&(b.frame, b.process)))
    });
    FramesView { rows, samples }
}
