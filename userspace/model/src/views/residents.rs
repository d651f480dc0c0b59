//! Resident memory of processes.

use crate::{Model, Nanos, ProcessRef, Resident, Selection};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentRow {
    pub process: ProcessRef,
    pub looked: Nanos,
    pub resident: Resident,
}

/// Living processes that were examined, largest first.
pub fn residents(model: &Model, selection: &Selection) -> Vec<ResidentRow> {
    let alive = model.processes().filter(|(id, state)| selection.has_process(*id) && state.ended.is_none());
    let mut rows: Vec<ResidentRow> = alive
        .filter_map(|(process, state)| {
            let (looked, resident) = state.resident?;
            Some(ResidentRow { process, looked, resident })
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.resident.counted_once()));
    rows
}
