//! The report's `offcpu` and `gil`.

use std::cmp::Reverse;
use std::rc::Rc;

use serde::Serialize;

use super::source::Source;
use super::{Spent, StackOut, pid};
use crate::families::{Times, gil, offcpu};
use crate::{Pid, Tid, WaitReason, Waker};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SleepOut {
    pub pid: Pid,
    pub tid: Tid,
    /// Root first.
    pub stack: StackOut,
    pub reason: WaitReason,
    #[serde(flatten)]
    pub spent: Spent,
    /// The number of stacks behind the figures. They are exact if it equals `count`.
    pub stacks: u64,
    /// Sorted by the total length of the sleeps they ended, longest first.
    pub wakers: Vec<WakerCount>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WakerCount {
    #[serde(flatten)]
    pub waker: Waker,
    pub count: u64,
    pub total_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GilWaitOut {
    pub pid: Pid,
    pub waiter: ThreadStack,
    pub holder: Option<ThreadStack>,
    /// The number of waits that began behind the holder, the time spent behind it, and the longest whole wait that was
    /// at least partly behind it.
    #[serde(flatten)]
    pub spent: Spent,
    /// The unit of `count`: `waits`, or `pieces` if stacks were sampled. Pieces last at most a switch interval, so
    /// there are at least as many. The times of a whole thread are exact, but their split over lines and holders is
    /// then an estimate.
    pub count_of: &'static str,
    /// The number of stacks behind the figures.
    pub stacks: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadStack {
    pub tid: Tid,
    pub stack: StackOut,
}

/// How many wakers each sleep lists.
const WAKERS: usize = 3;

impl From<(&Waker, Times)> for WakerCount {
    fn from((waker, times): (&Waker, Times)) -> Self {
        Self { waker: waker.clone(), count: times.count, total_s: times.total.as_secs_f64() }
    }
}

/// Most time first.
pub(super) fn offcpu<'m>(source: &Rc<Source<'m>>) -> impl Iterator<Item = SleepOut> + use<'m> {
    let source = Rc::clone(source);
    let (model, limit) = (source.model, source.limit);
    let mut sums: Vec<_> = model.offcpu().sums(&source.selection).into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse(sum.times.total));
    let row = move |(key, sum): (offcpu::SleepKey, offcpu::SleepSum<'_>)| {
        Some(SleepOut {
            pid: pid(model, key.place.process)?,
            tid: key.place.tid,
            stack: source.stack(key.place.stack),
            reason: key.reason,
            spent: sum.times.into(),
            stacks: sum.sampled.stacks,
            wakers: sum.wakers.most().into_iter().take(WAKERS).map(WakerCount::from).collect(),
        })
    };
    sums.into_iter().take(limit).filter_map(row)
}

/// Most time first.
pub(super) fn gil<'m>(source: &Rc<Source<'m>>) -> impl Iterator<Item = GilWaitOut> + use<'m> {
    let source = Rc::clone(source);
    let (model, limit) = (source.model, source.limit);
    let mut sums: Vec<_> = model.gil().sums(&source.selection).into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse(sum.times.total));
    let of_thread = move |tid, id| ThreadStack { tid, stack: source.stack(id) };
    let row = move |(key, sum): (gil::GilKey, gil::GilSum)| {
        Some(GilWaitOut {
            pid: pid(model, key.waiter.process)?,
            waiter: of_thread(key.waiter.tid, key.waiter.stack),
            holder: key.holder.map(|holder| of_thread(holder.tid, holder.stack)),
            spent: sum.times.into(),
            count_of: if sum.sampled.is_exact() { "waits" } else { "pieces" },
            stacks: sum.sampled.stacks,
        })
    };
    sums.into_iter().take(limit).filter_map(row)
}
