//! Keeps ended things in the order of their ends, and forgets the earliest when there are too many.

use std::collections::{BTreeMap, VecDeque};

use super::Summed;
use crate::{History, Nanos};

/// How many things with a lifecycle a family keeps. A program may make a hundred thousand in a second.
const KEPT_MAX: usize = 1 << 16;

/// Sums over ended things that are no longer listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub count: u64,
    /// Those that were never freed.
    pub kept: u64,
    pub kept_bytes: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Forgotten {
    pub(super) fn add(&mut self, bytes: u64, is_kept: bool) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if is_kept {
            self.kept += 1;
            self.kept_bytes = self.kept_bytes.saturating_add(bytes);
        }
    }
}

impl Summed for Forgotten {
    fn weight(&self) -> u64 {
        self.count
    }

    fn take(&mut self, other: Self) {
        self.count += other.count;
        self.kept += other.kept;
        self.kept_bytes = self.kept_bytes.saturating_add(other.kept_bytes);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// The ended things of a family, in order.
#[derive(Debug)]
pub(super) struct Ended<I> {
    history: History,
    order: VecDeque<(Nanos, I)>,
}

impl<I: Copy + Ord> Ended<I> {
    pub(super) fn new(history: History) -> Self {
        Self { history, order: VecDeque::new() }
    }

    pub(super) fn push(&mut self, at: Nanos, id: I) {
        self.order.push_back((at, id));
    }

    /// Removes one thing if there are too many: the one that ended first, or the oldest if none ended.
    pub(super) fn make_room<T>(&mut self, things: &mut BTreeMap<I, T>) -> Option<(I, T)> {
        if things.len() <= self.history.bound(KEPT_MAX) {
            return None;
        }
        while let Some((_, id)) = self.order.pop_front() {
            if let Some(thing) = things.remove(&id) {
                return Some((id, thing));
            }
        }
        things.pop_first()
    }

    /// Removes things that ended before the window ending at `now`.
    pub(super) fn expire<T>(&mut self, now: Nanos, things: &mut BTreeMap<I, T>) {
        let History::Window { length, .. } = self.history else { return };
        let since = now.saturating_sub(length);
        while let Some((_, id)) = self.order.pop_front_if(|(at, _)| *at < since) {
            things.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_first_is_evicted_or_else_the_oldest() {
        let window = History::Window { length: Nanos(10), samples: 3 };
        let mut ended = Ended::new(window);
        let mut things: BTreeMap<u32, ()> = (0..5).map(|id| (id, ())).collect();
        ended.push(Nanos(1), 3);
        ended.push(Nanos(2), 2);
        ended.expire(Nanos(11), &mut things);
        assert!(things.contains_key(&3), "it ended within the window");
        ended.expire(Nanos(12), &mut things);
        assert!(!things.contains_key(&3));
        for left in [vec![0, 1, 4], vec![0, 1, 4]] {
            ended.make_room(&mut things);
            assert_eq!(things.keys().copied().collect::<Vec<_>>(), left);
        }
        things.insert(9, ());
        ended.make_room(&mut things);
        assert_eq!(things.keys().copied().collect::<Vec<_>>(), [1, 4, 9]);
    }

    #[test]
    fn a_recording_is_bounded_too() {
        let mut ended = Ended::new(History::All);
        let mut things = BTreeMap::new();
        for id in 0..200_000 {
            things.insert(id, ());
            ended.push(Nanos(id), id);
            ended.make_room(&mut things);
        }
        assert_eq!(things.len(), KEPT_MAX);
        assert_eq!(things.keys().next_back(), Some(&199_999));
    }
}
