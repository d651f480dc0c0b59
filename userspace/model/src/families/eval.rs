//! Calls of Python functions.

use std::collections::BTreeMap;

use super::places::reassign;
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
    /// Sums of calls that are no longer kept one by one.
    folded: BTreeMap<EvalKey, EvalSum>,
    /// Calls that are in no sum.
    left_out: u64,
}

/// How many functions have sums of calls besides the latest events. Calls of further functions are in no sum.
const FUNCTIONS_MAX: usize = 1 << 17;

impl EvalSum {
    fn add(&mut self, calls: &Calls) {
        self.times.add(Times { count: calls.count, total: calls.total, max: calls.max });
        self.timed = self.timed.saturating_add(calls.timed);
    }
}

impl EvalKey {
    fn of(calls: &Calls) -> Self {
        Self { process: calls.process, function: calls.function }
    }
}

impl Eval {
    pub fn new(history: History) -> Self {
        Self { calls: Past::new(history), folded: BTreeMap::new(), left_out: 0 }
    }

    pub fn add(&mut self, calls: Calls) {
        let Some(oldest) = self.calls.push(calls).filter(|_| self.calls.has_sums()) else { return };
        let key = EvalKey::of(&oldest);
        if self.folded.len() < FUNCTIONS_MAX || self.folded.contains_key(&key) {
            self.folded.entry(key).or_default().add(&oldest);
        } else {
            self.left_out = self.left_out.saturating_add(oldest.count);
        }
    }

    /// Reassigns the calls of evicted processes.
    pub(crate) fn reassign(&mut self, resolve: impl Fn(ProcessRef) -> ProcessRef) {
        self.calls.iter_mut().for_each(|calls| calls.process = resolve(calls.process));
        let other = |key: &EvalKey| {
            let process = resolve(key.process);
            (process != key.process).then_some(EvalKey { process, ..*key })
        };
        reassign(&mut self.folded, other, |sum, of| {
            sum.times.add(of.times);
            sum.timed = sum.timed.saturating_add(of.timed);
        });
    }

    /// Forgets calls older than the window ending at `now`.
    pub fn expire(&mut self, now: Nanos) {
        while self.calls.expire(now).is_some() {}
    }

    /// Returns the number of call events that are in sums only, and of calls that are in no sum.
    pub fn summed(&self) -> (u64, u64) {
        (if self.calls.has_sums() { self.calls.gone() } else { 0 }, self.left_out)
    }

    /// Sums over all threads, whichever `selection` names, because calls are not recorded by thread.
    pub fn sums(&self, selection: &Selection) -> BTreeMap<EvalKey, EvalSum> {
        let mut sums: BTreeMap<EvalKey, EvalSum> = BTreeMap::new();
        let folded = self.folded.iter().filter(|_| self.calls.is_summed(selection));
        sums.extend(folded.filter(|(key, _)| selection.has_process(key.process)));
        for calls in self
            .calls
            .since_then(selection.from)
            .filter(|it| selection.has_process(it.process) && selection.has_time(it.at))
        {
            sums.entry(EvalKey::of(calls)).or_default().add(calls);
        }
        sums
    }
}
