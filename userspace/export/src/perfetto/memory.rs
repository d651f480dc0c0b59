//! How much memory arenas and segments have, as numbers that change.

use std::collections::BTreeMap;

use pyobs_model::{Model, Nanos, Pid, Selection, views};

use super::{Counter, Trace, micros};
use crate::Error;

/// When what a process has grew or shrank, and by how much.
type Changes = BTreeMap<Pid, Vec<(Nanos, i128)>>;

/// A segment belongs to who made it.
pub(super) fn write(model: &Model, selection: &Selection, trace: &mut Trace<'_>) -> Result<(), Error> {
    let (mut arenas, mut segments) = (Changes::new(), Changes::new());
    for (_, state) in model.arenas().arenas().filter(|(_, state)| views::is_selected(state, selection)) {
        if let Some(process) = model.process(state.arena.process) {
            let died = state.died.map(|(at, _)| at);
            add(&mut arenas, process.process.pid, state.begun, died, state.arena.bytes);
        }
    }
    for (_, state) in model.shm().segments() {
        let Some(pid) = state.segment.creator else { continue };
        let mut makers = model.processes().filter(|(_, process)| process.process.pid == pid);
        if makers.any(|(process, _)| selection.has_process(process)) {
            add(&mut segments, pid, state.begun, state.evicted.or(state.ended), state.segment.bytes);
        }
    }
    write_all("arenas", arenas, trace)?;
    write_all("segments", segments, trace)
}

fn add(changes: &mut Changes, pid: Pid, from: Nanos, to: Option<Nanos>, bytes: u64) {
    let own = changes.entry(pid).or_default();
    own.push((from, i128::from(bytes)));
    own.extend(to.map(|to| (to.max(from), -i128::from(bytes))));
}

fn write_all(name: &'static str, changes: Changes, trace: &mut Trace<'_>) -> Result<(), Error> {
    for (pid, mut changes) in changes {
        changes.sort_by_key(|(at, _)| *at);
        let mut bytes = 0_i128;
        for (at, change) in changes {
            bytes += change;
            let args = BTreeMap::from([("bytes", u64::try_from(bytes.max(0)).unwrap_or(u64::MAX))]);
            trace.put(&Counter { ph: "C", name, pid, ts: micros(at), args })?;
        }
    }
    Ok(())
}
