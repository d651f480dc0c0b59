//! Shared memory segments, and the resident memory of processes.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use pyobs_model::families::shm::{SegmentState, SegmentVerdict};
use pyobs_model::number::{grouped, size};
use pyobs_model::views::{self, Group, own_line};
use pyobs_model::{Pid, Resident, Selection};

use super::ReportText;
use crate::escape;
use crate::names;

const NAME: usize = 28;

impl ReportText<'_> {
    pub(super) fn shm(&mut self) {
        let note = "memory that processes share, each segment counted once";
        self.section("Shared segments", note);
        let mut states: Vec<&SegmentState> = self.model.shm().segments().map(|(_, state)| state).collect();
        if states.is_empty() {
            return self.line("  Nothing was seen.");
        }
        let count = |verdict| states.iter().filter(|state| state.verdict() == verdict).count() as u64;
        let held: u64 =
            states.iter().filter(|it| it.verdict() != SegmentVerdict::Released).map(|it| it.segment.bytes).sum();
        let forgotten: u64 = self.model.shm().forgotten().map(|(_, _, sum)| sum.count).sum();
        let (live, gone, left) =
            (count(SegmentVerdict::Held), count(SegmentVerdict::Released) + forgotten, count(SegmentVerdict::Residue));
        let (live, gone, left) = (grouped(live), grouped(gone), grouped(left));
        let held = size(held);
        self.line(&format!("  {live} held, {left} left behind, {held} together; {gone} released."));
        states.sort_by_key(|state| (Reverse(state.verdict()), Reverse(state.segment.bytes)));
        self.line(&format!(
            "{:>10}  {:>7}  {:<9}  {:<8}  {:<NAME$}  made at",
            "size", "holders", "kind", "verdict", "name"
        ));
        for state in states.iter().take(self.limit) {
            let name = escape::line(state.segment.name.as_deref().unwrap_or("-"), NAME);
            let pids: BTreeSet<Pid> =
                state.holders.keys().copied().chain(state.past.iter().map(|past| past.pid)).collect();
            let line = format!(
                "{:>10}  {:>7}  {:<9}  {:<8}  {name:<NAME$}  {}",
                size(state.segment.bytes),
                pids.len(),
                state.segment.kind.name(),
                state.verdict().name(),
                self.birthplace(state),
            );
            self.line(&escape::line(&line, super::WIDTH));
        }
        self.rest(states.len());
    }

    pub(super) fn residents(&mut self) {
        let rows = views::residents(self.model, &Selection::default(), Group::None);
        if rows.is_empty() {
            return;
        }
        self.section("Memory of processes", "counted: each page of a segment once in all processes together");
        let sum = |of: fn(&Resident) -> u64| size(rows.iter().map(|row| of(&row.resident)).sum());
        let (once, total) = (sum(Resident::counted_once), sum(|it| it.total));
        self.line(&format!("  {once} counted, {total} by the sum of resident sizes."));
        self.line(&format!("{:>10}  {:>10}  {:>10}  {:>10}  process", "counted", "rss", "own", "segments"));
        for row in rows.iter().take(self.limit) {
            let it = row.resident;
            let process = self.model.process(row.process).map(|state| names::process(&state.process));
            let line = format!(
                "{:>10}  {:>10}  {:>10}  {:>10}  {}",
                size(it.counted_once()),
                size(it.total),
                size(it.anonymous),
                size(it.segments),
                process.unwrap_or_default(),
            );
            self.line(&escape::line(&line, super::WIDTH));
        }
        self.rest(rows.len());
    }

    fn birthplace(&self, state: &SegmentState) -> String {
        let line = state.stack.and_then(|stack| own_line(self.model, stack));
        let frame = line.and_then(|line| self.model.frame(line));
        frame.map_or_else(|| "-".to_owned(), |frame| super::place(frame, true))
    }
}
