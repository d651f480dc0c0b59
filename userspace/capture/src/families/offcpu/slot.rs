//! Similar sleeps of a thread: one of the kernel's slots, with the stacks sampled in it.

use pyobs_model::{Event, GilHolder, Nanos, ProcessRef, Sleep, StackId, Tid, WaitReason, Waker};

use super::reason::reason;
use super::split::{Drawn, Group, Part, Pool};
use crate::families::gil::{Gil, Piece};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub count: u64,
    pub total: u64,
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
pub(super) struct End {
    pub at: Nanos,
    pub length: Nanos,
    /// The part of the sleep before the recording began.
    pub before: Nanos,
    pub weight: f64,
    pub waker: Option<Waker>,
    /// The thread of the same process that woke it. If the sleeper waited for the GIL, this thread had it.
    pub next: Option<GilHolder>,
}

/// A sleep whose stack was taken.
#[derive(Debug)]
pub(super) struct Taken {
    /// When it began, on the kernel's clock.
    pub since: u64,
    pub stack: Option<StackId>,
    pub holds_gil: bool,
    pub holder: Option<GilHolder>,
    /// The stack of the GIL's holder is still being named.
    pub holder_awaited: bool,
    pub end: Option<End>,
    /// How much of it was emitted while it went on.
    pub reported: Nanos,
}

impl Taken {
    pub(super) fn is_named(&self) -> bool {
        self.stack.is_some() && !self.holder_awaited
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_named() && self.end.is_some()
    }

    fn group(&self, stack: StackId, reason: WaitReason) -> Group {
        let end = self.end.as_ref();
        // Timed sleeps are ended by the clock, so a waker says nothing.
        let waker = end.and_then(|end| end.waker.clone()).filter(|_| reason != WaitReason::Sleep);
        let holder = self.holder.or(end.and_then(|end| end.next)).filter(|_| reason == WaitReason::Gil);
        Group { stack, holder, waker, holds_gil: self.holds_gil }
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    start: Nanos,
    reason: WaitReason,
    /// The kernel's sums, and the part of them that was emitted.
    seen: Sums,
    reported: Sums,
    /// The lower half of `seen.count`, which is all that the kernel keeps.
    raw: u32,
    longest: Nanos,
    pub taken: Vec<Taken>,
    pool: Pool,
    pub missed: u32,
}

/// Where events go, and which thread they belong to.
pub(super) struct Out<'a> {
    pub start: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    pub sleeps: bool,
    pub gil: &'a mut Gil,
    pub events: &'a mut Vec<Event>,
}

impl Slot {
    pub(super) fn new(start: Nanos, detail: u64) -> Self {
        Self {
            start,
            reason: reason(detail),
            seen: Sums::default(),
            reported: Sums::default(),
            raw: 0,
            longest: Nanos(0),
            taken: Vec::new(),
            pool: Pool::default(),
            missed: 0,
        }
    }

    /// Takes over the kernel's sums. Ignores older ones: a poll of the table may have been ahead of the
    /// records.
    pub(super) fn see(&mut self, count: u32, total: u64, longest: u64) {
        let new = count.wrapping_sub(self.raw);
        if new as i32 > 0 {
            self.raw = count;
            self.seen = Sums { count: self.seen.count + u64::from(new), total: self.seen.total.max(total) };
        }
        self.longest = self.longest.max(Nanos(longest));
    }

    /// The parts already emitted of sleeps that go on.
    fn ahead(&self) -> Sums {
        let open = self.taken.iter().filter(|it| it.end.is_none() && it.reported > Nanos(0));
        open.fold(Sums::default(), |sum, it| sum.plus(Sums { count: 1, total: it.reported.0 }))
    }

    /// The sums not yet emitted.
    pub(super) fn unreported(&self) -> Sums {
        self.seen.plus(self.ahead()).minus(self.reported)
    }

    /// The same, plus an ongoing sleep whose stack was not taken.
    fn unreported_with(&self, open: Sums) -> Sums {
        self.seen.plus(self.ahead()).plus(open).minus(self.reported)
    }

    /// Whether every sleep not yet emitted has its own stack.
    pub(super) fn is_exact(&self) -> bool {
        let ended = self.taken.iter().filter(|it| it.end.is_some() && it.reported == Nanos(0)).count();
        self.unreported().count == ended as u64
    }

    /// Whether a sleep has ended whose stack is still being named.
    pub(super) fn is_awaited(&self) -> bool {
        self.taken.iter().any(|it| it.end.is_some() && !it.is_named())
    }

    /// Emits each sleep as one event.
    pub(super) fn report_each(&mut self, only_begun: bool, out: &mut Out<'_>) {
        let mut rest = Vec::new();
        for one in std::mem::take(&mut self.taken) {
            let (Some(stack), Some(end), true) = (one.stack, &one.end, one.is_complete()) else {
                rest.push(one);
                continue;
            };
            if only_begun && one.reported == Nanos(0) {
                rest.push(one);
                continue;
            }
            let count = u64::from(one.reported == Nanos(0));
            let total = end.length.saturating_sub(one.reported);
            self.reported = self.reported.plus(Sums { count, total: total.0 + end.before.0 });
            let group = one.group(stack, self.reason);
            // Sleeps whose stack is not taken may follow, and are split over this one.
            self.pool.keep(end.at, Drawn { group: group.clone(), length: end.length, weight: end.weight });
            let part = Part { group, count, total, longest: end.length, stacks: count };
            out.report(self.reason, part, (end.at.saturating_sub(total), end.at), true);
        }
        self.taken = rest;
        if self.unreported() == Sums::default() {
            self.longest = Nanos(0);
        }
    }

    /// Emits more of the ongoing sleep that began at `since`, if its stack is known.
    pub(super) fn report_open(&mut self, since: u64, now: Nanos, out: &mut Out<'_>) {
        let Some(one) = self.taken.iter_mut().find(|it| it.since == since && it.end.is_none()) else { return };
        let Some(stack) = one.stack.filter(|_| one.is_named()) else { return };
        let length = now.saturating_sub(Nanos(since).saturating_sub(out.start));
        let (count, total) = (u64::from(one.reported == Nanos(0)), length.saturating_sub(one.reported));
        if total == Nanos(0) {
            return;
        }
        one.reported = length;
        self.reported = self.reported.plus(Sums { count, total: total.0 });
        let part = Part { group: one.group(stack, self.reason), count, total, longest: length, stacks: count };
        out.report(self.reason, part, (now.saturating_sub(total), now), true);
    }

    /// Splits the sums not yet emitted, plus an ongoing sleep, over the stacks taken.
    pub(super) fn split(
        &mut self,
        open: Sums,
        (from, now): (Nanos, Nanos),
        no_stack: Option<StackId>,
        out: &mut Out<'_>,
    ) {
        self.report_each(true, out);
        let Sums { count, total } = self.unreported_with(open);
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
        self.reported = self.reported.plus(Sums { count, total });
        // Include sleeps that began before the last split and were not emitted then.
        let from = from.max(self.start).min(now.saturating_sub(Nanos(total)));
        let longest = std::mem::take(&mut self.longest).max(Nanos(open.total));
        for mut part in self.pool.split(now, drawn, count, Nanos(total), longest) {
            if has_none {
                part.stacks = 0;
            }
            out.report(reason, part, (from, now), false);
        }
        if has_none {
            self.pool = Pool::default();
        }
    }
}

impl Out<'_> {
    fn report(&mut self, reason: WaitReason, part: Part, (from, at): (Nanos, Nanos), is_one: bool) {
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
