//! What processes share.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use pyobs_model::families::shm::{State, Verdict};
use pyobs_model::findings::size;
use pyobs_model::{FrameKind, Pid};

use super::Letter;
use crate::escape;
use crate::names::grouped;

const NAME: usize = 28;

impl Letter<'_> {
    pub(super) fn segments(&mut self) {
        let note = "memory that processes share, each segment counted once";
        self.section("Shared segments", note);
        let mut states: Vec<&State> = self.model.shm().segments().map(|(_, state)| state).collect();
        if states.is_empty() {
            return self.line("  Nothing was seen.");
        }
        let count = |verdict| states.iter().filter(|state| state.verdict() == verdict).count() as u64;
        let held: u64 = states.iter().filter(|it| it.verdict() != Verdict::Released).map(|it| it.segment.bytes).sum();
        let (live, gone, left) = (count(Verdict::Held), count(Verdict::Released), count(Verdict::Residue));
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

    fn birthplace(&self, state: &State) -> String {
        let frames = state.stack.map_or(&[][..], |stack| self.model.stack(stack));
        let mut frames = frames.iter().rev().filter_map(|frame| self.model.frame(*frame));
        let frame = frames.find(|frame| frame.kind == FrameKind::Python);
        frame.map_or_else(|| "-".to_owned(), |frame| super::place(frame, true))
    }
}
