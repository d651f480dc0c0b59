//! Sums of lengths of time, with what their standard error needs.

use crate::Nanos;

/// Lengths that end within the same slot count as one.
const SLOT: Nanos = Nanos(100_000_000);

/// A sum of lengths, with what its standard error needs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LengthSum {
    pub count: u64,
    pub total_s: f64,
    squares: f64,
    /// The slot being filled, and its sum so far.
    slot: u64,
    in_slot_s: f64,
}

impl LengthSum {
    /// Adds `count` lengths that sum to `total` and ended at `at`. Call it in time order.
    pub fn add(&mut self, at: Nanos, count: u64, total: Nanos) {
        let total = total.as_secs_f64();
        self.count = self.count.saturating_add(count);
        self.total_s += total;
        let slots = (total / SLOT.as_secs_f64()).min(count as f64);
        if slots > 1.0 {
            self.squares += total * total / slots;
            return;
        }
        if at.0 / SLOT.0 != self.slot {
            self.squares = self.squares();
            (self.slot, self.in_slot_s) = (at.0 / SLOT.0, 0.0);
        }
        self.in_slot_s += total;
    }

    /// Adds another sum.
    pub(crate) fn join(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.total_s += other.total_s;
        self.squares += other.squares();
    }

    /// The sum of squares. Lengths that end within one slot are added before they are squared.
    pub(crate) fn squares(&self) -> f64 {
        self.squares + self.in_slot_s * self.in_slot_s
    }
}
