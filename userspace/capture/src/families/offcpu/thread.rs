//! The sleeps of one thread: exact sums, and the stacks that they are split over.

use std::collections::BTreeMap;

use pyobs_abi::offcpu::{self as abi, ALWAYS, Sleeper, Wake};
use pyobs_model::{Event, GilHolder, Nanos, ProcessRef, Sleep, StackId, Tid, WaitReason, Waker};

use super::reason::reason;
use super::split::{Drawn, Group, Part, Pool};
use crate::families::gil::{Gil, Piece};

/// A sleep that goes on for this long is told in pieces, one each time that the threads are looked at.
const LONG: Nanos = Nanos(1_000_000_000);
/// Sums are split when there are this many new stacks,
const STACKS: usize = 16;
/// or after this time.
const PATIENCE: Nanos = Nanos(5_000_000_000);
/// Stacks of a slot that wait to be named; the others are dropped, so that their time is split over these.
const STACKS_MAX: usize = 1_000;
/// A slot or a thread that is no longer in the kernel's table is kept for this many looks: its last record may be under way.
const LOOKS: u32 = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    count: u64,
    total: u64,
}

impl Sums {
    fn plus(self, other: Self) -> Self {
        Self { count: self.count.saturating_add(other.count), total: self.total.saturating_add(other.total) }
    }

    fn minus(self, other: Self) -> Self {
        Self { count: self.count.saturating_sub(other.count), total: self.total.saturating_sub(other.total) }
    }
}

/// How a sleep ended.
#[derive(Debug)]
struct End {
    at: Nanos,
    length: Nanos,
    /// How much more of it was before the recording.
    before: Nanos,
    weight: f64,
    waker: Option<Waker>,
    /// The thread of the same process that woke it: it has had the GIL, if that is what the sleeper waited for.
    next: Option<GilHolder>,
}

/// A sleep whose stack was taken.
#[derive(Debug)]
struct Taken {
    /// When it began, on the kernel's clock.
    since: u64,
    stack: Option<StackId>,
    holds_gil: bool,
    holder: Option<GilHolder>,
    /// A holder's stack is being named.
    holder_awaited: bool,
    end: Option<End>,
    /// How much of it was told while it went on.
    told: Nanos,
}

impl Taken {
    fn is_named(&self) -> bool {
        self.stack.is_some() && !self.holder_awaited
    }

    fn is_complete(&self) -> bool {
        self.is_named() && self.end.is_some()
    }

    fn group(&self, stack: StackId, reason: WaitReason) -> Group {
        let end = self.end.as_ref();
        // What ends a sleep of a given length is time.
        let waker = end.and_then(|end| end.waker.clone()).filter(|_| reason != WaitReason::Sleep);
        let holder = self.holder.or(end.and_then(|end| end.next)).filter(|_| reason == WaitReason::Gil);
        Group { stack, holder, waker, holds_gil: self.holds_gil }
    }
}

/// Sleeps that are alike: one of the kernel's slots.
#[derive(Debug)]
struct Slot {
    start: Nanos,
    reason: WaitReason,
    /// The kernel's sums, and what was told of them.
    seen: Sums,
    told: Sums,
    /// The lower half of `seen.count`, as the kernel has it.
    raw: u32,
    longest: Nanos,
    taken: Vec<Taken>,
    pool: Pool,
    missed: u32,
}

/// Where events go, and whose they are.
pub(super) struct Out<'a> {
    pub start: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    pub sleeps: bool,
    pub gil: &'a mut Gil,
    pub events: &'a mut Vec<Event>,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) process: ProcessRef,
    slots: BTreeMap<u64, Slot>,
    /// Up to when sums were split.
    split_at: Nanos,
    missed: u32,
}

impl Slot {
    fn new(start: Nanos, detail: u64) -> Self {
        Self {
            start,
            reason: reason(detail),
            seen: Sums::default(),
            told: Sums::default(),
            raw: 0,
            longest: Nanos(0),
            taken: Vec::new(),
            pool: Pool::default(),
            missed: 0,
        }
    }

    /// Takes the kernel's sums over. A look at the table may be ahead of the records.
    fn see(&mut self, count: u32, total: u64, longest: u64) {
        let new = count.wrapping_sub(self.raw);
        if new as i32 > 0 {
            self.raw = count;
            self.seen = Sums { count: self.seen.count + u64::from(new), total: self.seen.total.max(total) };
        }
        self.longest = self.longest.max(Nanos(longest));
    }

    /// The parts that were told of sleeps that go on.
    fn ahead(&self) -> Sums {
        let open = self.taken.iter().filter(|it| it.end.is_none() && it.told > Nanos(0));
        open.fold(Sums::default(), |sum, it| sum.plus(Sums { count: 1, total: it.told.0 }))
    }

    /// What has not been told.
    fn untold(&self) -> Sums {
        self.seen.plus(self.ahead()).minus(self.told)
    }

    /// The same, with that much more of a sleep that goes on and whose stack was not taken.
    fn untold_with(&self, open: Sums) -> Sums {
        self.seen.plus(self.ahead()).plus(open).minus(self.told)
    }

    /// Whether each sleep that has not been told has its own stack.
    fn is_exact(&self) -> bool {
        let ended = self.taken.iter().filter(|it| it.end.is_some() && it.told == Nanos(0)).count();
        self.untold().count == ended as u64
    }

    /// Tells each sleep by itself.
    fn tell_each(&mut self, only_begun: bool, out: &mut Out<'_>) {
        let mut rest = Vec::new();
        for one in std::mem::take(&mut self.taken) {
            let (Some(stack), Some(end), true) = (one.stack, &one.end, one.is_complete()) else {
                rest.push(one);
                continue;
            };
            if only_begun && one.told == Nanos(0) {
                rest.push(one);
                continue;
            }
            let count = u64::from(one.told == Nanos(0));
            let total = end.length.saturating_sub(one.told);
            self.told = self.told.plus(Sums { count, total: total.0 + end.before.0 });
            let part = Part { group: one.group(stack, self.reason), count, total, longest: end.length, stacks: count };
            out.tell(self.reason, part, (end.at.saturating_sub(total), end.at), true);
        }
        self.taken = rest;
        if self.untold() == Sums::default() {
            self.longest = Nanos(0);
        }
    }

    /// Tells more of the sleep that goes on, whose stack is known.
    fn tell_open(&mut self, since: u64, now: Nanos, out: &mut Out<'_>) {
        let Some(one) = self.taken.iter_mut().find(|it| it.since == since && it.end.is_none()) else { return };
        let Some(stack) = one.stack.filter(|_| one.is_named()) else { return };
        let length = now.saturating_sub(Nanos(since).saturating_sub(out.start));
        let (count, total) = (u64::from(one.told == Nanos(0)), length.saturating_sub(one.told));
        if total == Nanos(0) {
            return;
        }
        one.told = length;
        self.told = self.told.plus(Sums { count, total: total.0 });
        let part = Part { group: one.group(stack, self.reason), count, total, longest: length, stacks: count };
        out.tell(self.reason, part, (now.saturating_sub(total), now), true);
    }

    /// Splits what has not been told over the stacks that were taken, with that much more of a sleep that goes on.
    fn split(&mut self, open: Sums, (from, now): (Nanos, Nanos), no_stack: Option<StackId>, out: &mut Out<'_>) {
        self.tell_each(true, out);
        let Sums { count, total } = self.untold_with(open);
        if total == 0 && count == 0 {
            return;
        }
        let reason = self.reason;
        let (complete, rest): (Vec<Taken>, Vec<Taken>) =
            std::mem::take(&mut self.taken).into_iter().partition(Taken::is_complete);
        self.taken = rest;
        let drawn = complete.iter().filter_map(|one| {
            let end = one.end.as_ref()?;
            Some(Drawn { group: one.group(one.stack?, reason), length: end.length, weight: end.weight })
        });
        let mut drawn: Vec<Drawn> = drawn.collect();
        let has_none = drawn.is_empty() && self.pool.is_empty();
        if has_none {
            let Some(stack) = no_stack else { return };
            let group = Group { stack, holder: None, waker: None, holds_gil: false };
            drawn.push(Drawn { group, length: Nanos(1), weight: 2.0 });
        }
        self.told = self.told.plus(Sums { count, total });
        // What began before the last split and was not told then.
        let from = from.max(self.start).min(now.saturating_sub(Nanos(total)));
        let longest = std::mem::take(&mut self.longest).max(Nanos(open.total));
        for mut part in self.pool.split(now, drawn, count, Nanos(total), longest) {
            if has_none {
                part.stacks = 0;
            }
            out.tell(reason, part, (from, now), false);
        }
        if has_none {
            self.pool = Pool::default();
        }
    }
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

    /// A stack was taken; it is being named.
    pub(super) fn asleep(&mut self, born: u64, detail: u64, since: u64, holds_gil: bool, start: Nanos) {
        let slot = self.slot(born, detail, start);
        // Of an earlier one that is not over, the end was lost.
        slot.taken.retain(|one| one.end.is_some());
        if slot.taken.len() < STACKS_MAX {
            slot.taken.push(Taken {
                since,
                stack: None,
                holds_gil,
                holder: None,
                holder_awaited: false,
                end: None,
                told: Nanos(0),
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
            // Its time is split over the others.
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

    /// Tells the sleeps of slots in which each has its own stack.
    pub(super) fn tell_each(&mut self, out: &mut Out<'_>) {
        for slot in self.slots.values_mut().filter(|slot| !slot.taken.is_empty() && slot.is_exact()) {
            slot.tell_each(false, out);
        }
    }

    /// Once a second: tells the rest, if it is time for it. `sleeper` is the thread in the kernel's table. Returns whether the
    /// thread is over.
    pub(super) fn tell(
        &mut self,
        now: Nanos,
        sleeper: Option<&Sleeper>,
        at_the_end: bool,
        no_stack: Option<StackId>,
        out: &mut Out<'_>,
    ) -> bool {
        self.look(sleeper);
        self.tell_each(out);
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
                    slot.tell_open(sleeper.since, now, out);
                }
            } else if sleeper.fresh == 0 || at_the_end {
                open = Some((present.born, Sums { count: 1, total: length.0 }));
            }
        }
        let is_over = self.missed >= LOOKS;
        let is_forced = at_the_end || is_over;
        let is_inexact = |slot: &Slot| {
            let untold = slot.untold();
            untold != Sums::default() && (is_forced || slot.missed >= LOOKS || !slot.is_exact())
        };
        let has_enough = |slot: &Slot| slot.taken.iter().filter(|one| one.is_complete()).count() >= STACKS;
        let is_long_open = open.is_some_and(|(_, sums)| Nanos(sums.total) >= LONG);
        let any = self.slots.values().any(is_inexact);
        let is_due = is_forced
            || is_long_open
            || now.saturating_sub(self.split_at) >= PATIENCE
            || self.slots.values().filter(|slot| is_inexact(slot)).all(has_enough);
        if (any || is_long_open || (at_the_end && open.is_some())) && is_due {
            let from = std::mem::replace(&mut self.split_at, now);
            for (born, slot) in &mut self.slots {
                let open = open.filter(|(of, _)| of == born).map_or(Sums::default(), |(_, sums)| sums);
                if open != Sums::default() || is_inexact(slot) {
                    slot.split(open, (from, now), no_stack, out);
                }
            }
        } else if !any {
            // A sleep that goes on will be split from its beginning.
            let begun = open.map_or(now, |(_, sums)| now.saturating_sub(Nanos(sums.total)));
            self.split_at = self.split_at.max(begun);
        }
        self.slots.retain(|_, slot| slot.missed < LOOKS);
        is_over
    }

    fn look(&mut self, sleeper: Option<&Sleeper>) {
        let Some(sleeper) = sleeper else {
            self.missed += 1;
            return;
        };
        self.missed = 0;
        for (born, slot) in &mut self.slots {
            match sleeper.slots.iter().find(|it| it.key != 0 && it.born == *born) {
                Some(found) => {
                    slot.see(found.count, found.total, found.longest);
                    slot.missed = 0;
                }
                None => slot.missed += 1,
            }
        }
    }
}

impl Out<'_> {
    fn tell(&mut self, reason: WaitReason, part: Part, (from, at): (Nanos, Nanos), is_one: bool) {
        let (process, tid) = (self.process, self.tid);
        let Part { group: Group { stack, holder, waker, holds_gil }, count, total, longest: length, stacks } = part;
        if holds_gil {
            self.gil.held(process, tid, total);
        }
        if reason == WaitReason::Gil {
            let piece = Piece { from, at, length, total, count, stacks, is_one };
            self.gil.waited(process, tid, stack, holder, &piece, self.events);
        }
        if self.sleeps {
            self.events.push(Event::Sleep(Sleep {
                from,
                at,
                process,
                tid,
                stack,
                reason,
                count,
                total,
                length,
                stacks,
                waker,
            }));
        }
    }
}
