//! Duration of the stages of transfers, and how many transfers wait to be handed to UCX.

use std::collections::BTreeMap;

use super::transfers::has_transfer;
use crate::families::ucx::TransferState;
use crate::{Model, Nanos, ProcessRef, Selection};

/// A count over time: each value holds from its time on.
type Depths = Vec<(Nanos, u64)>;

/// A stage in the life of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Registered with UCXX, not yet handed to UCX.
    Queued,
    /// Handed to UCX.
    Pending,
    /// Complete, with its future not yet handed over.
    Completed,
    /// Its future was handed over but is not yet set.
    Notified,
}

impl Stage {
    pub const ALL: [Self; 4] = [Self::Queued, Self::Pending, Self::Completed, Self::Notified];

    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Pending => "pending",
            Self::Completed => "completed",
            Self::Notified => "notified",
        }
    }

    /// When the stage began and ended.
    pub fn of(self, state: &TransferState) -> Option<(Nanos, Nanos)> {
        let transfer = &state.transfer;
        Some(match self {
            Self::Queued => (transfer.registered?, transfer.submitted.filter(|_| !transfer.operation.is_multi())?),
            Self::Pending => (transfer.submitted?, transfer.completed?),
            Self::Completed => (transfer.completed?, state.woken?.notified),
            Self::Notified => (state.woken?.notified, state.woken?.woken),
        })
    }
}

/// Durations are counted in buckets by powers of two. The first bucket is below 1 µs, each other one begins at
/// [`bucket_start`], and the last one has no upper bound.
pub const BUCKETS: usize = 26;

/// Where a bucket begins.
pub fn bucket_start(bucket: usize) -> Nanos {
    if bucket == 0 { Nanos(0) } else { Nanos(1000 << (bucket - 1).min(BUCKETS)) }
}

fn bucket(length: Nanos) -> usize {
    let micros = length.0 / 1000;
    ((u64::BITS - micros.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// The distribution of a stage's durations: half of `count` took at most `p50`, and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    pub count: u64,
    pub p50: Nanos,
    pub p90: Nanos,
    pub p99: Nanos,
    pub max: Nanos,
    pub histogram: [u64; BUCKETS],
}

pub fn spread(mut lengths: Vec<Nanos>) -> Spread {
    lengths.sort_unstable();
    let at = |percent: usize| {
        let rank = (lengths.len() * percent).div_ceil(100).max(1) - 1;
        lengths.get(rank).copied().unwrap_or_default()
    };
    let mut histogram = [0; BUCKETS];
    for length in &lengths {
        histogram[bucket(*length)] += 1;
    }
    Spread { count: lengths.len() as u64, p50: at(50), p90: at(90), p99: at(99), max: at(100), histogram }
}

/// The stages of these transfers. A transfer of several buffers is pending while its parts are, so only they count.
pub fn stages<'model>(states: &(impl Iterator<Item = &'model TransferState> + Clone)) -> [(Stage, Spread); 4] {
    Stage::ALL.map(|stage| {
        let own = states.clone().filter(|state| stage != Stage::Pending || !state.transfer.operation.is_multi());
        let lengths = own.filter_map(|state| stage.of(state));
        (stage, spread(lengths.map(|(from, to)| to.saturating_sub(from)).collect()))
    })
}

/// How many transfers were registered but not handed to UCX, at each change.
pub fn queue(model: &Model, selection: &Selection) -> Depths {
    depths(queued(model, selection).flat_map(|(_, changes)| changes).collect())
}

/// The same as [`queue`], by process.
pub fn queues(model: &Model, selection: &Selection) -> BTreeMap<ProcessRef, Depths> {
    let mut all: BTreeMap<ProcessRef, Vec<(Nanos, i64)>> = BTreeMap::new();
    for (process, changes) in queued(model, selection) {
        all.entry(process).or_default().extend(changes);
    }
    all.into_iter().map(|(process, changes)| (process, depths(changes))).collect()
}

/// The changes to the queue of transfers that wait to be handed to UCX, each with its process.
fn queued<'a>(
    model: &'a Model,
    selection: &'a Selection,
) -> impl Iterator<Item = (ProcessRef, impl Iterator<Item = (Nanos, i64)>)> + 'a {
    let all = model.ucx().transfers().filter(|(_, state)| has_transfer(selection, state));
    all.filter_map(|(_, TransferState { transfer, .. })| {
        let is_delayed = transfer.is_delayed() || transfer.submitted.is_none();
        let registered = transfer.registered.filter(|_| is_delayed && !transfer.operation.is_multi())?;
        let submitted = transfer.submitted.map(|submitted| (submitted, -1));
        Some((transfer.process, [(registered, 1)].into_iter().chain(submitted)))
    })
}

fn depths(mut changes: Vec<(Nanos, i64)>) -> Depths {
    changes.sort_unstable();
    let mut depth = 0_i64;
    let add = |(at, change): (Nanos, i64)| {
        depth += change;
        (at, depth.unsigned_abs())
    };
    changes.into_iter().map(add).collect()
}

/// The longest queue in each of `slots` equal parts of the time between the first and last change.
pub fn queue_over_time(changes: &[(Nanos, u64)], slots: usize) -> Vec<u64> {
    let (Some((first, _)), Some((last, _))) = (changes.first(), changes.last()) else { return Vec::new() };
    let length = last.saturating_sub(*first).0.max(1);
    let mut deepest = vec![0; slots];
    let (mut depth, mut from) = (0, 0);
    for (at, after) in changes {
        let share = at.saturating_sub(*first).0 as f64 / length as f64;
        let slot = ((share * slots as f64) as usize).min(slots.saturating_sub(1));
        // The previous length held until now.
        for passed in deepest.iter_mut().take(slot + 1).skip(from) {
            *passed = depth.max(*passed);
        }
        if let Some(here) = deepest.get_mut(slot) {
            *here = (*after).max(*here);
        }
        (depth, from) = (*after, slot);
    }
    deepest
}
