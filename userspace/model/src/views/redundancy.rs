//! Accesses of native code that Python calls, by line, within a time.

use crate::Family;
use std::collections::BTreeMap;

use super::{own_line, processes};
use crate::families::redundancy::{Accesses, CallOf, CallSum, Line, PairOf, PairSum};
use crate::{Model, Pair, PairKind, ProcessRef, RegionId, Selection};

#[derive(Clone, Debug, Default)]
pub struct RedundancyView {
    pub lines: BTreeMap<Line, Accesses>,
    pub calls: BTreeMap<CallOf, CallSum>,
    pub pairs: BTreeMap<PairOf, PairSum>,
    /// CPU time of each process, as samples at the full rate.
    samples: BTreeMap<ProcessRef, f64>,
}

impl RedundancyView {
    /// A line's native code as a share of its process's CPU time.
    pub fn share(&self, line: Line) -> f64 {
        let weight = self.lines.get(&line).map_or(0.0, |sum| sum.weight as f64);
        let all = self.samples.get(&line.process).copied().unwrap_or(0.0).max(weight);
        if all > 0.0 { weight / all } else { 0.0 }
    }

    /// The share of a call: its part of the line's samples.
    pub fn share_of_call(&self, call: &CallOf, compared: u64) -> f64 {
        let samples = self.lines.get(&call.line).map_or(0, |sum| sum.samples).max(compared).max(1);
        self.share(call.line) * compared as f64 / samples as f64
    }
}

/// A moving selection is extended to all kept time, because ten seconds prove nothing.
pub fn redundancy(model: &Model, selection: &Selection) -> RedundancyView {
    if !model.is_on(Family::Redundancy) {
        return RedundancyView::default();
    }
    let lasting = selection.lasting();
    // CPU samples may be kept for a shorter time.
    let (samples, accesses) = (model.cpu().since(&lasting), model.redundancy().since(&lasting));
    let kept = Some(samples).filter(|since| *since > accesses);
    let selection = &Selection { from: lasting.from.max(kept), ..lasting };
    let of_processes = Selection { tid: None, ..selection.clone() };
    let (family, rate) = (model.redundancy(), f64::from(model.meta().rate_hz));
    RedundancyView {
        lines: family.lines(selection),
        calls: family.calls(selection),
        pairs: family.pair_sums(selection),
        samples: processes(model, &of_processes)
            .into_iter()
            .map(|row| (row.process, row.cpu.time.as_secs_f64() * rate))
            .collect(),
    }
}

/// Pairs of stores, by the line of the second one.
pub fn stores(model: &Model, selection: &Selection, is_meant: impl Fn(&Pair) -> bool) -> BTreeMap<Line, PairSum> {
    let mut sums: BTreeMap<Line, PairSum> = BTreeMap::new();
    for (pair, _) in model.redundancy().pairs(selection) {
        if pair.kind == PairKind::Store
            && is_meant(pair)
            && let Some(frame) = own_line(model, pair.second)
        {
            sums.entry(Line { process: pair.process, frame }).or_default().add(&PairSum::of(pair));
        }
    }
    sums
}

/// Whether a pair's address lay in one of these regions, or in a region inside one. `None` if its address is unknown.
pub fn lies_in(model: &Model, pair: &Pair, is_meant: impl Fn(RegionId) -> bool) -> Option<bool> {
    let address = pair.address?;
    Some(model.regions_at_time(pair.process, address, pair.at).any(|region| is_meant(region.id)))
}
