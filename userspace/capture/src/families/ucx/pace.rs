//! How closely transfers are followed: to their ends, or, where there are too many for that, only counted.

use std::time::Duration;

use aya::maps::{Array, MapData};
use pyobs_abi::control;
use pyobs_abi::ucx::{Key, Transfer};
use pyobs_model::{Event, Library, Nanos, Transfers};

use super::told::operation_of;
use super::{SLOW, Ucx};

/// From so many a second on they are counted when they are submitted. To follow one to its end takes some 25 µs.
const FAST: f64 = 10_000.0;
/// They are followed again where there are fewer than this share of that.
const SLOWER: f64 = 0.5;
/// How long they are only counted before they are followed again for a moment, so that it is known how long they take.
const PERIOD: Duration = Duration::from_secs(10);
/// One in so many is told of singly then.
const MOMENT: u32 = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Followed,
    /// New ones are counted; what was under way comes to its end.
    Leaving,
    /// For so long.
    Counted(Duration),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Count those that are submitted from now on.
    Count,
    /// Take the probes away that follow transfers to their ends.
    Leave,
    /// Put them there again, then follow those that are submitted.
    Follow,
}

pub(super) struct Pace {
    state: State,
    fast: f64,
}

impl Pace {
    /// `budget` in percent of one core, where one binds.
    pub(super) fn new(budget: Option<f64>) -> Self {
        const COST_S: f64 = 25e-6;
        let allowed = budget.map_or(FAST, |budget| budget / 100.0 / COST_S);
        Self { state: State::Followed, fast: allowed.min(FAST) }
    }

    pub(super) fn is_followed(&self) -> bool {
        self.state == State::Followed
    }

    /// They cannot be counted only.
    fn stay(&mut self) {
        self.state = State::Followed;
    }

    /// Takes how many were counted a second over the time since the last call, and whether it can be left at that.
    fn next(&mut self, rate: f64, elapsed: Duration, may_count: bool) -> Option<Turn> {
        let (state, turn) = match self.state {
            State::Followed if may_count && rate >= self.fast => (State::Leaving, Some(Turn::Count)),
            State::Followed => (State::Followed, None),
            State::Leaving => (State::Counted(Duration::ZERO), Some(Turn::Leave)),
            State::Counted(before) => {
                let long = before + elapsed;
                if !may_count || long >= PERIOD || rate < self.fast * SLOWER {
                    (State::Followed, Some(Turn::Follow))
                } else {
                    (State::Counted(long), None)
                }
            }
        };
        self.state = state;
        turn
    }
}

impl Ucx {
    /// Follows transfers to their ends, or counts them only. Whether that is new.
    pub(super) fn turn(
        &mut self,
        rate: f64,
        elapsed: Duration,
        now: Nanos,
        control: &mut Array<MapData, u64>,
        events: &mut Vec<Event>,
    ) -> bool {
        // Of UCXX's, each is told of by what it does itself.
        let may_count = !self.has_ucxx && !self.meter.is_over();
        let turn = self.pace.next(rate, elapsed, may_count);
        match turn {
            Some(Turn::Count) => match control.set(control::SUMS_ONLY, 1, 0) {
                Ok(()) => self.stray_until = u64::MAX,
                Err(_) => self.pace.stay(),
            },
            Some(Turn::Leave) => {
                self.ends.suspend();
                self.tell_left(now, events);
                self.tell_every(MOMENT, control);
                if !std::mem::replace(&mut self.has_counted, true) {
                    let what = format!(
                        "{rate:.0} transfers a second: they are counted when they are submitted, and for a moment in ten seconds \
                         followed to their ends"
                    );
                    events.push(Event::Shed { at: now, what: what.into() });
                }
            }
            Some(Turn::Follow) => {
                // Without them they end unseen, as before.
                let _ = self.ends.resume();
                let _ = control.set(control::SUMS_ONLY, 0, 0);
                self.stray_until = now.0.saturating_add(self.start.0).saturating_add(SLOW);
            }
            None => {}
        }
        turn.is_some()
    }

    /// What is under way ends unseen.
    fn tell_left(&mut self, at: Nanos, events: &mut Vec<Event>) {
        let left: Vec<(Key, Transfer)> = self.maps.open.iter().flatten().collect();
        for (key, transfer) in left {
            let Some(process) = self.processes.get(&key.pid).copied() else { continue };
            let Some(operation) = operation_of(transfer.operation) else { continue };
            if self.maps.open.remove(&key).is_err() {
                continue;
            }
            self.slow.remove(&transfer.id);
            events.push(Event::Transfers(Transfers {
                at,
                process,
                library: Library::Ucx,
                operation,
                count: 1,
                bytes: transfer.bytes,
                immediate: 0,
                failed: 0,
                spent: Nanos(0),
                unfollowed: 1,
                every: self.every,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(250);

    fn turns(pace: &mut Pace, rates: &[f64]) -> Vec<Option<Turn>> {
        rates.iter().map(|rate| pace.next(*rate, TICK, true)).collect()
    }

    #[test]
    fn many_are_counted_and_few_are_followed() {
        let mut pace = Pace::new(None);
        let told = turns(&mut pace, &[9e3, 4e4, 2e5, 2e5, 6e3, 4e3, 4e3]);
        assert_eq!(told, [None, Some(Turn::Count), Some(Turn::Leave), None, None, Some(Turn::Follow), None]);
    }

    #[test]
    fn they_are_followed_for_a_moment_now_and_then() {
        let mut pace = Pace::new(None);
        let told = turns(&mut pace, &[2e5; 200]);
        let followed = told.iter().filter(|turn| **turn == Some(Turn::Follow)).count();
        assert_eq!(followed, 4, "{told:?}");
    }

    #[test]
    fn where_they_cannot_be_counted_they_are_followed() {
        let mut pace = Pace::new(None);
        assert_eq!(pace.next(1e6, TICK, false), None);
        turns(&mut pace, &[1e6; 3]);
        assert_eq!(pace.next(1e6, TICK, false), Some(Turn::Follow));
    }

    #[test]
    fn a_budget_allows_fewer() {
        let mut pace = Pace::new(Some(1.0));
        assert_eq!(turns(&mut pace, &[300.0, 500.0]), [None, Some(Turn::Count)]);
        assert_eq!(turns(&mut Pace::new(Some(100.0)), &[9e3]), [None]);
    }
}
