//! The memory of processes by kind, and the lines that use it.

use pyobs_model::families::heap::{HeapTime, ProcessHeap};
use pyobs_model::number::{size, time};
use pyobs_model::views;

use super::ReportText;
use crate::escape;
use crate::names;

const PROCESS: usize = 24;

impl ReportText<'_> {
    pub(super) fn heap(&mut self) {
        self.section("Memory", "of processes that have ended, at the moment when they had most");
        let rows = views::heap_processes(self.model, &self.selection);
        if rows.is_empty() {
            return self.line("  Nothing was seen.");
        }
        let head = rows[0].parts().map(|(name, _)| name);
        let head: String = head.iter().map(|name| format!("  {name:>9}")).collect();
        self.line(&format!("{:>10}{head}  {:<PROCESS$}", "RSS", "process"));
        for row in rows.iter().take(self.limit) {
            let parts: String = row.parts().iter().map(|(_, bytes)| format!("  {:>9}", size(*bytes))).collect();
            let process = self.model.process(row.process).map(|state| names::process(&state.process));
            let line =
                format!("{:>10}{parts}  {}", size(row.total()), escape::line(&process.unwrap_or_default(), PROCESS));
            self.line(&line);
        }
        self.rest(rows.len());
        self.heap_lines();
    }

    fn heap_lines(&mut self) {
        self.section("Memory by line", "the line that mapped a block, else the one that touched the memory first");
        let mut rows = views::heap_lines(self.model, &self.selection);
        rows.retain(views::HeapLine::is_sampled);
        let process = "process";
        self.line(&format!(
            "{:>10}  {:>10}  {:>8}  {:<7}  {process:<PROCESS$}  line",
            "size", "touched", "age", "kind"
        ));
        for row in rows.iter().take(self.limit) {
            let Some(state) = self.model.process(row.process) else { continue };
            let heap = self.model.heap().get(row.process);
            let is_peak = heap.is_some_and(|heap| views::heap_time(heap, &self.selection) == HeapTime::Peak);
            let until = heap.filter(|_| is_peak).map_or(self.model.now(), ProcessHeap::peak_at);
            let process = names::process(&state.process);
            let frame = row.frame.and_then(|frame| self.model.frame(frame));
            let line = format!(
                "{:>10}  {:>10}  {:>8}  {:<7}  {:<PROCESS$}  {}",
                size(row.bytes),
                size(row.touched),
                time(until.saturating_sub(row.since)),
                row.used_for.name(),
                escape::line(&process, PROCESS),
                frame.map_or_else(|| "-".to_owned(), |frame| super::place(frame, true)),
            );
            self.line(&escape::line(&line, super::WIDTH));
        }
        self.rest(rows.len());
    }
}
