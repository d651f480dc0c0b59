//! Which processes are one to Perfetto. It knows them by their numbers, and execve(2) keeps the number: of two with one number, its
//! engine would give the threads of the second to the first.

use std::collections::{BTreeMap, HashMap};

use pyobs_model::{Model, Nanos, Pid, ProcessRef};

/// For each process that became another, what that became in the end.
pub(super) struct Lives(BTreeMap<ProcessRef, ProcessRef>);

impl Lives {
    pub(super) fn of(model: &Model) -> Self {
        let mut ended: HashMap<(Pid, Nanos), ProcessRef> = HashMap::new();
        let mut next: BTreeMap<ProcessRef, ProcessRef> = BTreeMap::new();
        for (process, state) in model.processes() {
            let started = state.process.started.and_then(|at| ended.remove(&(state.process.pid, at)));
            next.extend(started.map(|before| (before, process)));
            ended.extend(state.ended.map(|at| ((state.process.pid, at), process)));
        }
        let mut last: BTreeMap<ProcessRef, ProcessRef> = BTreeMap::new();
        for (before, after) in next.into_iter().rev() {
            last.insert(before, last.get(&after).copied().unwrap_or(after));
        }
        Self(last)
    }

    pub(super) fn last(&self, process: ProcessRef) -> ProcessRef {
        self.0.get(&process).copied().unwrap_or(process)
    }
}
