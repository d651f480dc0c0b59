//! Segments of a time.

use std::collections::BTreeSet;

use crate::families::shm::SegmentState;
use crate::{Model, Nanos, Pid, SegmentId, Selection};

/// Segments that existed in the time of `selection` and that one of its processes holds or held, in the order of first
/// sight.
pub fn segments<'model>(model: &'model Model, selection: &Selection) -> Vec<(SegmentId, &'model SegmentState)> {
    let pid = |id| model.process(id).map(|state| state.process.pid);
    let picked: Option<BTreeSet<Pid>> =
        selection.processes.as_ref().map(|all| all.iter().filter_map(|id| pid(*id)).collect());
    let (from, end) = (selection.from.unwrap_or(Nanos(0)), selection.end());
    let is_selected = |state: &SegmentState| {
        let mut pids = state.holders.keys().copied().chain(state.past.iter().map(|past| past.pid));
        let is_picked = picked.as_ref().is_none_or(|picked| pids.any(|pid| picked.contains(&pid)));
        is_picked && state.begun < end && state.ended.is_none_or(|ended| ended >= from)
    };
    model.shm().segments().filter(|(_, state)| is_selected(state)).collect()
}
