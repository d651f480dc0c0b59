//! Frames with their CPU time and the samples that it rests on.

use foldhash::HashMap;

use crate::families::cpu::Sum;
use crate::{FrameId, Model, Nanos, ProcessRef, Selection};

/// A frame of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuRow {
    pub process: ProcessRef,
    pub frame: FrameId,
    /// Samples in which it is the leaf.
    pub own: Sum,
    /// Samples in which it appears; recursion counts once.
    pub total: Sum,
    /// The standard error of the own time.
    pub own_error: Nanos,
}

/// The frames of the selected samples: most own time first, then most total, then in the order of frame ids.
pub fn cpu_frames(model: &Model, selection: &Selection) -> Vec<CpuRow> {
    let mut sums: HashMap<(ProcessRef, FrameId), (Sum, Sum)> = HashMap::default();
    let (mut all, mut seen) = (Sum::default(), Vec::new());
    for (place, sum) in model.cpu().sums(selection) {
        all.add(sum);
        seen.clear();
        seen.extend_from_slice(model.stack(place.stack));
        if let Some(leaf) = seen.last() {
            sums.entry((place.process, *leaf)).or_default().0.add(sum);
        }
        seen.sort_unstable();
        seen.dedup();
        for frame in &seen {
            sums.entry((place.process, *frame)).or_default().1.add(sum);
        }
    }
    let row = |((process, frame), (own, total)): (_, (Sum, Sum))| {
        let (_, error) = own.share_of(&all);
        let own_error = Nanos::from_secs_f64(error * all.time.as_secs_f64());
        CpuRow { process, frame, own, total, own_error }
    };
    let mut rows: Vec<CpuRow> = sums.into_iter().map(row).collect();
    rows.sort_unstable_by(|a, b| {
        (b.own.time, b.total.time)
            .cmp(&(a.own.time, a.total.time))
            .then((a.frame, a.process).cmp(&(b.frame, b.process)))
    });
    rows
}
