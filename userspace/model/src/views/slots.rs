//! Time in equal parts.

use crate::{Model, Nanos, Selection};

/// A number over time, one value per slot.
pub type Series = Vec<u64>;

/// A span of time, divided into equal slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    pub from: Nanos,
    pub to: Nanos,
    pub count: usize,
}

impl Slots {
    /// Divides the time of `selection`, but not before the earliest known time.
    pub fn new(model: &Model, selection: &Selection, count: usize) -> Self {
        let to = selection.to.unwrap_or(model.now()).min(model.now());
        Self { from: selection.from.unwrap_or_default().min(to), to, count }
    }

    /// Length of a slot in nanoseconds.
    pub fn length(&self) -> f64 {
        self.to.saturating_sub(self.from).0.max(1) as f64 / self.count.max(1) as f64
    }

    /// The position of a time, in slots from the beginning of the first.
    fn position(&self, at: Nanos) -> f64 {
        (at.saturating_sub(self.from).0 as f64 / self.length()).min(self.count as f64)
    }

    pub fn of(&self, at: Nanos) -> Option<usize> {
        let is_inside = self.count > 0 && (self.from..=self.to).contains(&at);
        is_inside.then(|| (self.position(at) as usize).min(self.count - 1))
    }

    /// When a slot begins.
    pub fn start(&self, slot: usize) -> Nanos {
        self.from.saturating_add(Nanos((slot as f64 * self.length()) as u64))
    }

    /// The slots that a span covers, each with the covered share.
    pub fn covered(&self, from: Nanos, to: Nanos) -> impl Iterator<Item = (usize, f64)> + use<> {
        let slots = self.ends(from, to).map_or(0..0, |(first, last)| first..last + 1);
        let (first, last) = (self.position(from), self.position(to.max(from)));
        slots.map(move |slot| {
            let (begin, end) = (slot as f64, (slot + 1) as f64);
            (slot, (last.min(end) - first.max(begin)).clamp(0.0, 1.0))
        })
    }

    /// The first and the last slot that a span covers.
    pub fn ends(&self, from: Nanos, to: Nanos) -> Option<(usize, usize)> {
        let is_inside = from <= self.to && to >= self.from && self.count > 0;
        let slot = |at: Nanos| (self.position(at) as usize).min(self.count.saturating_sub(1));
        is_inside.then(|| (slot(from), slot(to.max(from))))
    }
}

/// A running total of amounts that come and go.
pub(super) struct Running(Vec<i128>);

impl Running {
    pub(super) fn new(slots: Slots) -> Self {
        Self(vec![0; slots.count + 1])
    }

    pub(super) fn add(&mut self, slots: Slots, (from, to): (Nanos, Nanos), amount: u64) {
        if let Some((first, last)) = slots.ends(from, to) {
            self.0[first] += i128::from(amount);
            self.0[last + 1] -= i128::from(amount);
        }
    }

    /// The amount in each slot.
    pub(super) fn series(self) -> Series {
        let count = self.0.len() - 1;
        let sums = self.0.into_iter().take(count).scan(0_i128, |sum, change| {
            *sum += change;
            Some(*sum)
        });
        sums.map(|sum| u64::try_from(sum).unwrap_or(u64::MAX)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Slots = Slots { from: Nanos(1_000), to: Nanos(2_000), count: 10 };

    #[test]
    fn times_have_their_slots() {
        let slots = [999, 1_000, 1_099, 1_100, 2_000, 2_001].map(|at| TEN.of(Nanos(at)));
        assert_eq!(slots, [None, Some(0), Some(0), Some(1), Some(9), None]);
        assert_eq!((TEN.start(0), TEN.start(9)), (Nanos(1_000), Nanos(1_900)));
    }

    #[test]
    fn stretches_cover_slots_in_part() {
        let covered = |from, to| TEN.covered(Nanos(from), Nanos(to)).collect::<Vec<_>>();
        assert_eq!(covered(1_050, 1_200), [(0, 0.5), (1, 1.0), (2, 0.0)]);
        assert_eq!(covered(0, 1_100), [(0, 1.0), (1, 0.0)]);
        assert_eq!(covered(1_950, 9_000), [(9, 0.5)]);
        assert_eq!(covered(0, 900), []);
        assert_eq!(covered(2_100, 2_200), []);
        let whole = covered(0, u64::MAX);
        assert_eq!((whole.len(), whole.iter().map(|(_, share)| share).sum::<f64>()), (10, 10.0));
    }

    #[test]
    fn no_time_and_no_slots_are_safe() {
        for slots in [Slots { count: 0, ..TEN }, Slots { to: TEN.from, ..TEN }] {
            assert!(slots.covered(Nanos(0), Nanos(u64::MAX)).count() <= slots.count);
            assert!(slots.of(TEN.from).is_none_or(|slot| slot < slots.count));
        }
    }
}
