//! Calls of functions.

use std::collections::BTreeMap;

use super::{Past, Timed, Times};
use crate::{Calls, FrameId, History, Nanos, ProcessRef, Selection};

/// What calls are summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub process: ProcessRef,
    pub function: FrameId,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// All calls, and the time of those that were timed.
    pub times: Times,
    /// Calls that were seen to return.
    pub timed: u64,
}

impl Timed for Calls {
    fn at(&self) -> Nanos {
        self.at
    }
}

#[derive(Debug)]
pub struct Eval {
    calls: Past<Calls>,
}

impl Eval {
    pub fn new(history: History) -> Self {
        Self { calls: Past::new(history) }
    }

    pub fn add(&mut self, calls: Calls) {
        self.calls.push(calls);
    }

    /// Forgets what is older than the window before `now`.
    pub fn expire(&mut self, now: Nanos) {
        while self.calls.expire(now).is_some() {}
    }

    /// Of all threads, whichever `selection` has: calls are not told by thread.
    pub fn sums(&self, selection: &Selection) -> BTreeMap<Key, Sum> {
        let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
        for calls in self
            .calls
            .since_then(selection.from)
            .filter(|it| selection.has_process(it.process) && selection.has_time(it.at))
        {
            let sum = sums.entry(Key { process: calls.process, function: calls.function }).or_default();
            sum.times.add(Times { count: calls.count, total: calls.total, max: calls.max });
            sum.timed = sum.timed.saturating_add(calls.timed);
        }
        sums
    }
}
