//! Arenas and MemInfos by birth line.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::families::Forgotten;
use crate::families::arena::ArenaState;
use crate::{ArenaId, FrameId, Model, Nanos, ProcessRef, Region, RegionId, Selection, StackId, Transfer};

/// The arenas of one kind, or the MemInfos, born at one line of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct BirthRow {
    pub process: ProcessRef,
    pub kind: Arc<str>,
    /// The innermost Python frame; `None` if the birth was not seen, or had none.
    pub frame: Option<FrameId>,
    /// Live ones, or those alive when their process ended, and the total ever born.
    pub live: u64,
    pub born: u64,
    /// Bytes of the live ones.
    pub bytes: u64,
    /// Slabs of the live ones that were examined.
    pub slabs: u64,
    pub used: u64,
    pub used_bytes: u64,
    /// When the oldest live one began.
    pub since: Option<Nanos>,
    /// Only for arenas.
    pub ids: Vec<ArenaId>,
    /// One of their birth stacks.
    pub stack: Option<StackId>,
}

impl BirthRow {
    /// The share of slabs in use.
    pub fn fullness(&self) -> Option<f64> {
        (self.slabs > 0).then(|| self.used as f64 / self.slabs as f64)
    }

    fn new(process: ProcessRef, kind: Arc<str>, frame: Option<FrameId>, stack: Option<StackId>) -> Self {
        let (live, born, bytes, slabs, used, used_bytes) = (0, 0, 0, 0, 0, 0);
        let (since, ids) = (None, Vec::new());
        Self { process, kind, frame, live, born, bytes, slabs, used, used_bytes, since, ids, stack }
    }

    fn add_forgotten(&mut self, sum: Forgotten) {
        self.born += sum.count;
        self.live += sum.kept;
        self.bytes = self.bytes.saturating_add(sum.kept_bytes);
    }

    /// Adds an arena as it was just before `end`. Its fullness is from the last examination.
    fn add(&mut self, id: ArenaId, state: &ArenaState, end: Nanos) {
        self.born += 1;
        self.ids.push(id);
        if !state.is_kept_at(end) {
            return;
        }
        self.live += 1;
        self.bytes = self.bytes.saturating_add(state.held());
        self.since = Some(self.since.map_or(state.begun, |since| since.min(state.begun)));
        if let Some((_, filled)) = state.filled {
            self.slabs += u64::from(filled.slabs);
            self.used += u64::from(filled.used);
            self.used_bytes = self.used_bytes.saturating_add(filled.bytes);
        }
    }
}

/// Whether an arena lived in the time and in one of the processes of `selection`.
pub fn is_selected(state: &ArenaState, selection: &Selection) -> bool {
    let is_picked = selection.processes.as_ref().is_none_or(|picked| picked.contains(&state.arena.process));
    let is_before = selection.to.is_none_or(|to| state.begun < to);
    let is_after = selection.from.is_none_or(|from| state.died.is_none_or(|(died, _)| died >= from));
    is_picked && is_before && is_after
}

/// The innermost Python frame of a stack.
pub fn birthplace(model: &Model, stack: Option<StackId>) -> Option<FrameId> {
    let frames = stack.map_or(&[][..], |stack| model.stack(stack));
    frames.iter().rev().find(|id| model.is_python(**id)).copied()
}

/// The innermost region that contained a transfer's buffer when the transfer was requested.
pub fn buffer_region<'model>(model: &'model Model, transfer: &Transfer) -> Option<&'model Region> {
    model.region_at_time(transfer.process, transfer.buffer, transfer.begun()?)
}

/// The birth stack of the segment, arena or MemInfo that a region is part of.
pub fn region_birth(model: &Model, region: &Region) -> Option<StackId> {
    match region.id {
        RegionId::Segment(id) => model.shm().get(id)?.stack,
        RegionId::Arena(id) => model.arenas().birth(model.arenas().get(id)?),
        RegionId::MemInfo(_) => region.stack,
    }
}

/// Sorted by the memory they hold, most first.
pub fn arenas(model: &Model, selection: &Selection) -> Vec<BirthRow> {
    let mut rows: BTreeMap<(ProcessRef, Arc<str>, Option<FrameId>), BirthRow> = BTreeMap::new();
    let mut put = |process: ProcessRef, kind: &Arc<str>, stack: Option<StackId>, add: &dyn Fn(&mut BirthRow)| {
        let frame = birthplace(model, stack);
        let new = || BirthRow::new(process, Arc::clone(kind), frame, stack);
        add(rows.entry((process, Arc::clone(kind), frame)).or_insert_with(new));
    };
    let end = selection.end();
    for (id, state) in model.arenas().arenas().filter(|(_, state)| is_selected(state, selection)) {
        put(state.arena.process, &state.arena.kind, model.arenas().birth(state), &|row| row.add(id, state, end));
    }
    // The lifetimes of forgotten arenas are unknown.
    let forgotten = model.arenas().forgotten().filter(|_| selection.from.or(selection.to).is_none());
    for (birth, sum) in forgotten.filter(|(birth, _)| selection.has_process(birth.process)) {
        put(birth.process, &birth.kind, birth.stack, &|row| row.add_forgotten(sum));
    }
    let mut rows: Vec<BirthRow> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.bytes, row.born)));
    rows
}

/// Sorted by the memory they hold, most first.
pub fn meminfos(model: &Model, selection: &Selection) -> Vec<BirthRow> {
    let kind: Arc<str> = Arc::from("MemInfo");
    let mut rows: BTreeMap<(ProcessRef, Option<FrameId>), BirthRow> = BTreeMap::new();
    for (site, sum) in model.nrt().sums().filter(|(site, _)| selection.has_process(site.process)) {
        let (process, stack) = (site.process, Some(site.stack));
        let frame = birthplace(model, stack);
        let row =
            rows.entry((process, frame)).or_insert_with(|| BirthRow::new(process, Arc::clone(&kind), frame, stack));
        row.live += sum.live();
        row.born += sum.born;
        row.bytes = row.bytes.saturating_add(sum.bytes);
        row.since = [row.since, sum.since()].into_iter().flatten().min();
    }
    let mut rows: Vec<BirthRow> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.bytes, row.born)));
    rows
}
