//! The rows: processes with their threads, or groups with their processes.

use std::collections::BTreeMap;

use pyobs_model::families::cpu::CpuSum;
use pyobs_model::views::{Group, Groups, ProcessRow};
use pyobs_model::{Model, Nanos, Placement, ProcessRef, ProcessState};

use crate::scope::Picked;

/// A process or a thread of it, or a group of processes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProcessLine {
    /// For a group, the process that stands for it.
    pub(super) picked: Picked,
    pub(super) cpu: CpuSum,
    pub(super) group: Option<GroupSums>,
}

/// What the processes of a group add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct GroupSums {
    pub(super) processes: usize,
    threads: usize,
    resident: u64,
}

impl GroupSums {
    fn add(&mut self, state: &ProcessState) {
        self.processes += 1;
        self.threads += state.threads.len();
        self.resident = self.resident.saturating_add(resident(state).unwrap_or(0));
    }
}

/// A row, and whether it is that of a group.
pub(super) type ProcessKey = (Picked, bool);

/// A row for each group, followed by its processes: those that are alive at `end` or have samples.
pub(super) fn grouped(model: &Model, group: Group, processes: &[ProcessRow], end: Nanos) -> Vec<ProcessLine> {
    let groups = Groups::new(model, group);
    let mut lines: BTreeMap<ProcessRef, (ProcessLine, Vec<ProcessLine>)> = BTreeMap::new();
    for ProcessRow { process, cpu, .. } in processes {
        let Some(state) = model.process(*process) else { continue };
        if !state.is_alive(end) && cpu.samples == 0 {
            continue;
        }
        let line = |process, cpu, group| ProcessLine { picked: Picked { process, tid: None }, cpu, group };
        let first = groups.of(*process);
        let sums = || (line(first, CpuSum::default(), Some(GroupSums::default())), Vec::new());
        let (head, members) = lines.entry(first).or_insert_with(sums);
        head.cpu.add(*cpu);
        head.group.get_or_insert_default().add(state);
        members.push(line(*process, *cpu, None));
    }
    lines.into_values().flat_map(|(head, members)| std::iter::once(head).chain(members)).collect()
}

fn resident(state: &ProcessState) -> Option<u64> {
    state.resident.map(|(_, resident)| resident.total)
}

pub(super) fn memory(line: &ProcessLine, model: &Model) -> Option<u64> {
    match line.group {
        Some(group) => Some(group.resident).filter(|bytes| *bytes > 0),
        None => model.process(line.picked.process).and_then(resident),
    }
}

pub(super) fn threads(line: &ProcessLine, model: &Model) -> usize {
    let of_process = || model.process(line.picked.process).map_or(0, |state| state.threads.len());
    line.group.map_or_else(of_process, |group| group.threads)
}

/// The user's name, or else its number.
pub(super) fn user(state: &ProcessState) -> String {
    let Placement { user, uid, .. } = &state.placement;
    let number = || uid.map_or_else(|| "–".to_owned(), |uid| uid.to_string());
    user.as_ref().map_or_else(number, ToString::to_string)
}

pub(super) fn container(state: &ProcessState) -> Option<&str> {
    state.placement.container.as_ref().map(|container| container.short_name())
}
