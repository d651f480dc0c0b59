//! A family's kept events, oldest first.

use std::collections::VecDeque;

use super::places::{OfThread, Places, Summed};
use crate::{History, Nanos, Selection};

/// How late an event may come. Events arrive when they become known, so one may be older than its predecessors. A
/// search from a time therefore starts with the events from this long before it.
const LATE: Nanos = Nanos(10_000_000_000);

pub(super) trait Timed {
    fn at(&self) -> Nanos;

    /// Whether a part of it is in the time of `selection`.
    fn is_within(&self, selection: &Selection) -> bool {
        selection.has_time(self.at())
    }
}

#[derive(Debug)]
pub(super) struct Past<T> {
    history: History,
    covered: Selection,
    events: VecDeque<T>,
    since: Nanos,
    gone: u64,
}

impl<T: Timed> Past<T> {
    pub(super) fn new(history: History) -> Self {
        Self { history, covered: history.covered(), events: VecDeque::new(), since: Nanos(0), gone: 0 }
    }

    /// Adds an event, and returns the one evicted for it. Room is made first, because a full queue doubles. An event
    /// outside the covered time is dropped.
    pub(super) fn push(&mut self, event: T) -> Option<T> {
        if !event.is_within(&self.covered) {
            return None;
        }
        let is_full = self.history.events().is_some_and(|most| self.events.len() >= most);
        let oldest = if is_full { self.events.pop_front() } else { None };
        self.events.push_back(event);
        if let Some(oldest) = &oldest {
            self.since = self.since.max(oldest.at());
            self.gone += 1;
        }
        oldest
    }

    /// Whether evicted events are in sums.
    pub(super) fn has_sums(&self) -> bool {
        self.history.has_sums()
    }

    /// Whether the sums of evicted events answer `selection`.
    pub(super) fn is_summed(&self, selection: &Selection) -> bool {
        self.history.is_summed(selection)
    }

    /// The sums of the threads in `selection`; none unless the sums cover its time.
    pub(super) fn of_threads<'a, 's, K: OfThread, S: Summed>(
        &self,
        sums: &'a Places<K, S>,
        selection: &'s Selection,
    ) -> impl Iterator<Item = (&'a K, &'a S)> + use<'a, 's, K, S, T> {
        let is_meant = move |key: &K| {
            let (process, tid) = key.thread();
            selection.has_thread(process, tid)
        };
        let sums = self.is_summed(selection).then(|| sums.iter());
        sums.into_iter().flatten().filter(move |(key, _)| is_meant(key))
    }

    /// The time outside which events are dropped.
    pub(super) fn covered(&self) -> &Selection {
        &self.covered
    }

    /// How many events were evicted for others.
    pub(super) fn gone(&self) -> u64 {
        self.gone
    }

    /// Removes and returns one event older than the window ending at `now`. Call it until it returns `None`.
    pub(super) fn expire(&mut self, now: Nanos) -> Option<T> {
        let History::Window { length, .. } = self.history else { return None };
        let since = now.saturating_sub(length);
        self.since = self.since.max(since);
        self.events.pop_front_if(|event| event.at() < since)
    }

    /// All events since `from`, and some from before it.
    pub(super) fn since_then(&self, from: Option<Nanos>) -> impl Iterator<Item = &T> + '_ {
        let from = from.unwrap_or_default().saturating_sub(LATE);
        let first = self.events.partition_point(|event| event.at() < from);
        self.events.range(first..)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> + '_ {
        self.events.iter()
    }

    /// The times must not change: the queue is searched by time.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        self.events.iter_mut()
    }

    /// Newest first.
    pub(super) fn latest(&self) -> impl Iterator<Item = &T> + '_ {
        self.events.iter().rev()
    }

    /// The time from which on events of `selection` are known, one by one or in sums.
    pub(super) fn since(&self, selection: &Selection) -> Nanos {
        if self.has_sums() && self.is_summed(selection) { Nanos(0) } else { self.since }
    }

    /// The time from which on events are kept one by one.
    pub(super) fn kept_since(&self) -> Nanos {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Timed for Nanos {
        fn at(&self) -> Nanos {
            *self
        }
    }

    #[test]
    fn late_events_are_found_by_their_time() {
        let mut past = Past::new(History::All);
        // One in three is late, by less than `LATE`.
        let at = |number: u64| Nanos(number * 500_000_000).saturating_sub(Nanos(number % 3 / 2 * 9_000_000_000));
        (0..1000).for_each(|number| assert!(past.push(at(number)).is_none()));
        for from in (0..500).map(|second| Nanos(second * 1_000_000_000)) {
            let wanted = past.iter().filter(|at| **at >= from).count();
            assert_eq!(past.since_then(Some(from)).filter(|at| **at >= from).count(), wanted, "{from:?}");
        }
        assert_eq!(past.since_then(None).count(), 1000);
        assert!(past.since_then(Some(Nanos(500_000_000_000))).count() < 60, "not all of them are looked at");
    }
}
