//! What native code that Python calls accesses, by line, of a time.

use std::collections::BTreeMap;

use super::processes;
use crate::families::redundancy::{Accesses, CallOf, CallSum, Line, PairOf, PairSum};
use crate::{Model, ProcessRef, Selection};

#[derive(Clone, Debug, Default)]
pub struct RedundancyView {
    pub lines: BTreeMap<Line, Accesses>,
    pub calls: BTreeMap<CallOf, CallSum>,
    pub pairs: BTreeMap<PairOf, PairSum>,
    /// Of CPU time, by process.
    samples: BTreeMap<ProcessRef, u64>,
}

impl RedundancyView {
    /// The share of a process's samples.
    pub fn share(&self, process: ProcessRef, samples: u64) -> f64 {
        let all = self.samples.get(&process).copied().unwrap_or(0).max(samples);
        samples as f64 / all.max(1) as f64
    }
}

/// Ten seconds are too few to prove anything: of a time that moves, all that is kept.
pub fn redundancy(model: &Model, selection: &Selection) -> RedundancyView {
    if !model.is_on("redundancy") {
        return RedundancyView::default();
    }
    let lasting = selection.lasting();
    // Not more than there are samples for.
    let kept = Some(model.cpu().since()).filter(|since| *since > model.redundancy().since());
    let selection = &Selection { from: lasting.from.max(kept), ..lasting };
    let of_processes = Selection { tid: None, ..selection.clone() };
    let family = model.redundancy();
    RedundancyView {
        lines: family.lines(selection),
        calls: family.calls(selection),
        pairs: family.pair_sums(selection),
        samples: processes(model, &of_processes).into_iter().map(|row| (row.process, row.samples)).collect(),
    }
}
