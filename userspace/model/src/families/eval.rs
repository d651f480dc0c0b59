//! Calls of Python functions.

use std::collections::BTreeMap;

use super::{Past, Timed, Times};
use crate::{Calls, FrameId, History, Nanos, ProcessRef, Selection};

/// The key of call sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EvalKey {
    pub process: ProcessRef,
    pub function: FrameId,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvalSum {
    /// The count of all calls, and the time of the timed ones.
    pub times: Times,
    /// Calls whose return was seen.
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

    /// Forgets calls older than the window ending at `now`.
    pub fn expire(&mut self, now: Nanos) {
        while self.calls.expire(now).is_some() {}
    }

    /// Sums over all threads, whichever `selection` names, because calls are not recorded by thread.
    pub fn sums(&self, selection: &Selection) -> BTreeMap<EvalKey, EvalSum> {
        let mut sums: BTreeMap<EvalKey, EvalSum> = BTreeMap::new();
        for calls in self
            .calls
            .since_then(selection.from)
            .filter(|it| selection.has_process(it.process) && selection.has_time(it.at))
        {
            let sum = sums.entry(EvalKey { process: calls.process, function: calls.function }).or_default();
            sum.times.add(Times { count: calls.count, total: calls.total, max: calls.max });
            sum.timed = sum.timed.saturating_add(calls.timed);
        }
        sums
    }
}
