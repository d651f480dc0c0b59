//! Frames with their CPU time and its standard error.

use std::hash::Hash;

use foldhash::HashMap;

use super::Look;
use crate::families::cpu::CpuSum;
use crate::{FrameId, Model, Nanos, Place, ProcessRef, Selection};

/// A frame in one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuRow {
    pub process: ProcessRef,
    pub frame: FrameId,
    /// Samples in which it is the leaf.
    pub own: CpuSum,
    /// Samples in which it appears; recursion counts once.
    pub total: CpuSum,
    /// The standard errors of the own and the total time.
    pub own_error: Nanos,
    pub total_error: Nanos,
}

/// A line or function, over all processes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuLineRow {
    pub frame: FrameId,
    pub own: CpuSum,
    pub total: CpuSum,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuLines {
    /// In the order of [`cpu_frames`].
    pub rows: Vec<CpuLineRow>,
    /// The sum that the rows are shares of.
    pub all: CpuSum,
}

/// The frames of the selected samples, sorted by own time, then total time, then frame id.
pub fn cpu_frames(model: &Model, selection: &Selection) -> Vec<CpuRow> {
    let (rows, all) = added(model, selection, |place, frames: &mut Vec<_>| {
        frames.extend(model.stack(place.stack).iter().map(|frame| (*frame, place.process)));
    });
    let error = |part: CpuSum| Nanos::from_secs_f64(part.share_of(&all).1 * all.time.as_secs_f64());
    rows.into_iter()
        .map(|Row { key: (frame, process), own, total }| CpuRow {
            process,
            frame,
            own,
            total,
            own_error: error(own),
            total_error: error(total),
        })
        .collect()
}

/// The lines or functions of the selected samples as `look` groups them. The weight in `look` is ignored.
pub fn cpu_lines(model: &Model, selection: &Selection, look: Look) -> CpuLines {
    let (rows, all) =
        added(model, selection, |place, frames: &mut Vec<_>| frames.extend(look.frames(model, place.stack)));
    let rows = rows.into_iter().map(|Row { key: frame, own, total }| CpuLineRow { frame, own, total }).collect();
    CpuLines { rows, all }
}

struct Row<K> {
    key: K,
    own: CpuSum,
    total: CpuSum,
}

/// Sums over the keys that `keys` extracts from each stack (root first), and over all samples.
fn added<K: Copy + Ord + Hash>(
    model: &Model,
    selection: &Selection,
    keys: impl Fn(&Place, &mut Vec<K>),
) -> (Vec<Row<K>>, CpuSum) {
    let mut sums: HashMap<K, (CpuSum, CpuSum)> = HashMap::default();
    let (mut all, mut seen) = (CpuSum::default(), Vec::new());
    for (place, sum) in model.cpu().sums(selection) {
        all.add(sum);
        seen.clear();
        keys(&place, &mut seen);
        if let Some(leaf) = seen.last() {
            sums.entry(*leaf).or_default().0.add(sum);
        }
        seen.sort_unstable();
        seen.dedup();
        for key in &seen {
            sums.entry(*key).or_default().1.add(sum);
        }
    }
    let mut rows: Vec<Row<K>> = sums.into_iter().map(|(key, (own, total))| Row { key, own, total }).collect();
    rows.sort_unstable_by(|a, b| (b.own.time, b.total.time).cmp(&(a.own.time, a.total.time)).then(a.key.cmp(&b.key)));
    (rows, all)
}
