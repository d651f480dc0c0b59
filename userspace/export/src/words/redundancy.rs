//! Memory accesses of native code, by the Python line that called it.

use pyobs_model::families::redundancy::{DISPATCH, EQUAL, Line, least_trials};
use pyobs_model::number::{grouped, plural};
use pyobs_model::views::{self, RedundancyView};
use pyobs_model::{Family, Model, Selection};

use super::ReportText;
use crate::escape;

/// How much the family has looked at.
pub(crate) fn looked(samples: u64, watchpoints: u64, traps: u64) -> String {
    let samples = plural(samples, "sample", "samples");
    let (watchpoints, traps) = (plural(watchpoints, "watchpoint", "watchpoints"), plural(traps, "trap", "traps"));
    format!("{samples} in native code, {watchpoints}, {traps}.")
}

/// The number of undecided lines of a recording, and the largest share of one. `None` if every line is decided.
pub fn undecided(model: &Model) -> Option<String> {
    let view = views::redundancy(model, &Selection::default());
    let (lines, found) = undecided_of(model, &view)?;
    Some(format!("{}: {lines} are undecided; {found}", Family::Redundancy.name()))
}

/// How many lines are undecided, and what would have been found.
fn undecided_of(model: &Model, view: &RedundancyView) -> Option<(String, String)> {
    let (undecided, share) = view.undecided(&view.verdicts(model));
    let lines = plural(view.lines.len() as u64, "line", "lines");
    let found =
        format!("waste at one line of more than {} of a process's time would have been found", super::share(share));
    (undecided > 0).then(|| (format!("{undecided} of {lines}"), found))
}

impl ReportText<'_> {
    pub(super) fn redundancy(&mut self) {
        self.section("Redundancy", "memory that native code accesses, by the Python line that called it");
        let (view, counts) = (views::redundancy(self.model, &Selection::default()), self.model.redundancy().counts());
        self.line(&format!("  {}", looked(counts.samples, counts.armed, counts.traps)));
        let more = [
            (counts.undecoded, "samples did not say what they access"),
            (counts.taken, "watchpoints were unavailable: a debugger or another tool uses them"),
            (counts.storms, "samples got no watchpoint: the limit of traps was reached"),
        ];
        for (count, what) in more.into_iter().filter(|(count, _)| *count > 0) {
            self.line(&format!("  {} {what}.", grouped(count)));
        }
        self.undecided(&view);
        let mut lines: Vec<_> = view.lines.iter().map(|(line, sum)| (*line, &sum.accesses)).collect();
        lines.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.weight));
        if lines.is_empty() {
            return;
        }
        self.line(&format!("{:>9}  {:>7}  {:>7}  {:>7}  line", "samples", "known", "objects", "arrays"));
        let mut has_few = false;
        for (line, sum) in lines.into_iter().take(self.limit) {
            let share = |of: f64| match sum.known() {
                0 => "-".to_owned(),
                _ if !sum.is_enough() => "few".to_owned(),
                _ => super::share(of),
            };
            has_few |= sum.known() > 0 && !sum.is_enough();
            let line = format!(
                "{:>9}  {:>7}  {:>7}  {:>7}  {}",
                grouped(sum.samples),
                grouped(sum.known()),
                share(sum.objects_share()),
                share(sum.array_share()),
                self.line_with_caller(&view, line),
            );
            self.line(&escape::line(&line, super::WIDTH));
        }
        if has_few {
            let least = least_trials(DISPATCH);
            self.line(&format!("  few: too little data. A verdict needs at least {least} known addresses."));
        }
        self.calls_again(&view);
    }

    fn undecided(&mut self, view: &RedundancyView) {
        if let Some((lines, found)) = undecided_of(self.model, view) {
            self.line(&format!("  Undecided: {lines}; {found}."));
        }
    }

    /// A line and, if it is a library's, the line of the program that led there.
    fn line_with_caller(&self, view: &RedundancyView, line: Line) -> String {
        let place = |frame| self.model.frame(frame).map_or_else(|| "-".to_owned(), |frame| super::place(frame, true));
        match view.caller(line).0 {
            caller if caller == line.frame => place(caller),
            caller => format!("{}, from {}", place(line.frame), place(caller)),
        }
    }

    fn calls_again(&mut self, view: &RedundancyView) {
        let mut calls: Vec<_> = view.calls.iter().filter(|(_, sum)| sum.same > 0).collect();
        if calls.is_empty() {
            return;
        }
        calls.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.same, sum.compared)));
        self.line(&format!(
            "{:>13}  {:>13}  calls whose arguments, or result, equal those of the previous call",
            "arguments", "result"
        ));
        for (call, sum) in calls.into_iter().take(self.limit) {
            let part = |of: u64, all: u64| match all {
                0 => "-".to_owned(),
                all if all < least_trials(EQUAL) => format!("{}/{} few", grouped(of), grouped(all)),
                all => format!("{}/{}", grouped(of), grouped(all)),
            };
            let line = format!(
                "{:>13}  {:>13}  {} at {}",
                part(sum.same, sum.compared),
                part(sum.same_results, sum.results),
                call.callee,
                self.line_with_caller(view, call.line),
            );
            self.line(&escape::line(&line, super::WIDTH));
        }
    }
}
