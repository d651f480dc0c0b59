//! Lengths of time that are added up, with what chance does to their sum.

use crate::Nanos;

/// Lengths that end in the same are one.
const SLOT: Nanos = Nanos(100_000_000);

/// Lengths that are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lengths {
    pub count: u64,
    pub total_s: f64,
    squares: f64,
    /// The last slot, and what is in it.
    slot: u64,
    in_slot_s: f64,
}

impl Lengths {
    /// `count` of them that are `total` together and ended at `at`; oldest first.
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

    /// Adds what was added up elsewhere, of other places or of earlier times.
    pub(crate) fn join(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.total_s += other.total_s;
        self.squares += other.squares();
    }

    /// The squares of the lengths, of which those in one slot are one.
    pub(crate) fn squares(&self) -> f64 {
        self.squares + self.in_slot_s * self.in_slot_s
    }
}
