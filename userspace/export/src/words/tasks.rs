//! Tasks of event loops.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyobs_model::number::{plural, time};
use pyobs_model::views::{self, TaskRow};
use pyobs_model::{FrameId, Nanos, ProcessRef, Selection, Task};

use super::waits::PLACE;
use super::{ReportText, WIDTH, place};
use crate::escape;

impl ReportText<'_> {
    pub(super) fn tasks(&mut self) {
        if self.model.tasks().is_empty() {
            return; // few programs have an event loop
        }
        self.section("Tasks", "CPU time, the time for which its sleeps blocked the event loop, where it is");
        let rows = views::tasks(self.model, &Selection::default());
        let (busy, idle): (Vec<&TaskRow>, Vec<&TaskRow>) =
            rows.iter().partition(|row| row.cpu.samples > 0 || row.blocked.count > 0);
        let (cpu, blocked, longest) = ("CPU time", "blocked", "longest");
        self.line(&format!("{cpu:>10}  {blocked:>10}  {longest:>9}  {:>7}  {:<PLACE$}  task", "pid", "line"));
        for row in busy.iter().take(self.limit) {
            self.task(row);
        }
        self.rest(busy.len());
        self.idle(&idle);
    }

    /// Tasks that only wait, by coroutine and line.
    fn idle(&mut self, rows: &[&TaskRow]) {
        let mut groups: BTreeMap<(ProcessRef, FrameId, FrameId), u64> = BTreeMap::new();
        for row in rows {
            if let Some(task) = self.model.tasks().get(row.task) {
                *groups.entry((task.process, task.coroutine, self.line_of(row, task))).or_default() += 1;
            }
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, count)| Reverse(*count));
        for ((process, coroutine, line), count) in groups.iter().take(self.limit) {
            let Some(state) = self.model.process(*process) else { continue };
            let [Some(function), Some(line)] = [coroutine, line].map(|frame| self.model.frame(*frame)) else {
                continue;
            };
            let (tasks, place) = (format!("{} idle", plural(*count, "task", "tasks")), place(line, true));
            self.line(&format!(
                "{tasks:>33}  {:>7}  {:<PLACE$}  {}",
                state.process.pid,
                escape::tail(&place, PLACE),
                escape::line(&function.function, WIDTH - PLACE - 46)
            ));
        }
        self.rest(groups.len());
    }

    /// The line of the program where a task waits.
    fn line_of(&self, row: &TaskRow, task: &Task) -> FrameId {
        row.status.and_then(|status| views::own_line(self.model, status.stack)).unwrap_or(task.coroutine)
    }

    fn task(&mut self, row: &TaskRow) {
        let Some(task) = self.model.tasks().get(row.task) else { return };
        let Some(process) = self.model.process(task.process) else { return };
        let dash = |of: Nanos| if of == Nanos(0) { "-".to_owned() } else { time(of) };
        let place = self.model.frame(self.line_of(row, task)).map_or_else(String::new, |frame| place(frame, true));
        let begin = format!(
            "{:>10}  {:>10}  {:>9}  {:>7}",
            dash(row.cpu.time),
            dash(row.blocked.total),
            dash(row.blocked.max),
            process.process.pid
        );
        let label = self.model.task_label(row.task).unwrap_or_default();
        let left = WIDTH.saturating_sub(begin.chars().count() + PLACE + 4);
        self.line(&format!("{begin}  {:<PLACE$}  {}", escape::tail(&place, PLACE), escape::line(&label, left)));
    }
}
