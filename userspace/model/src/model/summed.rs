//! What a report has in sums only, and what is in none.

use std::collections::BTreeMap;

use super::Model;

impl Model {
    /// Events that are in sums only, by kind, because more came after them than are kept; and places that are only in the sums of
    /// their threads and processes. Empty where everything is kept.
    pub fn summed(&self) -> BTreeMap<&'static str, u64> {
        let ((samples, of_samples), (sleeps, of_sleeps)) = (self.sums.cpu.summed(), self.sums.offcpu.summed());
        let (gil_waits, of_waits) = self.sums.gil.summed();
        let all = [
            ("samples", samples),
            ("sleeps", sleeps),
            ("gil_waits", gil_waits),
            ("calls", self.sums.eval.summed().0),
            ("transfer_counts", self.sums.ucx.summed()),
            ("accesses", self.sums.redundancy.summed().0),
            ("places", of_samples.saturating_add(of_sleeps).saturating_add(of_waits)),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Calls and accesses that are in no sum, because there are more functions and lines than are added up.
    pub fn left_out(&self) -> BTreeMap<&'static str, u64> {
        let all = [("calls", self.sums.eval.summed().1), ("accesses", self.sums.redundancy.summed().1)];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}
