//! Memory that is still held, by the stack that made it.

use super::weight::Piece;
use crate::families::nrt::Site;
use crate::{Model, Nanos, Pid, Place, ProcessRef, Selection, StackId, Tid};

/// A stack id that no stack has, for memory that existed before the recording.
const UNKNOWN: StackId = StackId(u32::MAX);

/// Arenas, segments and MemInfos that were not freed by the end of the selected time, and when they were made. Memory
/// that lived until its process ended counts. It belongs to no thread, so it is attributed to the main one.
pub(super) fn held<'a>(model: &'a Model, selection: &'a Selection) -> impl Iterator<Item = Piece> + 'a {
    let end = selection.end();
    let piece = move |at: Nanos, process: ProcessRef, stack: Option<StackId>, bytes: u64| {
        let tid = Tid(model.process(process)?.process.pid.0);
        let is_selected = at < end && bytes > 0 && selection.has_thread(process, tid);
        is_selected.then_some((at, Place { process, tid, stack: stack.unwrap_or(UNKNOWN) }, bytes))
    };
    let arenas = model.arenas().arenas().filter_map(move |(_, state)| {
        let is_held = state.is_kept_at(end);
        let stack = model.arenas().birth(state);
        is_held.then(|| piece(state.begun, state.arena.process, stack, state.held()))?
    });
    let segments = model.shm().segments().filter_map(move |(_, state)| {
        let is_held = state.ended.is_none_or(|at| at >= end);
        let bytes = state.allocated.unwrap_or(state.segment.bytes);
        let process = |pid: Pid| model.process_at(pid, state.begun).map(|(id, _)| id);
        // A segment from before the recording is attributed to its first holder.
        let process =
            state.segment.creator.and_then(process).or_else(|| state.holders.keys().copied().find_map(process))?;
        is_held.then(|| piece(state.begun, process, state.stack, bytes))?
    });
    let meminfos = model
        .nrt()
        .sums()
        .filter_map(move |(Site { process, stack }, sum)| piece(sum.since()?, process, Some(stack), sum.bytes));
    arenas.chain(segments).chain(meminfos)
}
