//! Which waits got longer or shorter, as time per second of recording.

use std::collections::BTreeMap;

use serde::Serialize;

use super::noise::{self, Delta, LengthSum};
use super::{Changes, Function, changed, join};
use crate::{Model, Selection, WaitReason};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SleepChange {
    pub reason: WaitReason,
    /// The innermost Python function.
    pub place: Option<Function>,
    /// Seconds asleep per second, summed over threads.
    pub per_s: Delta,
    pub count_before: u64,
    pub count_after: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GilChange {
    pub waiter: Option<Function>,
    pub holder: Option<Function>,
    /// Seconds of waiting per second, summed over threads.
    pub per_s: Delta,
    pub count_before: u64,
    pub count_after: u64,
}

pub(super) fn sleeps(before: &Model, after: &Model) -> Changes<SleepChange> {
    let side = |model: &Model| {
        let mut sums: BTreeMap<(WaitReason, Option<Function>), LengthSum> = BTreeMap::new();
        for (key, folded) in model.offcpu().folded(&Selection::default()) {
            let key = (key.reason, Function::of_stack(model, Some(key.place.stack)));
            sums.entry(key).or_default().join(&folded.lengths);
        }
        for sleep in model.offcpu().sleeps(&Selection::default()) {
            let key = (sleep.reason, Function::of_stack(model, Some(sleep.stack)));
            sums.entry(key).or_default().add(sleep.at, sleep.count, sleep.total);
        }
        sums
    };
    let rows = join(&side(before), &side(after));
    let (bound, seconds) = (noise::bound(rows.len()), (seconds(before), seconds(after)));
    let row = |((reason, place), before, after): (_, LengthSum, LengthSum)| SleepChange {
        reason,
        place,
        per_s: noise::sums((&before, seconds.0), (&after, seconds.1), bound),
        count_before: before.count,
        count_after: after.count,
    };
    changed(rows.into_iter().map(row).collect(), |row| vec![row.per_s])
}

pub(super) fn gil(before: &Model, after: &Model) -> Changes<GilChange> {
    let side = |model: &Model| {
        let mut sums: BTreeMap<(Option<Function>, Option<Function>), LengthSum> = BTreeMap::new();
        for (key, folded) in model.gil().folded(&Selection::default()) {
            let holder = key.holder.and_then(|holder| Function::of_stack(model, Some(holder.stack)));
            let key = (Function::of_stack(model, Some(key.waiter.stack)), holder);
            sums.entry(key).or_default().join(&folded.lengths);
        }
        for wait in model.gil().waits(&Selection::default()) {
            let holder = wait.holder.and_then(|holder| Function::of_stack(model, Some(holder.stack)));
            let key = (Function::of_stack(model, Some(wait.stack)), holder);
            sums.entry(key).or_default().add(wait.at, wait.count, wait.total);
        }
        sums
    };
    let rows = join(&side(before), &side(after));
    let (bound, seconds) = (noise::bound(rows.len()), (seconds(before), seconds(after)));
    let row = |((waiter, holder), before, after): (_, LengthSum, LengthSum)| GilChange {
        waiter,
        holder,
        per_s: noise::sums((&before, seconds.0), (&after, seconds.1), bound),
        count_before: before.count,
        count_after: after.count,
    };
    changed(rows.into_iter().map(row).collect(), |row| vec![row.per_s])
}

fn seconds(model: &Model) -> f64 {
    model.now().as_secs_f64().max(f64::MIN_POSITIVE)
}
