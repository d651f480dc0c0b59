//! What time it is for the model while no event tells.

use std::time::Duration;

use pyobs_model::Nanos;

/// A moment of the loop and the model's time then; unknown before the first event that has a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock(Option<(Duration, Nanos)>);

impl Clock {
    /// Events come late, never early: only one from the future of this clock puts it right.
    pub(crate) fn set(&mut self, now: Duration, told: Nanos) {
        if told > Nanos(0) && self.time(now).is_none_or(|expected| told > expected) {
            self.0 = Some((now, told));
        }
    }

    pub(crate) fn time(&self, now: Duration) -> Option<Nanos> {
        let (then, told) = self.0?;
        let passed = u64::try_from(now.saturating_sub(then).as_nanos()).unwrap_or(u64::MAX);
        Some(Nanos(told.0.saturating_add(passed)))
    }
}
