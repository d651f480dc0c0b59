//! Arenas of CPython's allocator, by the line that took them.

use pyobs_model::Selection;
use pyobs_model::number::{grouped, size};
use pyobs_model::views::{self, BirthRow};

use super::ReportText;
use crate::escape;
use crate::names;

const PROCESS: usize = 24;

impl ReportText<'_> {
    pub(super) fn arena(&mut self) {
        self.section("Arenas", "memory for Python objects, by the line that it was taken at");
        let rows = views::arenas(self.model, &Selection::default());
        self.births(&rows, "given back");
    }

    /// Writes birthplaces with the memory that they hold.
    pub(super) fn births(&mut self, rows: &[BirthRow], gone_how: &str) {
        if rows.is_empty() {
            return self.line("  Nothing was seen.");
        }
        let sum = |of: fn(&BirthRow) -> u64| rows.iter().map(of).sum::<u64>();
        let (live, bytes, born) = (sum(|row| row.live), sum(|row| row.bytes), sum(|row| row.born));
        let (live, held, gone) = (grouped(live), size(bytes), grouped(born.saturating_sub(live)));
        self.line(&format!("  {live} held, {held} together; {gone} {gone_how}."));
        let (first, process) = ("size", "process");
        self.line(&format!("{first:>10}  {:>7}  {:>7}  {:>6}  {process:<PROCESS$}  born at", "live", "born", "used"));
        for row in rows.iter().take(self.limit) {
            let used = row.fullness().map_or_else(|| "-".to_owned(), super::share);
            let process = self.model.process(row.process).map(|state| names::process(&state.process));
            let process = process.unwrap_or_default();
            let frame = row.frame.and_then(|frame| self.model.frame(frame));
            let line = format!(
                "{:>10}  {:>7}  {:>7}  {used:>6}  {:<PROCESS$}  {}",
                size(row.bytes),
                grouped(row.live),
                grouped(row.born),
                escape::line(&process, PROCESS),
                frame.map_or_else(|| "-".to_owned(), |frame| super::place(frame, true)),
            );
            self.line(&escape::line(&line, super::WIDTH));
        }
        self.rest(rows.len());
    }
}
