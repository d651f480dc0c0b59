//! Counts the events that a report has only in sums, and those in no sum.

use std::collections::BTreeMap;

use super::Model;
use crate::Nanos;

impl Model {
    /// Counts evicted processes, events, by kind, that are only in sums because too many came after them, and places that were
    /// merged into their threads or processes. Empty if everything is kept.
    pub fn summed(&self) -> BTreeMap<&'static str, u64> {
        let ((samples, of_samples), (sleeps, of_sleeps)) = (self.sums.cpu.summed(), self.sums.offcpu.summed());
        let (gil_waits, of_waits) = self.sums.gil.summed();
        let (accesses, of_accesses, _) = self.sums.redundancy.summed();
        let all = [
            ("processes", self.processes.evicted()),
            ("samples", samples),
            ("sleeps", sleeps),
            ("gil_waits", gil_waits),
            ("calls", self.sums.eval.summed().0),
            ("transfer_counts", self.sums.ucx.summed()),
            ("accesses", accesses),
            ("places", of_samples + of_sleeps + of_waits + of_accesses),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// The time from which on samples, sleeps, waits and accesses are kept one by one. Earlier ones are only in sums.
    pub fn listed_since(&self) -> Nanos {
        let all = [
            self.sums.cpu.kept_since(),
            self.sums.offcpu.kept_since(),
            self.sums.gil.kept_since(),
            self.sums.redundancy.kept_since(),
        ];
        all.into_iter().max().unwrap_or_default()
    }

    /// Counts calls and accesses that are in no sum because there are too many functions or lines.
    pub fn left_out(&self) -> BTreeMap<&'static str, u64> {
        let all = [("calls", self.sums.eval.summed().1), ("accesses", self.sums.redundancy.summed().2)];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}
