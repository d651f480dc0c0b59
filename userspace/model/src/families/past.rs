//! The events that are kept of a family, oldest first.

use std::collections::VecDeque;

use crate::{History, Nanos};

/// Events come as they are known, so that one may be older than others before it, but never by so much: it suffices to look at
/// those that came after what is older by this than what is looked for.
const LATE: Nanos = Nanos(10_000_000_000);

pub(super) trait Timed {
    fn at(&self) -> Nanos;
}

#[derive(Debug)]
pub(super) struct Past<T> {
    history: History,
    events: VecDeque<T>,
    since: Nanos,
    gone: u64,
}

impl<T: Timed> Past<T> {
    pub(super) fn new(history: History) -> Self {
        Self { history, events: VecDeque::new(), since: Nanos(0), gone: 0 }
    }

    /// Keeps an event, and gives back the one that has to go for it. Room is made first: a full queue doubles.
    pub(super) fn push(&mut self, event: T) -> Option<T> {
        let is_full = self.history.events().is_some_and(|most| self.events.len() >= most);
        let oldest = if is_full { self.events.pop_front() } else { None };
        self.events.push_back(event);
        if let Some(oldest) = &oldest {
            self.since = self.since.max(oldest.at());
            self.gone += 1;
        }
        oldest
    }

    /// Whether events that had to go are in sums.
    pub(super) fn has_sums(&self) -> bool {
        self.history == History::Sums
    }

    /// How many events had to go for others.
    pub(super) fn gone(&self) -> u64 {
        self.gone
    }

    /// Forgets an event that is older than the window before `now`, and gives it back; call it until there is none.
    pub(super) fn expire(&mut self, now: Nanos) -> Option<T> {
        let History::Window { length, .. } = self.history else { return None };
        let since = now.saturating_sub(length);
        self.since = self.since.max(since);
        self.events.pop_front_if(|event| event.at() < since)
    }

    /// Events from then on, and some before.
    pub(super) fn since_then(&self, from: Option<Nanos>) -> impl Iterator<Item = &T> + '_ {
        let from = from.unwrap_or_default().saturating_sub(LATE);
        let first = self.events.partition_point(|event| event.at() < from);
        self.events.range(first..)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> + '_ {
        self.events.iter()
    }

    /// The newest first.
    pub(super) fn latest(&self) -> impl Iterator<Item = &T> + '_ {
        self.events.iter().rev()
    }

    /// Events from then on are known, one by one or in sums.
    pub(super) fn since(&self) -> Nanos {
        if self.has_sums() { Nanos(0) } else { self.since }
    }

    /// Events from then on are kept one by one.
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
    fn what_comes_late_is_among_those_since_then() {
        let mut past = Past::new(History::All);
        // One of three is late, by less than what is reckoned with.
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
