//! Clips an event to the selected time.

use std::collections::HashMap;

use super::places::{NO_THREAD, OfThread};
use super::{Sampled, Times};
use crate::{Nanos, ProcessRef, Selection, Tid};

/// When a thread waited, as an event says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spell {
    pub from: Nanos,
    pub at: Nanos,
    pub count: u64,
    pub total: Nanos,
    pub length: Nanos,
    pub stacks: u64,
}

impl Spell {
    /// Clips to the selected time. Returns `None` if nothing lies within it.
    ///
    /// A sleep that fills its event is cut exactly and counts where it ends. If an event stands for several sleeps,
    /// their positions in it are unknown, so their times are cut in proportion.
    pub(super) fn clipped(self, selection: &Selection) -> Option<Self> {
        let (start, end) = (selection.from.unwrap_or_default(), selection.end());
        let overlap = overlap((self.from, self.at), (start, end));
        if overlap == Nanos(0) {
            return (self.from >= self.at && selection.has_time(self.at)).then_some(self);
        }
        let ends_inside = self.at <= end;
        if self.from >= start && ends_inside {
            return Some(self);
        }
        let length = overlap.max(self::overlap((self.at.saturating_sub(self.length), self.at), (start, end)));
        let length = self.length.min(length);
        if self.is_filled() {
            let count = if ends_inside { self.count } else { 0 };
            return Some(Self {
                from: self.from.max(start),
                at: self.at.min(end),
                count,
                total: overlap,
                length,
                stacks: self.stacks,
            });
        }
        let whole = self.at.saturating_sub(self.from).0.max(1);
        let part = |of: u64| (u128::from(of) * u128::from(overlap.0)).div_ceil(u128::from(whole)) as u64;
        let (count, total) = (part(self.count), Nanos(part(self.total.0)).min(overlap));
        let length = length.max(Nanos(total.0.checked_div(count).unwrap_or(0)));
        Some(Self { from: self.from.max(start), at: self.at.min(end), count, total, length, stacks: part(self.stacks) })
    }

    pub(super) fn times(self) -> Times {
        Times { count: self.count, total: self.total, max: self.length }
    }

    pub(super) fn sampled(self) -> Sampled {
        Sampled { stacks: self.stacks, unseen: self.count.saturating_sub(self.stacks) }
    }

    /// Whether `part` of it was cut in proportion, so that its time is an estimate.
    pub(super) fn is_cut_to(self, part: Self) -> bool {
        part != self && !self.is_filled()
    }

    /// Whether the thread slept for the whole span.
    fn is_filled(self) -> bool {
        self.total >= self.at.saturating_sub(self.from)
    }
}

fn overlap(a: (Nanos, Nanos), b: (Nanos, Nanos)) -> Nanos {
    a.1.min(b.1).saturating_sub(a.0.max(b.0))
}

/// The time that each thread's waits have in the selected time, to scale down those that were cut in proportion: a thread
/// never waits for longer than the selected time.
struct Room {
    is_timed: bool,
    from: Nanos,
    end: Nanos,
    /// For each thread: the time of waits that are whole or filled, and the time of the others.
    threads: HashMap<(ProcessRef, Tid), (Nanos, Nanos)>,
}

impl Room {
    fn new(selection: &Selection) -> Self {
        let from = selection.from.unwrap_or_default();
        Self { is_timed: selection.is_timed(), from, end: Nanos(0), threads: HashMap::new() }
    }

    fn add(&mut self, thread: (ProcessRef, Tid), total: Nanos, is_cut: bool) {
        if self.is_timed {
            let (exact, cut) = self.threads.entry(thread).or_default();
            let sum = if is_cut { cut } else { exact };
            *sum = sum.saturating_add(total);
        }
    }

    /// Scales the time of waits that were cut in proportion. Call it once all waits have been added.
    fn fitted(&self, thread: (ProcessRef, Tid), total: Nanos) -> Nanos {
        // The threads of a process together may wait longer than the window.
        if thread.1 == NO_THREAD {
            return total;
        }
        let (exact, cut) = self.threads.get(&thread).copied().unwrap_or_default();
        let room = self.end.saturating_sub(self.from).saturating_sub(exact);
        if cut <= room {
            return total;
        }
        Nanos((u128::from(total.0) * u128::from(room.0) / u128::from(cut.0.max(1))) as u64)
    }
}

/// Events with their parts in a selected time.
pub(super) type Clipped<'a, T> = Vec<(&'a T, Spell)>;

/// Clips events to `selection`, and scales those that were cut in proportion to the time that their threads have left beside
/// the sums of folded events. `cut` has the sums of folded events that were cut in proportion; they are returned scaled.
pub(super) fn clip<'a, T: 'a, K: OfThread>(
    events: impl Iterator<Item = &'a T>,
    folded: impl Iterator<Item = (K, Nanos)>,
    mut cut: Vec<(K, Nanos)>,
    selection: &Selection,
    spell: impl Fn(&T) -> (ProcessRef, Tid, Spell),
) -> (Clipped<'a, T>, Vec<(K, Nanos)>) {
    let mut room = Room::new(selection);
    folded.for_each(|(key, total)| room.add(key.thread(), total, false));
    cut.iter().for_each(|(key, total)| room.add(key.thread(), *total, true));
    let mut clipped = Vec::new();
    for event in events {
        let (process, tid, whole) = spell(event);
        if !selection.has_thread(process, tid) {
            continue;
        }
        let Some(part) = whole.clipped(selection) else { continue };
        room.add((process, tid), part.total, whole.is_cut_to(part));
        room.end = room.end.max(part.at);
        clipped.push((event, whole, part));
    }
    cut.iter_mut().for_each(|(key, total)| *total = room.fitted(key.thread(), *total));
    let fitted = clipped.into_iter().map(|(event, whole, mut part)| {
        if whole.is_cut_to(part) {
            let (process, tid, _) = spell(event);
            part.total = room.fitted((process, tid), part.total);
        }
        (event, part)
    });
    (fitted.collect(), cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::offcpu::SleepKey;

    const SECOND: u64 = 1_000_000_000;

    fn window(from: u64, to: u64) -> Selection {
        Selection { from: Some(Nanos(from * SECOND)), to: Some(Nanos(to * SECOND)), ..Selection::default() }
    }

    fn spell(from: u64, at: u64, count: u64, total: u64, length: u64) -> Spell {
        let [from, at, total, length] = [from, at, total, length].map(|seconds| Nanos(seconds * SECOND));
        Spell { from, at, count, total, length, stacks: count }
    }

    #[test]
    fn a_single_sleep_is_cut_and_counts_where_it_ends() {
        let sleep = spell(5, 20, 1, 15, 15);
        assert_eq!(sleep.clipped(&window(0, 30)), Some(sleep));
        assert_eq!(sleep.clipped(&window(10, 30)), Some(spell(10, 20, 1, 10, 10)));
        let begun = Spell { stacks: 1, ..spell(5, 10, 0, 5, 5) };
        assert_eq!(sleep.clipped(&window(0, 10)), Some(begun));
        assert_eq!(sleep.clipped(&window(20, 30)), None);
        assert_eq!(sleep.clipped(&window(0, 5)), None);
    }

    #[test]
    fn several_sleeps_are_cut_in_proportion() {
        let sleeps = spell(0, 10, 100, 5, 1);
        assert_eq!(sleeps.clipped(&window(8, 10)), Some(spell(8, 10, 20, 1, 1)));
        let moment =
            Selection { from: Some(Nanos(9 * SECOND)), to: Some(Nanos(9 * SECOND + 7)), ..Selection::default() };
        let part = sleeps.clipped(&moment).unwrap();
        assert_eq!((part.count, part.total), (1, Nanos(4)));
        assert!(part.length >= part.total);
    }

    #[test]
    fn a_thread_never_waits_for_longer_than_the_window() {
        // The position of the first spell in its 20 seconds is unknown. The second spell fills its ten seconds.
        let spells = [spell(0, 20, 100, 10, 1), spell(10, 20, 1, 10, 10)];
        let selection = window(10, 20);
        let spell = |spell: &Spell| (ProcessRef(0), Tid(1), *spell);
        let folded = std::iter::empty::<(SleepKey, Nanos)>();
        let (all, _) = clip(spells.iter(), folded, Vec::new(), &selection, spell);
        let total: u64 = all.iter().map(|(_, part)| part.total.0).sum();
        assert_eq!(total, 10 * SECOND);
        assert_eq!(all[1].1.total, Nanos(10 * SECOND));
    }
}
