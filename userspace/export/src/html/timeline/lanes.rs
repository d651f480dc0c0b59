//! Lanes: what each thread did, in equal slots of time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use maud::{Markup, html};
use pyobs_model::{Family, Model, Nanos, ProcessRef, Selection, Tid, WaitReason};

use super::{LANE, LEFT, TimelineSpan, WIDTH};

const SLOTS: usize = 400;
/// Heights are rounded to this fraction of a lane, so that neighbouring slots often merge into one rectangle of the path.
const STEPS: f64 = 10.0;

/// The shares of each slot that a thread spent on a CPU, waiting for the GIL and asleep.
#[derive(Clone)]
pub(super) struct ThreadLane {
    cpu: Vec<f64>,
    gil: Vec<f64>,
    sleep: Vec<f64>,
}

impl Default for ThreadLane {
    fn default() -> Self {
        let empty = || vec![0.0; SLOTS];
        Self { cpu: empty(), gil: empty(), sleep: empty() }
    }
}

pub(super) fn lanes(
    model: &Model,
    selection: &Selection,
    span: TimelineSpan,
) -> BTreeMap<(ProcessRef, Tid), ThreadLane> {
    let mut lanes: BTreeMap<(ProcessRef, Tid), ThreadLane> = BTreeMap::new();
    let slot = slot(span).0 as f64;
    for sample in model.cpu().selected(selection) {
        let at = ((span.share(sample.at) * SLOTS as f64) as usize).min(SLOTS - 1);
        lanes.entry((sample.process, sample.tid)).or_default().cpu[at] += sample.weight.0 as f64 / slot;
    }
    for wait in model.gil().waits(selection) {
        spread(&mut lanes.entry((wait.process, wait.tid)).or_default().gil, span, (wait.from, wait.at), wait.total);
    }
    for sleep in model.offcpu().sleeps(selection) {
        let lane = lanes.entry((sleep.process, sleep.tid)).or_default();
        let is_gil = sleep.reason == WaitReason::Gil;
        if is_gil && model.is_on(Family::Gil) {
            continue;
        }
        spread(if is_gil { &mut lane.gil } else { &mut lane.sleep }, span, (sleep.from, sleep.at), sleep.total);
    }
    lanes
}

/// The length of a slot.
pub(super) fn slot(span: TimelineSpan) -> Nanos {
    Nanos((span.length().0 / SLOTS as u64).max(1))
}

/// Adds waits of `total` together to the slots between `from` and `at`.
fn spread(slots: &mut [f64], span: TimelineSpan, (from, at): (Nanos, Nanos), total: Nanos) {
    // The event may stand for several sleeps, whose places between `from` and `at` are not known.
    let density = (total.0 as f64 / at.saturating_sub(from).0.max(1) as f64).min(1.0);
    let from = span.share(from) * SLOTS as f64;
    let to = span.share(at) * SLOTS as f64;
    let (first, last) = (from as usize, (to.ceil() as usize).min(SLOTS));
    for (slot, share) in slots.iter_mut().enumerate().take(last).skip(first) {
        *share += (to.min(slot as f64 + 1.0) - from.max(slot as f64)).max(0.0) * density;
    }
}

/// The `limit` busiest lanes, and the number of the others.
pub(super) fn busiest(
    lanes: BTreeMap<(ProcessRef, Tid), ThreadLane>,
    limit: usize,
) -> (BTreeMap<(ProcessRef, Tid), ThreadLane>, usize) {
    let mut lanes: Vec<_> = lanes.into_iter().collect();
    let left_out = lanes.len().saturating_sub(limit);
    let busy = |lane: &ThreadLane| (lane.cpu.iter().sum::<f64>() + lane.gil.iter().sum::<f64>()) * 1e6;
    lanes.sort_by_key(|(_, lane)| Reverse(busy(lane) as u64));
    lanes.truncate(limit);
    (lanes.into_iter().collect(), left_out)
}

impl ThreadLane {
    /// A path per activity, stacked from the bottom.
    pub(super) fn draw(&self, y: u32) -> Markup {
        let mut bottom = vec![0.0; SLOTS];
        let paths = [("cpu", &self.cpu), ("gilwait", &self.gil), ("sleep", &self.sleep)].map(|(class, shares)| {
            let heights = shares.iter().zip(&bottom).map(|(share, from)| {
                // Samples stand for whole periods, so shares may add up to more than the slot.
                ((share * STEPS).round() / STEPS).min(1.0 - from)
            });
            let heights: Vec<f64> = heights.collect();
            let path = path(&bottom, &heights, f64::from(y));
            for (from, height) in bottom.iter_mut().zip(&heights) {
                *from += height;
            }
            (class, path)
        });
        html! { @for (class, path) in paths { @if !path.is_empty() { path class=(class) d=(path) {} } } }
    }
}

fn path(bottom: &[f64], heights: &[f64], y: f64) -> String {
    let mut path = String::new();
    let mut at = 0;
    while at < SLOTS {
        let same = (at..SLOTS).take_while(|slot| heights[*slot] == heights[at] && bottom[*slot] == bottom[at]).count();
        if heights[at] > 0.0 {
            let lane = f64::from(LANE);
            let (x, width) = (LEFT + WIDTH * at as f64 / SLOTS as f64, WIDTH * same as f64 / SLOTS as f64);
            let (top, height) = (y + lane * (1.0 - bottom[at] - heights[at]), lane * heights[at]);
            // Writing to a string does not fail.
            let _ = write!(path, "M{x:.1} {top:.1}h{width:.1}v{height:.1}h-{width:.1}z");
        }
        at += same;
    }
    path
}
