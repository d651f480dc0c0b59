//! The report's `segments`.

use std::cmp::Reverse;
use std::rc::Rc;

use serde::Serialize;

use super::{StackOut, source::Source};
use crate::families::shm::{self, PastHolder, SegmentState, SegmentVerdict};
use crate::views;
use crate::{Model, Nanos, Pid, RegionId, SegmentId, SegmentKind};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SegmentOut {
    /// `dev:ino:generation`.
    pub id: String,
    pub name: Option<String>,
    /// The device number in stat(2)'s encoding.
    pub dev: u64,
    pub ino: u64,
    pub bytes: u64,
    pub kind: SegmentKind,
    pub creator_pid: Option<Pid>,
    pub created_s: Option<f64>,
    pub unlinked_s: Option<f64>,
    pub unlinked_by: Option<Pid>,
    /// When its memory was freed.
    pub evicted_s: Option<f64>,
    /// When it ended, however that became known.
    pub ended_s: Option<f64>,
    /// Bytes backed by memory when it was last examined, each counted once; `None` for files on a disk.
    pub resident_bytes: Option<u64>,
    /// Present holders.
    pub holders: Vec<Now>,
    /// Past holders, each with the most that it held at one time.
    pub past_holders: Vec<PastHolderOut>,
    pub passed: Vec<PassOut>,
    pub verdict: &'static str,
    /// The stack that made it, root first.
    pub stack: StackOut,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HolderOut {
    pub pid: Pid,
    pub fds: u32,
    pub mappings: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Now {
    #[serde(flatten)]
    pub holder: HolderOut,
    /// Resident bytes in its mappings, and the same with each page divided by the number of processes that map it.
    pub resident_bytes: Option<u64>,
    pub share_bytes: Option<u64>,
    /// Where the mappings are.
    pub ranges: Vec<Mapped>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mapped {
    pub address: String,
    pub bytes: u64,
    /// Offset in the segment.
    pub offset: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PastHolderOut {
    #[serde(flatten)]
    pub holder: HolderOut,
    pub from_s: f64,
    pub to_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PassOut {
    pub from_pid: Option<Pid>,
    pub to_pid: Pid,
    pub at_s: f64,
}

impl From<&PastHolder> for PastHolderOut {
    fn from(past: &PastHolder) -> Self {
        let PastHolder { pid, fds, mappings, from, to, .. } = *past;
        Self { holder: HolderOut { pid, fds, mappings }, from_s: from.as_secs_f64(), to_s: to.as_secs_f64() }
    }
}

/// Largest first.
pub(super) fn segments<'m>(source: &Rc<Source<'m>>) -> impl Iterator<Item = SegmentOut> + use<'m> {
    let source = Rc::clone(source);
    let (limit, end) = (source.limit, source.selection.end());
    let mut states = views::segments(source.model, &source.selection);
    states.sort_by_key(|(_, state)| Reverse(state.segment.bytes));
    let out = move |(id, state): (SegmentId, &'m SegmentState)| segment(&source, id, state, state.verdict_at(end));
    states.into_iter().take(limit).map(out)
}

fn holder(model: &Model, id: SegmentId, pid: Pid, holder: &shm::Holder) -> Now {
    let own = model.mappings(pid).filter(|region| region.id == RegionId::Segment(id));
    let ranges = own.map(|region| Mapped {
        address: format!("{:#x}", region.address),
        bytes: region.bytes,
        offset: region.offset,
    });
    Now {
        holder: HolderOut { pid, fds: holder.fds, mappings: holder.mappings },
        resident_bytes: holder.shown.map(|shown| shown.resident),
        share_bytes: holder.shown.map(|shown| shown.share),
        ranges: ranges.collect(),
    }
}

fn segment(source: &Source<'_>, id: SegmentId, state: &SegmentState, verdict: SegmentVerdict) -> SegmentOut {
    let segment = &state.segment;
    let seconds = |at: Option<Nanos>| at.map(Nanos::as_secs_f64);
    SegmentOut {
        id: state.id(),
        name: segment.name.as_deref().map(str::to_owned),
        dev: segment.dev,
        ino: segment.ino,
        bytes: segment.bytes,
        kind: segment.kind,
        creator_pid: segment.creator,
        created_s: seconds(state.created()),
        unlinked_s: seconds(state.unlinked.map(|unlink| unlink.at)),
        unlinked_by: state.unlinked.and_then(|unlink| unlink.by),
        evicted_s: seconds(state.evicted),
        ended_s: seconds(state.ended),
        resident_bytes: state.allocated.filter(|_| state.segment.kind != SegmentKind::File),
        holders: state.holders.iter().map(|(pid, of)| holder(source.model, id, *pid, of)).collect(),
        past_holders: state.past.iter().map(PastHolderOut::from).collect(),
        passed: state
            .passed
            .iter()
            .map(|pass| PassOut { from_pid: pass.from, to_pid: pass.to, at_s: pass.at.as_secs_f64() })
            .collect(),
        verdict: verdict.name(),
        stack: source.maybe_stack(state.stack),
    }
}
