//! Resident memory of processes.

use std::collections::BTreeMap;

use super::{Group, Groups};
use crate::{Model, Nanos, ProcessRef, Resident, Selection};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentRow {
    pub process: ProcessRef,
    pub looked: Nanos,
    pub resident: Resident,
}

/// Living processes that were examined, or groups of them, largest first.
pub fn residents(model: &Model, selection: &Selection, group: Group) -> Vec<ResidentRow> {
    let groups = Groups::new(model, group);
    let mut rows: BTreeMap<ProcessRef, ResidentRow> = BTreeMap::new();
    let alive = model.processes().filter(|(id, state)| selection.has_process(*id) && state.ended.is_none());
    for (process, state) in alive {
        let Some((looked, resident)) = state.resident else { continue };
        let process = groups.of(process);
        let row = rows.entry(process).or_insert(ResidentRow { process, looked, resident: Resident::default() });
        row.looked = row.looked.min(looked);
        row.resident.add(resident);
    }
    let mut rows: Vec<ResidentRow> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.resident.counted_once()));
    rows
}
