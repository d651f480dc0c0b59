//! The report's `offcpu` and `gil`.

use std::cmp::Reverse;
use std::rc::Rc;

use serde::Serialize;

use super::source::Source;
use super::{Spent, StackOut, pid};
use crate::families::{Times, gil, offcpu};
use crate::{Pid, Tid, WaitReason, Waker};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OffCpu {
    pub pid: Pid,
    pub tid: Tid,
    /// Root first.
    pub stack: StackOut,
    pub reason: WaitReason,
    #[serde(flatten)]
    pub spent: Spent,
    /// How many stacks the figures rest on: they are exact if it is `count`.
    pub stacks: u64,
    /// Who ended the longest sleeps together first.
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
pub struct Gil {
    pub pid: Pid,
    pub waiter: ThreadStack,
    pub holder: Option<ThreadStack>,
    /// The waits that began behind the holder, the time that was spent behind it, and the longest whole wait that was
    /// spent behind it in part.
    #[serde(flatten)]
    pub spent: Spent,
    /// What `count` counts: `waits`; or `pieces` of at most a switch interval if stacks were sampled, which are at least as many.
    /// Times are exact for a thread as a whole, and its lines and holders share them by estimate then.
    pub count_of: &'static str,
    /// How many stacks the figures rest on.
    pub stacks: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadStack {
    pub tid: Tid,
    pub stack: StackOut,
}

/// Of each sleep's wakers, those who woke it most.
const WAKERS: usize = 3;

impl From<(&Waker, Times)> for WakerCount {
    fn from((waker, times): (&Waker, Times)) -> Self {
        Self { waker: waker.clone(), count: times.count, total_s: times.total.as_secs_f64() }
    }
}

/// Most time first.
pub(super) fn offcpu<'m>(source: &Rc<Source<'m>>) -> impl Iterator<Item = OffCpu> + use<'m> {
    let source = Rc::clone(source);
    let (model, limit) = (source.model, source.limit);
    let mut sums: Vec<_> = model.offcpu().sums(&source.selection).into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse(sum.times.total));
    let row = move |(key, sum): (offcpu::Key, offcpu::Sum<'_>)| {
        Some(OffCpu {
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
pub(super) fn gil<'m>(source: &Rc<Source<'m>>) -> impl Iterator<Item = Gil> + use<'m> {
    let source = Rc::clone(source);
    let (model, limit) = (source.model, source.limit);
    let mut sums: Vec<_> = model.gil().sums(&source.selection).into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse(sum.times.total));
    let of_thread = move |tid, id| ThreadStack { tid, stack: source.stack(id) };
    let row = move |(key, sum): (gil::Key, gil::Sum)| {
        Some(Gil {
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
