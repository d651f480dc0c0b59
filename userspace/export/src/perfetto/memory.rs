//! Counters of the memory of arenas and segments.

use std::collections::BTreeMap;

use pyobs_model::{Model, Nanos, ProcessRef, Selection, views};

use super::{TraceWriter, Track, Unit};
use crate::Error;

/// Per process, when its memory grew or shrank, and by how much.
type Changes = BTreeMap<ProcessRef, Vec<(Nanos, i128)>>;

/// A segment counts for the process that created it.
pub(super) fn write(model: &Model, selection: &Selection, trace: &mut TraceWriter<'_>) -> Result<(), Error> {
    let (mut arenas, mut segments) = (Changes::new(), Changes::new());
    for (_, state) in model.arenas().arenas().filter(|(_, state)| views::is_selected(state, selection)) {
        let died = state.died.map(|(at, _)| at);
        add(&mut arenas, trace.process(state.arena.process), state.begun, died, state.arena.bytes);
    }
    for (_, state) in model.shm().segments() {
        let Some(pid) = state.segment.creator else { continue };
        let maker = model.process_at(pid, state.begun).filter(|(process, _)| selection.has_process(*process));
        if let Some((process, _)) = maker {
            add(&mut segments, trace.process(process), state.begun, state.evicted.or(state.ended), state.segment.bytes);
        }
    }
    write_all("arenas", arenas, trace)?;
    write_all("segments", segments, trace)
}

fn add(changes: &mut Changes, process: ProcessRef, from: Nanos, to: Option<Nanos>, bytes: u64) {
    let own = changes.entry(process).or_default();
    own.push((from, i128::from(bytes)));
    own.extend(to.map(|to| (to.max(from), -i128::from(bytes))));
}

fn write_all(name: &'static str, changes: Changes, trace: &mut TraceWriter<'_>) -> Result<(), Error> {
    for (process, mut changes) in changes {
        changes.sort_by_key(|(at, _)| *at);
        let mut bytes = 0_i128;
        for (at, change) in changes {
            bytes += change;
            let bytes = u64::try_from(bytes.max(0)).unwrap_or(u64::MAX);
            trace.count(Track::Counter(process, name, Unit::SizeBytes), at, bytes)?;
        }
    }
    Ok(())
}
