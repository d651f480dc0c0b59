//! The rows: processes with their threads, or groups with their processes.

use std::collections::{BTreeMap, HashMap, HashSet};

use pyobs_model::families::cpu::CpuSum;
use pyobs_model::views::{Group, Groups, ProcessRow};
use pyobs_model::{Model, Nanos, Pid, Placement, ProcessRef, ProcessState};

use crate::scope::Picked;

/// Limits the depth to which children are indented.
const DEPTH_MAX: usize = 16;

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

/// The parent of each process, if that is among them too. Of several processes with one pid, the last one counts.
pub(super) fn parents(model: &Model, processes: &[ProcessRow]) -> HashMap<ProcessRef, ProcessRef> {
    let state = |row: &ProcessRow| Some((row.process, model.process(row.process)?));
    let mut by_pid: HashMap<Pid, ProcessRef> = HashMap::new();
    for (id, state) in processes.iter().filter_map(state) {
        by_pid.entry(state.process.pid).and_modify(|last| *last = id.max(*last)).or_insert(id);
    }
    let parent = |(id, state): (ProcessRef, &ProcessState)| {
        let parent = by_pid.get(&state.process.ppid).filter(|parent| **parent != id)?;
        Some((id, *parent))
    };
    processes.iter().filter_map(state).filter_map(parent).collect()
}

/// Puts the rows of processes below those of their parents. Otherwise the order stays.
pub(super) fn as_tree(shown: &[usize], rows: &[ProcessLine], parents: &HashMap<ProcessRef, ProcessRef>) -> Vec<usize> {
    let process = |index: &usize| rows[*index].picked.process;
    let are_shown: HashSet<ProcessRef> = shown.iter().map(process).collect();
    let mut children: HashMap<ProcessRef, Vec<usize>> = HashMap::new();
    let mut tops = Vec::new();
    for index in shown {
        match parents.get(&process(index)).filter(|parent| are_shown.contains(parent)) {
            Some(parent) => children.entry(*parent).or_default().push(*index),
            None => tops.push(*index),
        }
    }
    let mut tree = Vec::with_capacity(shown.len());
    let mut rest: Vec<usize> = tops.into_iter().rev().collect();
    while let Some(index) = rest.pop() {
        tree.push(index);
        // Taken out, so that each row comes once.
        rest.extend(children.remove(&process(&index)).unwrap_or_default().into_iter().rev());
    }
    // If pids were reused, processes may be each other's parents.
    tree.extend(shown.iter().filter(|index| children.values().flatten().any(|child| child == *index)));
    tree
}

/// The branch that is drawn before the command of a child.
pub(super) fn branch(process: ProcessRef, parents: &HashMap<ProcessRef, ProcessRef>) -> String {
    let depth = std::iter::successors(parents.get(&process), |parent| parents.get(parent)).take(DEPTH_MAX).count();
    if depth == 0 { String::new() } else { format!("{:1$}└ ", "", 2 * (depth - 1)) }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: u32) -> Vec<ProcessLine> {
        let line = |number| ProcessLine {
            picked: Picked { process: ProcessRef(number), tid: None },
            cpu: CpuSum::default(),
            group: None,
        };
        (0..count).map(line).collect()
    }

    fn tree(shown: &[usize], parents: &[(u32, u32)]) -> (Vec<usize>, Vec<usize>) {
        let parents = parents.iter().map(|(child, parent)| (ProcessRef(*child), ProcessRef(*parent))).collect();
        let tree = as_tree(shown, &rows(6), &parents);
        let depths = tree.iter().map(|index| branch(ProcessRef(*index as u32), &parents).chars().count() / 2);
        (tree.clone(), depths.collect())
    }

    #[test]
    fn children_come_after_their_parents_in_the_same_order() {
        assert_eq!(tree(&[3, 0, 5, 1], &[(3, 0), (5, 3), (1, 0)]), (vec![0, 3, 5, 1], vec![0, 1, 2, 1]));
        // A parent that the filter hides.
        assert_eq!(tree(&[5, 0], &[(3, 0), (5, 3)]).0, [5, 0]);
    }

    #[test]
    fn processes_that_are_each_others_parents_are_shown_once() {
        assert_eq!(tree(&[0, 1, 2], &[(0, 1), (1, 0)]).0, [2, 0, 1]);
    }
}
