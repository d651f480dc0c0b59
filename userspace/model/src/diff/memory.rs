//! Where more or fewer arenas and segments are born, and how many stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::noise::{self, Delta};
use super::{Changes, Function, changed, join};
use crate::families::Forgotten;
use crate::families::shm::SegmentVerdict;
use crate::{Model, SegmentKind};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArenaDiff {
    pub kind: Arc<str>,
    /// Where they were born.
    pub place: Option<Function>,
    pub born: Delta,
    /// Those of `born` that were not freed.
    pub kept: Delta,
    pub kept_bytes_before: u64,
    pub kept_bytes_after: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SegmentDiff {
    pub kind: SegmentKind,
    /// Where they were made.
    pub place: Option<Function>,
    pub made: Delta,
    /// Those of `made` that no process holds and nobody unlinked.
    pub residue: Delta,
    pub bytes_before: u64,
    pub bytes_after: u64,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    all: u64,
    kept: u64,
    bytes: u64,
}

impl Counts {
    fn add(&mut self, sum: Forgotten, bytes: u64) {
        self.all += sum.count;
        self.kept += sum.kept;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// The segments made at one place: their kind, and their counts.
type Made = (Option<SegmentKind>, Counts);

pub(super) fn arenas(before: &Model, after: &Model) -> Changes<ArenaDiff> {
    let side = |model: &Model| {
        let mut sums: BTreeMap<(Arc<str>, Option<Function>), Counts> = BTreeMap::new();
        for (_, state) in model.arenas().arenas() {
            let key = (Arc::clone(&state.arena.kind), Function::of_stack(model, model.arenas().birth(state)));
            let counts = sums.entry(key).or_default();
            counts.all += 1;
            if state.is_kept() {
                counts.kept += 1;
                counts.bytes = counts.bytes.saturating_add(state.arena.bytes);
            }
        }
        for (birth, sum) in model.arenas().forgotten() {
            let key = (Arc::clone(&birth.kind), Function::of_stack(model, birth.stack));
            sums.entry(key).or_default().add(sum, sum.kept_bytes);
        }
        sums
    };
    let rows = join(&side(before), &side(after));
    let bound = noise::bound(rows.len() * 2);
    let row = |((kind, place), before, after): (_, Counts, Counts)| ArenaDiff {
        kind,
        place,
        born: noise::counts(before.all, after.all, bound),
        kept: noise::counts(before.kept, after.kept, bound),
        kept_bytes_before: before.bytes,
        kept_bytes_after: after.bytes,
    };
    changed(rows.into_iter().map(row).collect(), |row| vec![row.born, row.kept])
}

pub(super) fn segments(before: &Model, after: &Model) -> Changes<SegmentDiff> {
    let side = |model: &Model| {
        let mut sums: BTreeMap<(&'static str, Option<Function>), Made> = BTreeMap::new();
        for (_, state) in model.shm().segments() {
            let key = (state.segment.kind.name(), Function::of_stack(model, state.stack));
            let (kind, counts) = sums.entry(key).or_default();
            *kind = Some(state.segment.kind);
            counts.all += 1;
            counts.kept += u64::from(state.verdict() == SegmentVerdict::Residue);
            counts.bytes = counts.bytes.saturating_add(state.segment.bytes);
        }
        for (kind, stack, sum) in model.shm().forgotten() {
            let (known, counts) = sums.entry((kind.name(), Function::of_stack(model, stack))).or_default();
            *known = Some(kind);
            counts.add(sum, sum.bytes);
        }
        sums
    };
    let rows = join(&side(before), &side(after));
    let bound = noise::bound(rows.len() * 2);
    let row = |((_, place), (kind_before, before), (kind_after, after)): (_, Made, Made)| {
        Some(SegmentDiff {
            kind: kind_after.or(kind_before)?,
            place,
            made: noise::counts(before.all, after.all, bound),
            residue: noise::counts(before.kept, after.kept, bound),
            bytes_before: before.bytes,
            bytes_after: after.bytes,
        })
    };
    changed(rows.into_iter().filter_map(row).collect(), |row| vec![row.made, row.residue])
}
