//! Processes and threads with their samples.

use std::collections::BTreeMap;

use crate::families::cpu::CpuSum;
use crate::{Model, ProcessRef, Selection, Tid};

#[derive(Clone, Debug, PartialEq)]
pub struct ProcessRow {
    pub process: ProcessRef,
    /// Selected samples of the process.
    pub cpu: CpuSum,
    /// Selected samples of each thread that has any, by tid.
    pub threads: BTreeMap<Tid, CpuSum>,
}

/// Every selected process, busiest first, including those without samples.
pub fn processes(model: &Model, selection: &Selection) -> Vec<ProcessRow> {
    let mut rows: BTreeMap<ProcessRef, ProcessRow> = model
        .processes()
        .map(|(id, _)| id)
        .filter(|id| selection.processes.as_ref().is_none_or(|set| set.contains(id)))
        .map(|process| (process, ProcessRow { process, cpu: CpuSum::default(), threads: BTreeMap::new() }))
        .collect();
    for (key, sum) in model.cpu().sums(selection) {
        if let Some(row) = rows.get_mut(&key.process) {
            row.cpu.add(sum);
            row.threads.entry(key.tid).or_default().add(sum);
        }
    }
    let mut rows: Vec<ProcessRow> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.cpu.time));
    rows
}
