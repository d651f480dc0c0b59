//! When the events behind a finding happened.

use super::{Finding, Target};
use crate::families::redundancy::Line;
use crate::views::{self, Slots};
use crate::{Model, Nanos, ProcessRef, Selection, Tid};

/// Marks the slots in which they happened. All are unmarked if the events have no time.
pub fn marks(model: &Model, selection: &Selection, slots: Slots, finding: &Finding) -> Vec<bool> {
    let mut marks = vec![false; slots.count];
    for (from, to) in times(model, selection, finding) {
        if let Some((first, last)) = slots.ends(from, to) {
            marks[first..=last].fill(true);
        }
    }
    marks
}

fn times(model: &Model, selection: &Selection, finding: &Finding) -> Vec<(Nanos, Nanos)> {
    let (Some(target), process) = (finding.target, finding.process) else { return Vec::new() };
    let life = |begun: Nanos, ended: Option<Nanos>| (begun, ended.unwrap_or(model.now()));
    match (target, process) {
        (Target::Segment(id), _) => {
            model.shm().get(id).map(|state| life(state.begun, state.ended)).into_iter().collect()
        }
        (Target::GilWaits(tid), Some(process)) => waits(model, selection, process, tid),
        // A polling thread polls all the time.
        (Target::Worker(tid), Some(process)) if finding.evidence.contains_key("waits") => {
            waits(model, selection, process, tid)
        }
        (Target::Transfers(one), Some(process)) => {
            let all = one.is_none().then(|| model.ucx().transfers().map(|(_, state)| state));
            let one = one.and_then(|one| model.ucx().get(one));
            let meant = all.into_iter().flatten().chain(one).filter(|state| state.transfer.process == process);
            meant.filter_map(|state| Some(life(state.transfer.begun()?, state.ended()))).collect()
        }
        (Target::Arenas(frame), Some(process)) => {
            let all = model.arenas().arenas().map(|(_, state)| state).filter(|state| state.arena.process == process);
            let within = all.filter(|state| views::is_selected(state, selection));
            let born = within.filter(|state| views::birthplace(model, model.arenas().birth(state)) == frame);
            born.map(|state| (state.begun, state.begun)).collect()
        }
        (Target::Line(frame), Some(process)) => {
            model.redundancy().seen_at(selection, Line { process, frame }).map(|at| (at, at)).collect()
        }
        _ => Vec::new(),
    }
}

fn waits(model: &Model, selection: &Selection, process: ProcessRef, tid: Tid) -> Vec<(Nanos, Nanos)> {
    let own = Selection { processes: Some([process].into()), tid: Some(tid), ..selection.clone() };
    model.gil().waits(&own).map(|wait| (wait.from, wait.at)).collect()
}
