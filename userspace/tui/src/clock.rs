//! Estimates the model's time while no events come in.

use std::time::Duration;

use pyobs_model::Nanos;

/// A moment of the loop with the model's time at that moment. Unknown until the first event with a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock(Option<(Duration, Nanos)>);

impl Clock {
    /// Events arrive late but never early, so only one that is ahead of the clock adjusts it.
    pub(crate) fn set(&mut self, now: Duration, at: Nanos) {
        if at > Nanos(0) && self.time(now).is_none_or(|expected| at > expected) {
            self.0 = Some((now, at));
        }
    }

    pub(crate) fn time(&self, now: Duration) -> Option<Nanos> {
        let (then, at) = self.0?;
        let passed = u64::try_from(now.saturating_sub(then).as_nanos()).unwrap_or(u64::MAX);
        Some(Nanos(at.0.saturating_add(passed)))
    }
}
