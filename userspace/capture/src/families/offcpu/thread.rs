//! The sleeps of one thread: its slots, and when their sums are split over the stacks taken.

use std::collections::BTreeMap;

use pyobs_abi::offcpu::{self as abi, ALWAYS, Sleeper, Wake};
use pyobs_model::{GilHolder, Nanos, ProcessRef, StackId, Waker};

use super::slot::{End, Out, Slot, Sums, Taken};

/// A sleep longer than this is emitted in pieces, one per poll.
const LONG: Nanos = Nanos(1_000_000_000);
/// Sums are split when there are this many new stacks,
const STACKS: usize = 16;
/// or after this time.
const PATIENCE: Nanos = Nanos(5_000_000_000);
/// Sums wait this long for stacks to be named. Naming itself gives up after ten seconds
/// ([`crate::pipeline::stacks::Stacks`]).
const NAMING: Nanos = Nanos(15_000_000_000);
/// Stacks of a slot that may wait to be named. Further ones are dropped, and their time is split over these.
const STACKS_MAX: usize = 1_000;
/// Polls for which a slot or thread is kept after it has left the kernel's table: its last record may still
/// be in the ring buffer.
const OBSERVATIONS: u32 = 2;
/// The same while one of its stacks waits to be named.
const OBSERVATIONS_MAX: u32 = 15;

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) process: ProcessRef,
    slots: BTreeMap<u64, Slot>,
    /// The time up to which sums were split.
    split_at: Nanos,
    missed: u32,
}

impl Thread {
    pub(super) fn new(process: ProcessRef, at: Nanos) -> Self {
        Self { process, slots: BTreeMap::new(), split_at: at, missed: 0 }
    }

    fn slot(&mut self, born: u64, detail: u64, start: Nanos) -> &mut Slot {
        self.slots.entry(born).or_insert_with(|| Slot::new(Nanos(born).saturating_sub(start), detail))
    }

    fn taken(&mut self, since: u64) -> Option<&mut Taken> {
        self.slots.values_mut().flat_map(|slot| &mut slot.taken).find(|one| one.since == since)
    }

    /// Records a sleep whose stack was taken and is being named.
    pub(super) fn asleep(&mut self, born: u64, detail: u64, since: u64, holds_gil: bool, start: Nanos) {
        let slot = self.slot(born, detail, start);
        // An earlier sleep without an end: its record was lost.
        slot.taken.retain(|one| one.end.is_some());
        if slot.taken.len() < STACKS_MAX {
            slot.taken.push(Taken {
                since,
                stack: None,
                holds_gil,
                holder: None,
                holder_awaited: false,
                end: None,
                reported: Nanos(0),
            });
        }
    }

    pub(super) fn held(&mut self, since: u64) {
        if let Some(one) = self.taken(since) {
            one.holder_awaited = true;
        }
    }

    pub(super) fn named(&mut self, since: u64, stack: Option<StackId>) {
        match (stack, self.taken(since)) {
            (Some(stack), Some(one)) => one.stack = Some(stack),
            // Its time is split over the other stacks.
            (None, Some(_)) => self.slots.values_mut().for_each(|slot| slot.taken.retain(|one| one.since != since)),
            (_, None) => {}
        }
    }

    pub(super) fn holder_named(&mut self, since: u64, holder: Option<GilHolder>) {
        if let Some(one) = self.taken(since) {
            (one.holder_awaited, one.holder) = (false, holder);
        }
    }

    pub(super) fn woken(&mut self, wake: &Wake, waker: Option<Waker>, next: Option<GilHolder>, start: Nanos) {
        let at = Nanos(wake.header.time).saturating_sub(start);
        let slot = self.slot(wake.born, wake.detail, start);
        slot.see(wake.count, wake.total, wake.longest);
        if let Some(one) = slot.taken.iter_mut().find(|one| one.since == wake.since && one.end.is_none()) {
            let length = at.saturating_sub(Nanos(wake.since).saturating_sub(start));
            let weight = if wake.chance == ALWAYS { 1.0 } else { 2f64.powi(32) / f64::from(wake.chance.max(1)) };
            let before = Nanos(wake.header.time.saturating_sub(wake.since)).saturating_sub(length);
            one.end = Some(End { at, length, before, weight, waker, next });
        }
    }

    /// Emits the sleeps of slots in which each has its own stack.
    pub(super) fn report_each(&mut self, out: &mut Out<'_>) {
        for slot in self.slots.values_mut().filter(|slot| !slot.taken.is_empty() && slot.is_exact()) {
            slot.report_each(false, out);
        }
    }

    /// Call once a second: emits the rest if it is due. `sleeper` is the thread's entry in the kernel's
    /// table. Returns whether the thread is over.
    pub(super) fn report(
        &mut self,
        now: Nanos,
        sleeper: Option<&Sleeper>,
        at_the_end: bool,
        no_stack: Option<StackId>,
        out: &mut Out<'_>,
    ) -> bool {
        self.observe(sleeper);
        self.report_each(out);
        let mut open: Option<(u64, Sums)> = None;
        if let Some(sleeper) = sleeper.filter(|sleeper| sleeper.since != 0) {
            let present = &sleeper.slots[sleeper.slot as usize % abi::SLOTS];
            let length = now.saturating_sub(Nanos(sleeper.since).saturating_sub(out.start));
            let slot = self.slots.get_mut(&present.born);
            let is_known = slot.as_ref().is_some_and(|slot| {
                slot.taken.iter().any(|one| one.since == sleeper.since && one.end.is_none() && one.is_named())
            });
            if let Some(slot) = slot
                && is_known
            {
                if at_the_end || length >= LONG {
                    slot.report_open(sleeper.since, now, out);
                }
            } else if sleeper.fresh == 0 || at_the_end {
                open = Some((present.born, Sums { count: 1, total: length.0 }));
            }
        }
        let is_over = has_gone(self.missed, self.slots.values().any(Slot::is_awaited));
        let is_forced = at_the_end || is_over;
        let is_inexact = |slot: &Slot| {
            let unreported = slot.unreported();
            unreported != Sums::default() && (is_forced || has_gone(slot.missed, slot.is_awaited()) || !slot.is_exact())
        };
        let has_enough = |slot: &Slot| slot.taken.iter().filter(|one| one.is_complete()).count() >= STACKS;
        let is_long_open = open.is_some_and(|(_, sums)| Nanos(sums.total) >= LONG);
        let any = self.slots.values().any(is_inexact);
        let waited = now.saturating_sub(self.split_at);
        let is_awaited = waited < NAMING && self.slots.values().any(|slot| is_inexact(slot) && slot.is_awaited());
        let is_ripe = waited >= PATIENCE || self.slots.values().filter(|slot| is_inexact(slot)).all(has_enough);
        let is_due = is_forced || (is_long_open || is_ripe) && !is_awaited;
        if (any || is_long_open || (at_the_end && open.is_some())) && is_due {
            let from = std::mem::replace(&mut self.split_at, now);
            for (born, slot) in &mut self.slots {
                let open = open.filter(|(of, _)| of == born).map_or(Sums::default(), |(_, sums)| sums);
                if open != Sums::default() || is_inexact(slot) {
                    slot.split(open, (from, now), no_stack, out);
                }
            }
        } else if !any {
            // An ongoing sleep will be split from its beginning.
            let begun = open.map_or(now, |(_, sums)| now.saturating_sub(Nanos(sums.total)));
            self.split_at = self.split_at.max(begun);
        }
        self.slots.retain(|_, slot| !has_gone(slot.missed, slot.is_awaited()));
        is_over
    }

    fn observe(&mut self, sleeper: Option<&Sleeper>) {
        let Some(sleeper) = sleeper else {
            self.missed += 1;
            return;
        };
        self.missed = 0;
        for (born, slot) in &mut self.slots {
            let mut used = sleeper.keys.iter().zip(&sleeper.slots).filter(|(key, _)| **key != 0);
            match used.find(|(_, found)| found.born == *born) {
                Some((_, found)) => {
                    slot.see(found.count, found.total, found.longest);
                    slot.missed = 0;
                }
                None => slot.missed += 1,
            }
        }
    }
}

/// Whether a thread or slot that was missing in this many polls will produce nothing more.
fn has_gone(missed: u32, is_awaited: bool) -> bool {
    missed >= if is_awaited { OBSERVATIONS_MAX } else { OBSERVATIONS }
}
