//! The rows: one thread's waits at one place for one cause.

use pyobs_model::families::{Sampled, Times};
use pyobs_model::views;
use pyobs_model::{FrameId, Model, Nanos, ProcessRef, Tid, WaitReason, Waker};

use crate::filter::Filter;
use crate::screens::names::{matches, thread_label};
use crate::text;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WaitSort {
    #[default]
    Total,
    Count,
    Longest,
    /// The reason, or the holder of the GIL.
    Cause,
    Thread,
    Place,
}

/// Identifies a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitKey {
    pub(super) process: ProcessRef,
    /// 0 for all threads of a group of processes.
    pub(super) tid: Tid,
    /// The innermost Python frame.
    pub(super) frame: Option<FrameId>,
    pub(super) cause: WaitCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaitCause {
    Sleep {
        reason: WaitReason,
        /// The native or kernel function below the Python frame.
        inner: Option<FrameId>,
    },
    Gil {
        holder: Option<Tid>,
        /// The innermost Python frame of the holder.
        frame: Option<FrameId>,
    },
}

pub(super) struct WaitRow {
    pub(super) wait: WaitKey,
    pub(super) times: Times,
    pub(super) sampled: Sampled,
    /// The share of the thread's time.
    pub(super) share: f64,
    pub(super) waker: Option<Waker>,
}

impl WaitRow {
    pub(super) fn of_sleep(row: views::SleepRow) -> Self {
        let cause = WaitCause::Sleep { reason: row.reason, inner: row.inner };
        let wait = WaitKey { process: row.process, tid: row.tid, frame: row.frame, cause };
        Self { wait, times: row.times, sampled: row.sampled, share: row.share, waker: row.waker }
    }

    pub(super) fn of_gil(row: &views::GilRow, observed: Nanos) -> Self {
        let cause = WaitCause::Gil { holder: row.holder, frame: row.holder_frame };
        let wait = WaitKey { process: row.process, tid: row.waiter, frame: row.frame, cause };
        let share = if observed == Nanos(0) { 0.0 } else { row.times.total.0 as f64 / observed.0 as f64 };
        Self { wait, times: row.times, sampled: row.sampled, share: share.min(1.0), waker: None }
    }

    pub(super) fn matches(&self, model: &Model, filter: &Filter) -> bool {
        let WaitKey { process, tid, frame, cause } = self.wait;
        let has_frame =
            |id: Option<FrameId>| id.and_then(|id| model.frame(id)).is_some_and(|frame| matches(frame, filter));
        let has_thread = |tid| filter.matches(&thread_label(model, process, tid));
        let is_behind = match cause {
            WaitCause::Sleep { reason, inner } => filter.matches(reason.name()) || has_frame(inner),
            WaitCause::Gil { holder, frame } => holder.is_some_and(has_thread) || has_frame(frame),
        };
        let is_waker = self.waker.as_ref().is_some_and(|waker| filter.matches(&waker_label(waker)));
        has_thread(tid) || has_frame(frame) || is_behind || is_waker
    }
}

pub(super) fn waker_label(waker: &Waker) -> String {
    format!("{} {}", waker.tid, text::head(&waker.name, 512))
}
