//! Which stages of transfers take longer or shorter.

use std::collections::BTreeMap;

use serde::Serialize;

use super::noise::{self, Delta};
use super::{Changes, changed, join};
use crate::views::Stage;
use crate::{Model, Nanos, Operation};

/// Percentiles in seconds; `None` if either side has too few transfers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageChange {
    pub operation: Operation,
    pub stage: &'static str,
    pub p50: Option<Delta>,
    pub p90: Option<Delta>,
    pub p99: Option<Delta>,
    pub count_before: usize,
    pub count_after: usize,
}

pub(super) fn stages(before: &Model, after: &Model) -> Changes<StageChange> {
    let rows = join(&side(before), &side(after));
    let bound = noise::bound(rows.len() * 3);
    let row = |((operation, stage), before, after): ((Operation, Stage), Vec<Nanos>, Vec<Nanos>)| {
        let at = |share| noise::percentile(&before, &after, share, bound);
        StageChange {
            operation,
            stage: stage.name(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            count_before: before.len(),
            count_after: after.len(),
        }
    };
    changed(rows.into_iter().map(row).collect(), |row| [row.p50, row.p90, row.p99].into_iter().flatten().collect())
}

/// Sorted.
fn side(model: &Model) -> BTreeMap<(Operation, Stage), Vec<Nanos>> {
    let mut lengths: BTreeMap<(Operation, Stage), Vec<Nanos>> = BTreeMap::new();
    for (_, state) in model.ucx().transfers() {
        for stage in Stage::ALL {
            if let Some((from, to)) = stage.of(state) {
                let key = (state.transfer.operation, stage);
                lengths.entry(key).or_default().push(to.saturating_sub(from));
            }
        }
    }
    for lengths in lengths.values_mut() {
        lengths.sort_unstable();
    }
    lengths
}
