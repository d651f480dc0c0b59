//! Transfers of UCX and UCXX: counts by kind, and the durations of their stages.

use pyobs_model::number::{grouped, size, time};
use pyobs_model::{Selection, views};

use super::ReportText;
use crate::escape;
use crate::names;

const PROCESS: usize = 24;

impl ReportText<'_> {
    pub(super) fn ucx(&mut self) {
        self.section("Transfers", "of UCX and UCXX, by process and kind");
        let sums = self.model.ucx().sums(&Selection::default());
        if sums.is_empty() {
            return self.line("  Nothing was seen.");
        }
        let process = "process";
        self.line(&format!("{:>10}  {:>10}  {:>7}  {:<16}  {process:<PROCESS$}", "count", "bytes", "failed", "kind"));
        for (kind, sum) in sums.iter().take(self.limit) {
            let process = self.model.process(kind.process).map(|state| names::process(&state.process));
            let name = format!("{} {}", kind.library.name(), kind.operation.name());
            let line = format!(
                "{:>10}  {:>10}  {:>7}  {name:<16}  {}",
                grouped(sum.count),
                size(sum.bytes),
                grouped(sum.failed),
                escape::line(&process.unwrap_or_default(), PROCESS),
            );
            self.line(&escape::line(&line, super::WIDTH));
        }
        self.rest(sums.len());
        self.line("");
        self.line(&format!("{:>10}  {:>10}  {:>10}  {:>10}  stage", "count", "half", "99 %", "longest"));
        for (stage, spread) in views::stages(&self.model.ucx().transfers().map(|(_, state)| state)) {
            let (p50, p99, max) = (time(spread.p50), time(spread.p99), time(spread.max));
            self.line(&format!("{:>10}  {p50:>10}  {p99:>10}  {max:>10}  {}", grouped(spread.count), stage.name()));
        }
    }
}
