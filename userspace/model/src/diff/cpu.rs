//! What uses more or less CPU time.

use crate::Family;
use std::collections::BTreeMap;

use serde::Serialize;

use super::noise::{self, Delta};
use super::{Changes, Function, changed, join};
use crate::views::{self, By, Look, Native};
use crate::{Model, Nanos, Selection};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// CPU seconds per second; `None` if the family was off in either recording.
    pub cpu_per_s: Option<Delta>,
}

/// A function's share of the samples before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrameChange {
    pub place: Function,
    /// Samples in which the function is the leaf.
    pub own: Delta,
    pub total: Delta,
}

pub(super) fn totals(before: &Model, after: &Model) -> Totals {
    let side = |model: &Model| {
        let (each, seconds) = (each(model), model.now().as_secs_f64());
        (count(model.cpu().sum().time.0, each), if seconds > 0.0 { seconds / each } else { 1.0 })
    };
    let both = before.is_on(Family::Cpu) && after.is_on(Family::Cpu);
    Totals { cpu_per_s: both.then(|| noise::rates(side(before), side(after), noise::bound(1))) }
}

pub(super) fn frames(before: &Model, after: &Model) -> Changes<FrameChange> {
    let ((before, all_before), (after, all_after)) = (side(before), side(after));
    let rows = join(&before, &after);
    let bound = noise::bound(rows.len() * 2);
    let row = |(place, before, after): (Function, (u64, u64), (u64, u64))| FrameChange {
        place,
        own: noise::shares((before.0, all_before), (after.0, all_after), bound),
        total: noise::shares((before.1, all_before), (after.1, all_after), bound),
    };
    changed(rows.into_iter().map(row).collect(), |row| vec![row.own, row.total])
}

/// The CPU time in seconds per sample of a set of equally weighted samples with the same total and variance (Kish's
/// effective sample size, "Survey Sampling", section 11.7).
fn each(model: &Model) -> f64 {
    let each = model.cpu().sum().mean_weight();
    if each > 0.0 { each } else { model.meta().period().as_secs_f64() }
}

fn count(time_ns: u64, each: f64) -> u64 {
    (Nanos(time_ns).as_secs_f64() / each).round() as u64
}

/// Own and total samples of each function, and the count of all samples, as samples of equal weight.
fn side(model: &Model) -> (BTreeMap<Function, (u64, u64)>, u64) {
    let look = Look { by: By::Function, native: Native::Full, ..Look::default() };
    let view = views::frames(model, &Selection::default(), look);
    let mut sums: BTreeMap<Function, (u64, u64)> = BTreeMap::new();
    for row in &view.rows {
        let Some(place) = Function::of(model, row.frame) else { continue };
        let (own, total) = sums.entry(place).or_default();
        (*own, *total) = (own.saturating_add(row.own), total.saturating_add(row.total));
    }
    let each = each(model);
    for (own, total) in sums.values_mut() {
        (*own, *total) = (count(*own, each), count(*total, each));
    }
    (sums, count(view.total, each))
}
