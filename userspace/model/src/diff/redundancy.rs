//! Where more or fewer pairs of accesses are redundant.

use std::collections::BTreeMap;

use serde::Serialize;

use super::noise::{self, Delta};
use super::{Changes, Function, changed, join};
use crate::{Model, PairKind, Selection};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairChange {
    pub kind: PairKind,
    pub first: Option<Function>,
    pub second: Option<Function>,
    /// Redundant pairs of these functions, as a share of all pairs in the recording.
    pub equal: Delta,
    pub redundant_bytes_before: u64,
    pub redundant_bytes_after: u64,
}

#[derive(Clone, Copy, Default)]
struct Equal {
    count: u64,
    bytes: u64,
}

type Key = (PairKind, Option<Function>, Option<Function>);

pub(super) fn pairs(before: &Model, after: &Model) -> Changes<PairChange> {
    let ((before, all_before), (after, all_after)) = (side(before), side(after));
    let rows = join(&before, &after);
    let bound = noise::bound(rows.len());
    let row = |((kind, first, second), before, after): (Key, Equal, Equal)| PairChange {
        kind,
        first,
        second,
        equal: noise::shares((before.count, all_before), (after.count, all_after), bound),
        redundant_bytes_before: before.bytes,
        redundant_bytes_after: after.bytes,
    };
    changed(rows.into_iter().map(row).collect(), |row| vec![row.equal])
}

/// Redundant pairs by place, and how many pairs were compared.
fn side(model: &Model) -> (BTreeMap<Key, Equal>, u64) {
    let mut sums: BTreeMap<Key, Equal> = BTreeMap::new();
    let mut all = 0_u64;
    for (pair, sum) in model.redundancy().pair_sums(&Selection::default()) {
        let place = |stack| Function::of_stack(model, Some(stack));
        let equal = sums.entry((pair.kind, place(pair.first), place(pair.second))).or_default();
        equal.count = equal.count.saturating_add(sum.equal);
        equal.bytes = equal.bytes.saturating_add(sum.redundant_bytes);
        all = all.saturating_add(sum.compared);
    }
    (sums, all)
}
