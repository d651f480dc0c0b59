//! Shared memory that was filled for others but that no other process ever opened.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cost, Evidence, Finding, Severity, Target, place};
use crate::families::shm::{SegmentState, SegmentVerdict};
use crate::number::size;
use crate::views::{self, own_line};
use crate::{FrameId, Model, Nanos, ProcessRef, RegionId, SegmentId, SegmentKind, Selection};

/// Segments smaller than this are ignored.
const BYTES: u64 = 1 << 20;
/// A live segment counts as unread only after this time.
const WAIT: Nanos = Nanos(10_000_000_000);
/// The minimum share of a line's segments that are unread. A segment that some process does read is not useless.
const UNREAD: f64 = 0.9;

/// UCX's library of transports.
const TRANSPORT: &str = "libuct";

/// The unread segments made at one line.
#[derive(Default)]
struct Made {
    read: usize,
    unread: Vec<SegmentId>,
    bytes: u64,
    /// Some of the unread segments still exist.
    lives: bool,
}

pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let sent = sent(model);
    let mut lines: BTreeMap<(ProcessRef, FrameId), Made> = BTreeMap::new();
    let selection = &selection.lasting();
    let end = selection.end();
    for (id, state) in views::segments(model, selection).into_iter().filter(|(_, state)| is_filled(state)) {
        let maker = state.segment.creator.and_then(|pid| model.process_at(pid, state.begun));
        let Some((process, _)) = maker.filter(|(process, _)| selection.has_process(*process)) else { continue };
        let Some(line) = state.stack.and_then(|stack| own_line(model, stack)) else { continue };
        if is_transport(model, state) {
            continue;
        }
        // A segment left behind is another finding (`shm/residue`).
        let is_over = match state.verdict_at(end) {
            SegmentVerdict::Residue => continue,
            SegmentVerdict::Released => true,
            SegmentVerdict::Held => false,
        };
        let made = lines.entry((process, line)).or_default();
        if sent.contains(&id) || has_readers(state) {
            made.read += 1;
        } else if is_over || model.now().min(end).saturating_sub(state.begun) >= WAIT {
            made.unread.push(id);
            made.bytes = made.bytes.saturating_add(bytes(state));
            made.lives |= !is_over;
        }
    }
    let is_vain = |made: &Made| {
        let all = made.read + made.unread.len();
        made.bytes >= BYTES && made.unread.len() as f64 >= UNREAD * all as f64
    };
    let vain = lines.into_iter().filter(|(_, made)| is_vain(made));
    vain.map(|((process, line), made)| finding(model, process, line, &made)).collect()
}

/// Whether its maker wrote to it. Mapped files are kept for later, and nameless memory is for children.
fn is_filled(state: &SegmentState) -> bool {
    let is_to_share = matches!(state.segment.kind, SegmentKind::Shm | SegmentKind::Memfd);
    is_to_share && (state.evicted.is_some() || state.allocated.is_some_and(|bytes| bytes > 0))
}

/// Whether UCX made it, for messages from processes that may connect later.
fn is_transport(model: &Model, state: &SegmentState) -> bool {
    let frames = state.stack.map_or(&[][..], |stack| model.stack(stack));
    let mut modules = frames.iter().filter_map(|frame| model.frame(*frame)?.module.as_deref());
    modules.any(|module| module.starts_with(TRANSPORT))
}

fn bytes(state: &SegmentState) -> u64 {
    state.allocated.unwrap_or(state.segment.bytes)
}

/// Whether another process held it, or may still receive it.
fn has_readers(state: &SegmentState) -> bool {
    let mut pids = state.holders.keys().chain(state.past.iter().map(|past| &past.pid));
    pids.any(|pid| Some(*pid) != state.segment.creator) || state.in_flight > 0 || !state.passed.is_empty()
}

/// Segments that contain buffers of transfers.
fn sent(model: &Model) -> BTreeSet<SegmentId> {
    let region = |state: &crate::families::ucx::TransferState| {
        let transfer = &state.transfer;
        let mut around = model.regions_at_time(transfer.process, transfer.buffer, transfer.begun()?);
        around.find_map(|region| match region.id {
            RegionId::Segment(id) => Some(id),
            RegionId::Arena(_) | RegionId::MemInfo(_) => None,
        })
    };
    model.ucx().transfers().filter_map(|(_, state)| region(state)).collect()
}

fn finding(model: &Model, process: ProcessRef, line: FrameId, made: &Made) -> Finding {
    let (count, bytes, line) = (made.unread.len(), size(made.bytes), place(model, Some(line)));
    let what = if count == 1 { "a shared segment".to_owned() } else { format!("{count} shared segments") };
    let detail = format!(
        "{what} ({bytes}), made at {line}, held data, but no other process mapped or opened that memory, received a \
         descriptor of it, or was sent its content by UCX. The intended readers do not read it, or read a copy that \
         reaches them another way. Reads by the maker itself, or by the kernel on its behalf, are not seen."
    );
    Finding {
        id: "shm/unread",
        // A segment that still exists may yet be read.
        severity: if made.lives { Severity::Info } else { Severity::Warning },
        summary: format!("{what} ({bytes}) made at {line} held data that no other process opened"),
        detail,
        advice: "Leave out the copy, or keep it in memory of the process's own.".to_owned(),
        process: Some(process),
        pid: model.process(process).map(|state| state.process.pid),
        evidence: BTreeMap::from([
            ("segments", Evidence::Count(count as u64)),
            ("read", Evidence::Count(made.read as u64)),
            ("bytes", Evidence::Count(made.bytes)),
            ("line", Evidence::Text(line)),
        ]),
        cost: Cost::bytes(made.bytes),
        target: made.unread.last().map(|id| Target::Segment(*id)),
    }
}
