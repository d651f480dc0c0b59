//! The limits of control groups over time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::{CpuLimit, History, Limits, MemoryLimit, Nanos, Selection};

/// Bounds the groups; further ones are not kept.
const GROUPS_MAX: usize = 4096;
/// Bounds the states kept of a group: two hours of one every two seconds. Beyond it, the second oldest is dropped.
const STATES_MAX: usize = 3600;

#[derive(Debug)]
pub struct Groups {
    history: History,
    by_path: BTreeMap<Arc<str>, VecDeque<Limits>>,
}

/// What a control group used of its limits within a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Counts and sums of that time.
    pub cpu: Option<CpuLimit>,
    /// The state in which the group used the most. `killed` is of that time.
    pub memory: Option<MemoryLimit>,
}

impl Groups {
    pub fn new(history: History) -> Self {
        Self { history, by_path: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, limits: &Limits) {
        if self.by_path.len() >= GROUPS_MAX && !self.by_path.contains_key(&limits.cgroup) {
            return;
        }
        let states = self.by_path.entry(Arc::clone(&limits.cgroup)).or_default();
        if states.len() >= STATES_MAX {
            states.remove(1);
        }
        states.push_back(limits.clone());
    }

    /// Forgets states before the window that ends at `now`, except the last of them.
    pub fn expire(&mut self, now: Nanos) {
        let History::Window { length, .. } = self.history else { return };
        let since = now.saturating_sub(length);
        for states in self.by_path.values_mut() {
            while states.get(1).is_some_and(|next| next.at <= since) {
                states.pop_front();
            }
        }
    }

    /// What each group used within the time of `selection`.
    pub fn used(&self, selection: &Selection) -> impl Iterator<Item = (&Arc<str>, Used)> + '_ {
        let (from, to) = (selection.from.unwrap_or_default(), selection.end());
        self.by_path.iter().filter_map(move |(path, states)| Some((path, used(states, from, to)?)))
    }
}

fn used(states: &VecDeque<Limits>, from: Nanos, to: Nanos) -> Option<Used> {
    let before = states.iter().rev().find(|state| state.at <= from).or(states.front())?;
    let within = || states.iter().filter(|state| state.at >= before.at && state.at <= to);
    let last = within().next_back()?;
    // A limit may be set later than another. What the group did before belongs to no time here.
    let first_cpu = within().find_map(|state| state.cpu).unwrap_or_default();
    let cpu = last.cpu.map(|cpu| cpu.since(first_cpu));
    let most = within().filter_map(|state| state.memory).max_by_key(|memory| memory.used_bytes);
    let mut killed = within().filter_map(|state| state.memory).map(|memory| memory.killed);
    let first_killed = killed.next().unwrap_or(0);
    let killed = killed.next_back().unwrap_or(first_killed).saturating_sub(first_killed);
    let memory = most.map(|most| MemoryLimit { killed, ..most });
    Some(Used { cpu, memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(second: u64, throttled_periods: u64, used_bytes: u64, killed: u64) -> Limits {
        let quota = Nanos(20_000_000);
        let cpu = CpuLimit { quota, throttled_periods, periods: second * 10, ..CpuLimit::default() };
        let memory = MemoryLimit { limit_bytes: 100, used_bytes, killed };
        let at = Nanos(second * 1_000_000_000);
        Limits { at, cgroup: Arc::from("/a"), cpu: Some(cpu), memory: Some(memory) }
    }

    fn of(groups: &Groups, from: Option<u64>, to: Option<u64>) -> Option<(u64, u64, u64, u64)> {
        let time = |second: Option<u64>| second.map(|second| Nanos(second * 1_000_000_000));
        let selection = Selection { from: time(from), to: time(to), ..Selection::default() };
        let (_, used) = groups.used(&selection).next()?;
        let (cpu, memory) = (used.cpu.unwrap(), used.memory.unwrap());
        Some((cpu.periods, cpu.throttled_periods, memory.used_bytes, memory.killed))
    }

    #[test]
    fn only_what_happened_in_the_selected_time_counts() {
        let mut groups = Groups::new(History::All);
        for (second, throttled, bytes, killed) in [(1, 5, 10, 2), (2, 5, 90, 2), (3, 9, 30, 3)] {
            groups.add(&state(second, throttled, bytes, killed));
        }
        assert_eq!(of(&groups, None, None), Some((20, 4, 90, 1)));
        assert_eq!(of(&groups, None, Some(2)), Some((10, 0, 90, 0)));
        assert_eq!(of(&groups, Some(3), None), Some((0, 0, 30, 0)));
        assert_eq!(of(&groups, Some(9), None), Some((0, 0, 30, 0)));
    }

    #[test]
    fn a_limit_that_is_set_later_counts_from_then_on() {
        let mut groups = Groups::new(History::All);
        groups.add(&Limits { cpu: None, ..state(1, 0, 10, 2) });
        groups.add(&state(2, 500, 10, 2));
        groups.add(&state(3, 503, 10, 4));
        assert_eq!(of(&groups, None, None), Some((10, 3, 10, 2)));
    }
}
