//! Memory that is still held, by the stack that made it.

use super::heap::heap_time;
use super::weight::Piece;
use crate::families::heap::HeapTime;
use crate::families::nrt::Site;
use crate::{Model, Nanos, Pid, Place, ProcessRef, Selection, StackId, Tid};

/// A stack id that no stack has, for memory that existed before the recording.
const UNKNOWN: StackId = StackId(u32::MAX);

/// Memory that was not freed by the end of the selected time, and when it was made: that of the family `heap`, and shared
/// segments. Without that family, arenas and MemInfos stand for the private memory. What lived until its process ended
/// counts. Memory belongs to no thread, so it is attributed to the main one.
pub(super) fn held<'a>(model: &'a Model, selection: &'a Selection) -> impl Iterator<Item = Piece> + 'a {
    let end = selection.end();
    let piece = move |at: Nanos, process: ProcessRef, stack: Option<StackId>, bytes: u64| {
        let tid = Tid(model.process(process)?.process.pid.0);
        let is_selected = at < end && bytes > 0 && selection.has_thread(process, tid);
        is_selected.then_some((at, Place { process, tid, stack: stack.unwrap_or(UNKNOWN) }, bytes))
    };
    let has_heap = |process: ProcessRef| model.heap().get(process).is_some();
    let heaps = model.heap().processes().flat_map(move |(process, heap)| {
        let time = heap_time(heap, selection);
        let unknown = heap.counted(time).anonymous.saturating_sub(heap.known(time));
        let rows = heap.rows(time).map(|(key, bytes, row)| (row.since, Some(key.stack), bytes));
        let rows = rows.chain([(Nanos(0), None, unknown)]);
        rows.filter_map(move |(at, stack, bytes)| piece(at, process, stack, bytes)).collect::<Vec<_>>()
    });
    let arenas = model.arenas().arenas().filter_map(move |(_, state)| {
        let is_held = state.is_kept_at(end) && !has_heap(state.arena.process);
        let stack = model.arenas().birth(state);
        is_held.then(|| piece(state.begun, state.arena.process, stack, state.held()))?
    });
    let segments = model.shm().segments().filter_map(move |(_, state)| {
        let bytes = state.allocated.unwrap_or(state.segment.bytes);
        let process = |pid: Pid| model.process_at(pid, state.begun).map(|(id, _)| id);
        // A segment from before the recording is attributed to its first holder.
        let process =
            state.segment.creator.and_then(process).or_else(|| state.holders.keys().copied().find_map(process))?;
        let peak = model.heap().get(process).filter(|heap| heap_time(heap, selection) == HeapTime::Peak);
        let is_held = match peak {
            Some(heap) => state.begun <= heap.peak_at() && state.ended.is_none_or(|at| at > heap.peak_at()),
            None => state.ended.is_none_or(|at| at >= end),
        };
        is_held.then(|| piece(state.begun, process, state.stack, bytes))?
    });
    let meminfos = model
        .nrt()
        .sums()
        .filter(move |(site, _)| !has_heap(site.process))
        .filter_map(move |(Site { process, stack }, sum)| piece(sum.since()?, process, Some(stack), sum.bytes));
    heaps.chain(arenas).chain(segments).chain(meminfos)
}
