//! Frames with their own and total weight.

use foldhash::HashMap;

use super::weight::add;
use super::{Groups, Look};
use crate::{FrameId, Model, ProcessRef, Selection};

/// A frame, or a frame in one process or group of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRow {
    /// The process that stands for the group ([`Groups`]).
    pub process: Option<ProcessRef>,
    pub frame: FrameId,
    /// Weight of the stacks in which it is the leaf.
    pub own: u64,
    /// Weight of the stacks in which it appears; recursion counts once.
    pub total: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FramesView {
    /// Sorted by own weight, then total weight, then frame id.
    pub rows: Vec<FrameRow>,
    /// The weight that the rows are shares of.
    pub total: u64,
}

/// Weighs the frames of the selected stacks.
pub fn frames(model: &Model, selection: &Selection, look: Look) -> FramesView {
    let groups = Groups::new(model, look.group);
    let mut counts: HashMap<(Option<ProcessRef>, FrameId), (u64, u64)> = HashMap::default();
    let mut all = 0;
    let mut seen = Vec::new();
    for (place, sum) in look.weight.sums(model, selection) {
        add(&mut all, sum);
        let process = groups.split(place.process);
        seen.clear();
        seen.extend(look.frames(model, place.stack));
        if let Some(leaf) = seen.last() {
            add(&mut counts.entry((process, *leaf)).or_default().0, sum);
        }
        seen.sort_unstable();
        seen.dedup();
        for frame in &seen {
            add(&mut counts.entry((process, *frame)).or_default().1, sum);
        }
    }
    let mut rows: Vec<FrameRow> =
        counts.into_iter().map(|((process, frame), (own, total))| FrameRow { process, frame, own, total }).collect();
    rows.sort_unstable_by(|a, b| {
        (b.own, b.total).cmp(&(a.own, a.total)).then((a.frame, a.process).cmp(&(b.frame, b.process)))
    });
    FramesView { rows, total: all }
}
