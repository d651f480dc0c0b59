//! Regions of memory: their names, the targets that show them, and the transfers and stores that used them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyobs_model::families::redundancy::{Line, PairSum};
use pyobs_model::families::shm::SegmentState;
use pyobs_model::findings::{self, Target};
use pyobs_model::views::{birthplace, lies_in, region_birth, stores};
use pyobs_model::{Model, Region, RegionId, Selection, Transfer};

use super::names::process_label;
use super::page::{Page, PageLine};
use crate::jump::Jump;
use crate::{number, text};

/// The most transfers, and lines of stores, that are listed. The others are counted.
const TRANSFERS_MAX: usize = 20;
const LINES_MAX: usize = 5;

/// `segment tensor_4242`.
pub(super) fn region_name(model: &Model, id: RegionId) -> String {
    match id {
        RegionId::Arena(id) => {
            model.arenas().get(id).map_or_else(|| "an arena".to_owned(), |it| format!("an arena of {}", it.arena.kind))
        }
        RegionId::Segment(id) => {
            model.shm().get(id).map_or_else(|| "a segment".to_owned(), |it| format!("segment {}", segment_label(it)))
        }
        RegionId::MemInfo(_) => "a MemInfo".to_owned(),
    }
}

/// The target that shows a region.
pub(super) fn region_target(model: &Model, region: &Region) -> Target {
    match region.id {
        RegionId::MemInfo(_) => Target::MemInfos(birthplace(model, region_birth(model, region))),
        id => owner_target(model, id),
    }
}

/// The target that shows an arena or a segment.
pub(super) fn owner_target(model: &Model, id: RegionId) -> Target {
    match id {
        RegionId::Segment(id) => Target::Segment(id),
        RegionId::Arena(id) => {
            let state = model.arenas().get(id);
            Target::Arenas(birthplace(model, state.and_then(|state| model.arenas().birth(state))))
        }
        RegionId::MemInfo(_) => Target::MemInfos(None),
    }
}

/// Lists the latest transfers whose buffers were in matching regions.
pub(super) fn list_transfers<P>(page: &mut Page<P>, model: &Model, is_meant: impl Fn(&Transfer, &Region) -> bool) {
    let lies_there = |transfer: &Transfer| {
        let begun = transfer.begun()?;
        let mut around = model.regions_at_time(transfer.process, transfer.buffer, begun);
        around.any(|region| is_meant(transfer, region)).then_some(begun)
    };
    let transfers = model.ucx().transfers();
    let mut here: Vec<_> =
        transfers.filter_map(|(id, state)| Some((lies_there(&state.transfer)?, id, &state.transfer))).collect();
    here.sort_by_key(|(begun, id, _)| (Reverse(*begun), *id));
    let lines = here.into_iter().map(|(begun, id, transfer)| {
        let (at, size) = (begun.as_secs_f64(), number::size(transfer.bytes));
        let words = format!("at {at:.3} s  {} of {size}", transfer.operation.name());
        let jump = Jump::detail(Some(transfer.process), Target::Transfers(Some(id)), "transfer");
        (PageLine::Words(words), Some(jump))
    });
    page.list("TRANSFERS OUT OF IT AND INTO IT, THE LATEST FIRST", lines, TRANSFERS_MAX);
}

/// Lists the lines whose stores into matching regions changed nothing, those with the most bytes first.
pub(super) fn list_stores<P>(page: &mut Page<P>, model: &Model, is_meant: impl Fn(RegionId) -> bool + Copy) {
    let sums: BTreeMap<Line, PairSum> =
        stores(model, &Selection::default(), |pair| lies_in(model, pair, is_meant) == Some(true));
    let mut sums: Vec<_> = sums.into_iter().filter(|(_, sum)| sum.equal > 0).collect();
    sums.sort_by_key(|(line, sum)| (Reverse(sum.redundant_bytes), *line));
    let line = |(line, sum): (Line, PairSum)| {
        let place = findings::place(model, Some(line.frame));
        let of = process_label(model, Some(line.process));
        let PairSum { equal, compared, redundant_bytes, total_bytes, .. } = sum;
        let words = format!("{equal} of {compared} stores, {redundant_bytes} of {total_bytes} B  {place} in {of}");
        (PageLine::Words(words), Some(Jump::detail(Some(line.process), Target::Line(line.frame), "stores")))
    };
    let lines: Vec<_> = sums.into_iter().map(line).collect();
    page.list("STORES INTO IT THAT LEFT WHAT WAS THERE, BY LINE", lines.into_iter(), LINES_MAX);
}

/// A segment's name, or else its kind and inode.
pub(super) fn segment_label(state: &SegmentState) -> String {
    match state.segment.name.as_deref() {
        Some(name) => text::head(name, 256).to_owned(),
        None => format!("({} {})", state.segment.kind.name(), state.segment.ino),
    }
}
