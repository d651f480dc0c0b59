//! The CPU time that all programs of the machine use, watched or not.

use std::collections::VecDeque;

use crate::{History, Nanos, Selection};

/// Bounds the states: two hours of one a second. Beyond it, the second oldest is dropped.
const STATES_MAX: usize = 7200;

#[derive(Debug)]
pub struct Load {
    history: History,
    /// Times, and what was used until then.
    states: VecDeque<(Nanos, Nanos)>,
}

impl Load {
    pub fn new(history: History) -> Self {
        Self { history, states: VecDeque::new() }
    }

    pub(crate) fn add(&mut self, at: Nanos, used: Nanos) {
        if self.states.len() >= STATES_MAX {
            self.states.remove(1);
        }
        self.states.push_back((at, used));
    }

    /// Forgets states before the window that ends at `now`, except the last of them.
    pub fn expire(&mut self, now: Nanos) {
        let History::Window { length, .. } = self.history else { return };
        let since = now.saturating_sub(length);
        while self.states.get(1).is_some_and(|(next, _)| *next <= since) {
            self.states.pop_front();
        }
    }

    /// How many CPUs were busy on average in the time of `selection`; `None` if that is unknown.
    pub fn busy(&self, selection: &Selection) -> Option<f64> {
        let (from, to) = (selection.from.unwrap_or_default(), selection.end());
        let (begun, before) = self.states.iter().rev().find(|(at, _)| *at <= from).or(self.states.front())?;
        let (ended, after) = self.states.iter().rev().find(|(at, _)| *at <= to)?;
        let length = ended.saturating_sub(*begun).as_secs_f64();
        (length > 0.0).then(|| after.saturating_sub(*before).as_secs_f64() / length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_that_of_the_selected_time() {
        let mut load = Load::new(History::All);
        let second = |second: u64| Nanos(second * 1_000_000_000);
        let busy = |load: &Load, from, to| load.busy(&Selection { from, to, ..Selection::default() });
        assert_eq!(busy(&load, None, None), None);
        load.add(Nanos(0), Nanos(0));
        assert_eq!(busy(&load, None, None), None);
        for (at, used) in [(1, 2), (2, 4), (4, 5)] {
            load.add(second(at), second(used));
        }
        assert_eq!(busy(&load, None, None), Some(1.25));
        assert_eq!(busy(&load, None, Some(second(2))), Some(2.0));
        assert_eq!(busy(&load, Some(second(2)), None), Some(0.5));
        assert_eq!(busy(&load, Some(second(5)), None), None);
    }
}
