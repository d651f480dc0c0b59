//! Joins processes across execve(2), which keeps the pid. Perfetto identifies processes by pid, so its engine would assign the
//! threads of the new program to the old one.

use std::collections::{BTreeMap, HashMap};

use pyobs_model::{Model, Nanos, Pid, ProcessRef};

/// For each process that called execve, the last process that it became.
pub(super) struct ExecChains(BTreeMap<ProcessRef, ProcessRef>);

impl ExecChains {
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
