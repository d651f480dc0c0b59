//! What got hotter and colder.

use std::collections::BTreeMap;

use serde::Serialize;

use super::noise::{self, Delta};
use super::{Compared, Place, changed, join};
use crate::views::{self, By, Look};
use crate::{Model, Selection};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// CPU time by the second; `None` where the family was off in one of them.
    pub cpu_per_s: Option<Delta>,
}

/// Shares of the samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrameChange {
    pub place: Place,
    /// In which it is the leaf.
    pub own: Delta,
    pub total: Delta,
}

pub(super) fn totals(before: &Model, after: &Model) -> Totals {
    let side = |model: &Model| {
        // Samples come by rate: this many are a second of CPU time.
        let seconds = model.now().as_secs_f64() * f64::from(model.meta().rate_hz);
        (model.cpu().total(), if seconds > 0.0 { seconds } else { 1.0 })
    };
    let both = before.is_on("cpu") && after.is_on("cpu");
    Totals { cpu_per_s: both.then(|| noise::rates(side(before), side(after), noise::bound(1))) }
}

pub(super) fn frames(before: &Model, after: &Model) -> Compared<FrameChange> {
    let ((before, all_before), (after, all_after)) = (side(before), side(after));
    let rows = join(&before, &after);
    let bound = noise::bound(rows.len() * 2);
    let row = |(place, before, after): (Place, (u64, u64), (u64, u64))| FrameChange {
        place,
        own: noise::shares((before.0, all_before), (after.0, all_after), bound),
        total: noise::shares((before.1, all_before), (after.1, all_after), bound),
    };
    changed(rows.into_iter().map(row).collect(), |row| vec![row.own, row.total])
}

/// Own and total samples of each function, and all samples.
fn side(model: &Model) -> (BTreeMap<Place, (u64, u64)>, u64) {
    let view = views::frames(model, &Selection::default(), Look { by: By::Function, ..Look::default() }, false);
    let mut sums: BTreeMap<Place, (u64, u64)> = BTreeMap::new();
    for row in &view.rows {
        let Some(place) = Place::of(model, row.frame) else { continue };
        let (own, total) = sums.entry(place).or_default();
        (*own, *total) = (own.saturating_add(row.own), total.saturating_add(row.total));
    }
    (sums, view.total)
}
