//! Arenas by where they were born.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::families::arena::State;
use crate::{ArenaId, FrameId, FrameKind, Model, Nanos, ProcessRef, Selection, StackId};

/// The arenas of one kind that one line of one process gave birth to.
#[derive(Clone, Debug, PartialEq)]
pub struct ArenaRow {
    pub process: ProcessRef,
    pub kind: Arc<str>,
    /// The innermost Python frame; `None` where the birth was not seen, or has none.
    pub frame: Option<FrameId>,
    /// Those that live, or did so when their process ended, and those that there have been.
    pub live: u64,
    pub born: u64,
    /// Of those that live.
    pub bytes: u64,
    /// Of those that live and were looked at.
    pub slabs: u64,
    pub used: u64,
    pub used_bytes: u64,
    /// When the first of those that live began.
    pub since: Option<Nanos>,
    pub ids: Vec<ArenaId>,
}

impl ArenaRow {
    /// The share of slabs with anything in them.
    pub fn fullness(&self) -> Option<f64> {
        (self.slabs > 0).then(|| self.used as f64 / self.slabs as f64)
    }

    fn add(&mut self, id: ArenaId, state: &State) {
        self.born += 1;
        self.ids.push(id);
        if !state.is_kept() {
            return;
        }
        self.live += 1;
        self.bytes = self.bytes.saturating_add(state.arena.bytes);
        self.since = Some(self.since.map_or(state.begun, |since| since.min(state.begun)));
        if let Some((_, filled)) = state.filled {
            self.slabs += u64::from(filled.slabs);
            self.used += u64::from(filled.used);
            self.used_bytes = self.used_bytes.saturating_add(filled.bytes);
        }
    }
}

/// Whether an arena lived in the time, and in one of the processes, that `selection` has.
pub fn is_selected(state: &State, selection: &Selection) -> bool {
    let is_picked = selection.processes.as_ref().is_none_or(|picked| picked.contains(&state.arena.process));
    let is_before = selection.to.is_none_or(|to| state.begun < to);
    let is_after = selection.from.is_none_or(|from| state.died.is_none_or(|(died, _)| died >= from));
    is_picked && is_before && is_after
}

/// The innermost Python frame of a stack.
pub fn birthplace(model: &Model, stack: Option<StackId>) -> Option<FrameId> {
    let frames = stack.map_or(&[][..], |stack| model.stack(stack));
    let is_python = |id: &&FrameId| model.frame(**id).is_some_and(|frame| frame.kind == FrameKind::Python);
    frames.iter().rev().find(is_python).copied()
}

/// Those that hold the most memory first.
pub fn arenas(model: &Model, selection: &Selection) -> Vec<ArenaRow> {
    let mut rows: BTreeMap<(ProcessRef, Arc<str>, Option<FrameId>), ArenaRow> = BTreeMap::new();
    for (id, state) in model.arenas().arenas().filter(|(_, state)| is_selected(state, selection)) {
        let (process, kind) = (state.arena.process, &state.arena.kind);
        let frame = birthplace(model, model.arenas().birth(state));
        let row = rows.entry((process, Arc::clone(kind), frame)).or_insert_with(|| ArenaRow {
            process,
            kind: Arc::clone(kind),
            frame,
            live: 0,
            born: 0,
            bytes: 0,
            slabs: 0,
            used: 0,
            used_bytes: 0,
            since: None,
            ids: Vec::new(),
        });
        row.add(id, state);
    }
    let mut rows: Vec<ArenaRow> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.bytes, row.born)));
    rows
}
