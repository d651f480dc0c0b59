//! Shared memory that was filled for others, and that no other process ever had.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cost, Evidence, Finding, Severity, Target, place};
use crate::families::shm::{State, Verdict};
use crate::number::size;
use crate::views::{self, own_line};
use crate::{FrameId, Model, Nanos, ProcessRef, RegionId, SegmentId, SegmentKind, Selection};

/// Less than this is not worth a word.
const BYTES: u64 = 1 << 20;
/// Somebody who wants to read a segment that lives on has come to it after this time.
const WAIT: Nanos = Nanos(10_000_000_000);
/// Of the segments of one line this share is never read: it is not one that was given up.
const UNREAD: f64 = 0.9;

/// UCX's library of transports.
const TRANSPORT: &str = "libuct";

/// Of one line.
#[derive(Default)]
struct Made {
    read: usize,
    unread: Vec<SegmentId>,
    bytes: u64,
    /// Of those that nobody read, some live on.
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
        // What is left behind is a finding of its own.
        let is_over = match state.verdict_at(end) {
            Verdict::Residue => continue,
            Verdict::Released => true,
            Verdict::Held => false,
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

/// Its maker wrote to it. A file that is mapped is there for later, and memory without a name for children.
fn is_filled(state: &State) -> bool {
    let is_to_share = matches!(state.segment.kind, SegmentKind::Shm | SegmentKind::Memfd);
    is_to_share && (state.evicted.is_some() || state.allocated.is_some_and(|bytes| bytes > 0))
}

/// UCX makes it for messages of processes that may come.
fn is_transport(model: &Model, state: &State) -> bool {
    let frames = state.stack.map_or(&[][..], |stack| model.stack(stack));
    let mut modules = frames.iter().filter_map(|frame| model.frame(*frame)?.module.as_deref());
    modules.any(|module| module.starts_with(TRANSPORT))
}

fn bytes(state: &State) -> u64 {
    state.allocated.unwrap_or(state.segment.bytes)
}

/// Another process had it, or may get it.
fn has_readers(state: &State) -> bool {
    let mut pids = state.holders.keys().chain(state.past.iter().map(|past| &past.pid));
    pids.any(|pid| Some(*pid) != state.segment.creator) || state.in_flight > 0 || !state.passed.is_empty()
}

/// Segments that buffers of transfers lay in.
fn sent(model: &Model) -> BTreeSet<SegmentId> {
    let region = |state: &crate::families::ucx::State| {
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
        "{what} ({bytes}), made at {line}, had data, and no other process mapped or opened them, was given a descriptor, or had \
         them sent by UCX. Whoever was to read them does not, or reads a copy that comes by another way. Reads by the \
         maker itself, and by the kernel for it, are not seen."
    );
    Finding {
        id: "shm/unread",
        // One that lives on may yet be read.
        severity: if made.lives { Severity::Info } else { Severity::Warning },
        summary: format!("{what} ({bytes}) made at {line} had data that no other process came for"),
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
