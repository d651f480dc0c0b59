//! The family `gil`: who waits for the GIL, behind whom, and who holds it for how long.

use foldhash::HashMap;
use pyobs_abi::control;
use pyobs_model::{Event, Family, GilHolder, GilWait, Nanos, ProcessRef, StackId, Tid};

use crate::cache::Cache;
use crate::family::FamilySpec;

/// Its programs are those of `offcpu`.
pub const SPEC: FamilySpec = FamilySpec {
    is_on_by_default: true,
    control_bit: control::FAMILY_GIL,
    ..FamilySpec::new(Family::Gil, "who waits for the GIL, and behind whom")
};

/// CPython's default switch interval of 5 ms, minus a margin for sleeps that end early. A waiter that has
/// slept this long requests the GIL and sleeps again (`take_gil` in
/// <https://github.com/python/cpython/blob/v3.13.0/Python/ceval_gil.c>).
const INTERVAL: Nanos = Nanos(4_500_000);
/// The longest gap between two pieces of one wait: the waiter goes back to sleep at once.
const GAP: Nanos = Nanos(500_000);
/// Threads whose last wait is cached; the least recently used are evicted, and their next piece counts as a
/// new wait.
const THREADS_MAX: usize = 100_000;

/// One or more sleeps on the GIL's condition variable.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Start and end. If `is_one`, the thread did nothing else in between.
    pub from: Nanos,
    pub at: Nanos,
    /// The longest of the sleeps.
    pub length: Nanos,
    pub total: Nanos,
    pub count: u64,
    pub stacks: u64,
    pub is_one: bool,
}

pub struct Gil {
    on: bool,
    /// The end and the length of the last piece of each thread's wait.
    last: Cache<(ProcessRef, Tid), (Nanos, Nanos)>,
    held: HashMap<(ProcessRef, Tid), Nanos>,
    reported: Nanos,
}

const REPORT_EVERY: Nanos = Nanos(1_000_000_000);

impl Gil {
    pub fn new(on: bool) -> Self {
        Self { on, last: Cache::new(THREADS_MAX), held: HashMap::default(), reported: Nanos(0) }
    }

    pub fn waited(
        &mut self,
        process: ProcessRef,
        tid: Tid,
        stack: StackId,
        holder: Option<GilHolder>,
        piece: &Piece,
        events: &mut Vec<Event>,
    ) {
        if !self.on {
            return;
        }
        let before = if piece.is_one {
            self.last.insert((process, tid), (piece.at, piece.length))
        } else {
            self.last.remove(&(process, tid))
        };
        let goes_on = before.is_some_and(|(end, length)| {
            piece.is_one && length >= INTERVAL && piece.from >= end && piece.from.saturating_sub(end) <= GAP
        });
        events.push(Event::GilWait(GilWait {
            from: piece.from,
            at: piece.at,
            process,
            tid,
            stack,
            holder,
            count: if goes_on { 0 } else { piece.count },
            total: piece.total,
            length: piece.length,
            stacks: piece.stacks,
        }));
    }

    /// Records that a thread held the GIL for `time`.
    pub fn held(&mut self, process: ProcessRef, tid: Tid, time: Nanos) {
        if self.on {
            let held = self.held.entry((process, tid)).or_default();
            *held = Nanos(held.0.saturating_add(time.0));
        }
    }

    /// Emits once a second who held the GIL and for how long.
    pub fn report(&mut self, now: Nanos, at_once: bool, events: &mut Vec<Event>) {
        if !at_once && now.saturating_sub(self.reported) < REPORT_EVERY {
            return;
        }
        self.reported = now;
        let held = self.held.drain().map(|((process, tid), held)| Event::GilHeld { at: now, process, tid, held });
        events.extend(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_of_several_intervals_is_one() {
        let (mut gil, mut events) = (Gil::new(true), Vec::new());
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        for (since, length) in [(0, 5), (5, 5), (10, 2), (20, 5), (40, 1)] {
            let (from, at, length) = (ms(since), ms(since + length), ms(length));
            let piece = Piece { from, at, length, total: length, count: 1, stacks: 1, is_one: true };
            gil.waited(ProcessRef(0), Tid(1), StackId(0), None, &piece, &mut events);
        }
        let counts: Vec<u64> = events
            .iter()
            .map(|event| if let Event::GilWait(wait) = event { wait.count } else { unreachable!() })
            .collect();
        assert_eq!(counts, [1, 0, 0, 1, 1]);
    }
}
