//! The events that are kept of a family, oldest first.

use std::collections::VecDeque;

use crate::{History, Nanos};

pub(super) trait Timed {
    fn at(&self) -> Nanos;
}

#[derive(Debug)]
pub(super) struct Past<T> {
    history: History,
    events: VecDeque<T>,
    since: Nanos,
}

impl<T: Timed> Past<T> {
    pub(super) fn new(history: History) -> Self {
        Self { history, events: VecDeque::new(), since: Nanos(0) }
    }

    /// Keeps an event, and gives back the one that has to go for it.
    pub(super) fn push(&mut self, event: T) -> Option<T> {
        self.events.push_back(event);
        let History::Window { samples, .. } = self.history else { return None };
        if self.events.len() <= samples {
            return None;
        }
        let oldest = self.events.pop_front()?;
        self.since = self.since.max(oldest.at());
        Some(oldest)
    }

    /// Forgets an event that is older than the window before `now`, and gives it back; call it until there is none.
    pub(super) fn expire(&mut self, now: Nanos) -> Option<T> {
        let History::Window { length, .. } = self.history else { return None };
        let since = now.saturating_sub(length);
        self.since = self.since.max(since);
        self.events.pop_front_if(|event| event.at() < since)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> + '_ {
        self.events.iter()
    }

    /// Events from then on are kept.
    pub(super) fn since(&self) -> Nanos {
        self.since
    }
}
