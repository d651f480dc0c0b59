//! How closely transfers are followed: to their ends, or, where there are too many for that, only counted.

use std::time::Duration;

use aya::maps::{Array, MapData};
use pyobs_abi::control::{self, counted};
use pyobs_abi::ucx::{Key, Kind, OF_UCXX, Transfer, flags, operation};
use pyobs_model::{Event, Library, Nanos, Transfers};

use super::told::operation_of;
use super::{SLOW, TOLD, Ucx};
use crate::families::extension::SPAN;

/// The name of the measure in `shed`.
const COUNTED_ONLY: &str = "counted only";
/// From so many a second on they are counted when they are submitted.
const FAST: f64 = 10_000.0;
/// What it takes to follow one to its end, about: of UCX and of UCXX.
const COST_S: f64 = 25e-6;
const COST_UCXX_S: f64 = 14e-6;
/// From so many of UCXX's a second on, when they last: each takes some seven traps, of threads that wake each other.
const FAST_UCXX: f64 = 1_000.0;
const LASTING: Duration = Duration::from_secs(2);
/// They are followed again where there are fewer than this share of that.
const SLOWER: f64 = 0.5;
/// They are only counted for so long, then followed again for a moment, so that it is known how long they take: the longer, the
/// more there are, so that such moments cost this share of the time.
const PERIOD: Duration = Duration::from_secs(10);
const PERIOD_MAX: Duration = Duration::from_secs(60);
const MOMENTS_SHARE: f64 = 0.005;
/// How long a moment is, with what it takes to put the probes there and to take them away.
const MOMENT_S: f64 = 1.2;
/// One in so many is told of singly then, at the most.
const MOMENT: u32 = 40;
/// Such a moment is a quarter of the span over which a budget is held: up to so many times as many as may be followed all the time
/// may be followed for it.
const MORE_FOR_A_MOMENT: f64 = 2.0;
/// Where fewer cost too much, that number is divided: by so much at the most, and so often at the most.
const LESS: f64 = 4.0;
const LESS_TIMES: u32 = 4;

/// Transfers a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) all: f64,
    /// Of these, UCXX's.
    pub(super) ucxx: f64,
}

impl Rate {
    /// How long they are only counted between two moments.
    fn period(self) -> Duration {
        let cost = (self.all - self.ucxx).max(0.0) * COST_S + self.ucxx * COST_UCXX_S;
        Duration::from_secs_f64((cost * MOMENT_S / MOMENTS_SHARE).min(PERIOD_MAX.as_secs_f64())).max(PERIOD)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// For so long there were many of UCXX's.
    Followed(Duration),
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
    /// For how long.
    steady: Duration,
    is_bound: bool,
    /// From how many on they are counted.
    fast: Rate,
    /// How often that was lowered, for fewer cost too much, and whether it was just now.
    lowered: u32,
    is_dear: bool,
}

impl Pace {
    /// `budget` in percent of one core, where one binds.
    pub(super) fn new(budget: Option<f64>) -> Self {
        let allowed = budget.map_or(FAST, |budget| budget / 100.0 / COST_S);
        Self {
            state: State::Followed(Duration::ZERO),
            steady: Duration::ZERO,
            is_bound: budget.is_some(),
            fast: Rate { all: allowed.min(FAST), ucxx: allowed.min(FAST_UCXX) },
            lowered: 0,
            is_dear: false,
        }
    }

    pub(super) fn is_followed(&self) -> bool {
        matches!(self.state, State::Followed(_))
    }

    /// They cannot be counted only.
    fn stay(&mut self) {
        self.state = State::Followed(Duration::ZERO);
    }

    /// Whether those that are counted, as many as that, are followed for a moment now and then.
    fn has_moments(&self, rate: Rate) -> bool {
        !self.is_bound || rate.all <= self.fast.all * MORE_FOR_A_MOMENT
    }

    /// Over a span they have cost so many times as much as they may. Whether they need not be given up, for it gets less.
    fn slow_down(&mut self, times: f64) -> bool {
        match self.state {
            // The span had another state as well.
            _ if self.steady < SPAN => true,
            State::Followed(_) if self.lowered < LESS_TIMES => {
                let times = times.min(LESS);
                self.fast = Rate { all: self.fast.all / times, ucxx: self.fast.ucxx / times };
                self.lowered += 1;
                self.is_dear = true;
                true
            }
            State::Leaving => true,
            State::Followed(_) | State::Counted(_) => false,
        }
    }

    /// Takes how many were counted a second over the time since the last call, and whether it can be left at that.
    fn next(&mut self, rate: Rate, elapsed: Duration, may_count: bool) -> Option<Turn> {
        self.steady += elapsed;
        let (fast, is_dear) = (self.fast, std::mem::take(&mut self.is_dear));
        let is_fast = |share: f64| [rate.all >= fast.all * share, rate.ucxx >= fast.ucxx * share];
        let (state, turn) = match self.state {
            State::Followed(before) => {
                let [is_fast, has_many] = is_fast(1.0);
                let long = if has_many { before + elapsed } else { Duration::ZERO };
                if may_count && (is_fast || is_dear || long > LASTING) {
                    (State::Leaving, Some(Turn::Count))
                } else {
                    (State::Followed(long), None)
                }
            }
            State::Leaving => (State::Counted(Duration::ZERO), Some(Turn::Leave)),
            State::Counted(before) => {
                let long = before + elapsed;
                if !may_count || !is_fast(SLOWER).contains(&true) {
                    (State::Followed(Duration::ZERO), Some(Turn::Follow))
                } else if long >= rate.period() && self.has_moments(rate) {
                    (State::Followed(LASTING), Some(Turn::Follow))
                } else {
                    (State::Counted(long), None)
                }
            }
        };
        self.state = state;
        if turn.is_some() {
            self.steady = Duration::ZERO;
        }
        turn
    }
}

impl Ucx {
    /// Follows transfers to their ends, or counts them only. Whether that is new.
    pub(super) fn turn(
        &mut self,
        rate: Rate,
        elapsed: Duration,
        now: Nanos,
        control: &mut Array<MapData, u64>,
        events: &mut Vec<Event>,
    ) -> bool {
        let turn = self.pace.next(rate, elapsed, self.may_count());
        match turn {
            Some(Turn::Count) => match control.set(control::COUNTED, counted::NEW, 0) {
                Ok(()) => self.stray_until = u64::MAX,
                Err(_) => self.pace.stay(),
            },
            Some(Turn::Leave) => {
                self.ends.suspend();
                self.tell_left(now, events);
                events.push(Event::measure(now, "ucx", COUNTED_ONLY, true));
                // Otherwise it is asked of each whether it was followed.
                let _ = control.set(control::COUNTED, counted::ALL, 0);
                self.tell_every(((rate.all / TOLD).ceil() as u32).clamp(1, MOMENT), control);
                if !std::mem::replace(&mut self.has_counted, true) {
                    let moments = if self.pace.has_moments(rate) {
                        let period = rate.period().as_secs_f64();
                        format!(", and for a moment in {period:.0} seconds followed to their ends")
                    } else {
                        ", for that is what the budget allows".to_owned()
                    };
                    let what = format!(
                        "{:.0} transfers a second: they are counted when they are submitted{moments}",
                        rate.all
                    );
                    events.push(Event::Shed { at: now, what: what.into() });
                }
            }
            Some(Turn::Follow) => {
                events.push(Event::measure(now, "ucx", COUNTED_ONLY, false));
                // Without them they end unseen, as before.
                let _ = self.ends.resume();
                let _ = control.set(control::COUNTED, counted::UNREGISTERED, 0);
                self.stray_until = now.0.saturating_add(self.start.0).saturating_add(SLOW);
            }
            None => {}
        }
        turn.is_some()
    }

    /// A transfer of several buffers goes on from call to call: it cannot be counted by one of them.
    fn may_count(&self) -> bool {
        let has_several =
            |kind: &Kind| matches!(kind.operation & !OF_UCXX, operation::MULTI_SEND | operation::MULTI_RECV);
        !self.totals.keys().any(has_several) && !self.meter.is_over()
    }

    /// See `Meter::allow`.
    pub fn allow(&mut self, percent: f64) {
        self.meter.allow(percent);
    }

    /// Counts transfers where it costs more than it may to follow them, and takes the probes away where that costs more, too.
    /// Returns a sentence then.
    pub fn hold_budget(&mut self, run_time: Duration, runs: u64) -> Option<String> {
        let excess = self.meter.exceeds(run_time, runs)?;
        if self.may_count() && self.pace.slow_down(excess.times()) {
            return None;
        }
        self.ends.close();
        let rest = "what was under way then is not told of";
        Some(self.probes.give_up(&mut self.meter, excess, "transfers", rest))
    }

    /// What is under way ends unseen. What is registered and not submitted yet is counted then.
    fn tell_left(&mut self, at: Nanos, events: &mut Vec<Event>) {
        let asked: Vec<(Key, Transfer)> = self.maps.requests.iter().flatten().collect();
        let asked = asked.into_iter().filter(|(key, it)| self.maps.requests.remove(key).is_ok() && it.completed == 0);
        let several = asked.filter(|(_, it)| matches!(it.operation, operation::MULTI_SEND | operation::MULTI_RECV));
        let mut left: Vec<(Key, Transfer)> = several.collect();
        let pending: Vec<(Key, Transfer)> = self.maps.open.iter().flatten().collect();
        left.extend(pending.into_iter().filter(|(key, _)| self.maps.open.remove(key).is_ok()));
        for (key, transfer) in left {
            let Some(process) = self.processes.get(&key.pid).copied() else { continue };
            let Some(operation) = operation_of(transfer.operation) else { continue };
            self.slow.remove(&transfer.id);
            events.push(Event::Transfers(Transfers {
                at,
                process,
                library: if transfer.flags & flags::UCXX == 0 { Library::Ucx } else { Library::Ucxx },
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

    fn of_ucx(rate: f64) -> Rate {
        Rate { all: rate, ucxx: 0.0 }
    }

    fn turns(pace: &mut Pace, rates: &[f64]) -> Vec<Option<Turn>> {
        rates.iter().map(|rate| pace.next(of_ucx(*rate), TICK, true)).collect()
    }

    #[test]
    fn many_are_counted_and_few_are_followed() {
        let mut pace = Pace::new(None);
        let told = turns(&mut pace, &[9e3, 4e4, 2e5, 2e5, 6e3, 4e3, 4e3]);
        assert_eq!(told, [None, Some(Turn::Count), Some(Turn::Leave), None, None, Some(Turn::Follow), None]);
    }

    #[test]
    fn they_are_followed_for_a_moment_now_and_then() {
        let followed = |rate: f64| {
            let told = turns(&mut Pace::new(None), &[rate; 500]);
            told.iter().filter(|turn| **turn == Some(Turn::Follow)).count()
        };
        // In 125 seconds.
        assert_eq!((followed(2e5), followed(1e4)), (2, 2));
        assert_eq!([1e3, 3e3, 6e3, 1e5].map(|rate| of_ucx(rate).period().as_secs()), [10, 18, 36, 60]);
        assert_eq!([1e3, 9e3].map(|rate| Rate { all: rate, ucxx: rate }.period().as_secs()), [10, 30]);
    }

    #[test]
    fn where_they_cannot_be_counted_they_are_followed() {
        let mut pace = Pace::new(None);
        assert_eq!(pace.next(of_ucx(1e6), TICK, false), None);
        turns(&mut pace, &[1e6; 3]);
        assert_eq!(pace.next(of_ucx(1e6), TICK, false), Some(Turn::Follow));
    }

    #[test]
    fn many_of_ucxx_are_counted_when_they_last() {
        let mut pace = Pace::new(None);
        let mut next = |rate| pace.next(Rate { all: rate, ucxx: rate }, TICK, true);
        // Not two seconds.
        assert!([2e3; 8].map(&mut next).iter().all(Option::is_none));
        assert_eq!(next(900.0), None);
        let told = [2e3; 60].map(&mut next);
        assert_eq!(told.iter().position(Option::is_some), Some(8));
        assert_eq!([told[8], told[9]], [Some(Turn::Count), Some(Turn::Leave)]);
        // For a moment, when it is known that they last.
        let again = told.iter().position(|turn| *turn == Some(Turn::Follow)).unwrap();
        assert_eq!((told[again + 1], told[again + 2]), (Some(Turn::Count), Some(Turn::Leave)));
        assert_eq!(next(400.0), Some(Turn::Follow));
    }

    #[test]
    fn a_budget_allows_fewer() {
        let mut pace = Pace::new(Some(1.0));
        assert_eq!(turns(&mut pace, &[300.0, 500.0]), [None, Some(Turn::Count)]);
        assert_eq!(turns(&mut Pace::new(Some(100.0)), &[9e3]), [None]);
    }

    #[test]
    fn what_costs_too_much_is_given_up_only_when_it_was_counted_for_all_of_the_time() {
        let mut pace = Pace::new(Some(1.0));
        assert!(pace.slow_down(9.0));
        assert_eq!(turns(&mut pace, &[2e5]), [Some(Turn::Count)]);
        assert!(pace.slow_down(9.0));
        assert_eq!(turns(&mut pace, &[2e5, 2e5]), [Some(Turn::Leave), None]);
        assert!(pace.slow_down(9.0));
        // It is two seconds now.
        assert_eq!(turns(&mut pace, &[2e5; 7]), [None; 7]);
        assert!(!pace.slow_down(9.0));
    }

    #[test]
    fn where_few_cost_too_much_they_are_counted_then_and_given_up_in_the_end() {
        let mut pace = Pace::new(Some(1.0));
        assert_eq!(turns(&mut pace, &[150.0; 8]), [None; 8]);
        assert!(pace.slow_down(2.0));
        // Of 400 a second it allows 200 now.
        assert_eq!(turns(&mut pace, &[150.0; 4]), [Some(Turn::Count), Some(Turn::Leave), None, None]);
        assert_eq!(turns(&mut pace, &[90.0, 90.0, 250.0]), [Some(Turn::Follow), None, Some(Turn::Count)]);
        let mut pace = Pace::new(Some(1.0));
        let is_left = |_: &u32| {
            turns(&mut pace, &[1.0; 12]);
            pace.slow_down(2.0)
        };
        assert_eq!((0..9).take_while(is_left).count(), 4);
    }

    #[test]
    fn a_moment_is_for_as_many_as_a_budget_allows() {
        let moments = |rate| {
            let told = turns(&mut Pace::new(Some(1.0)), &[rate; 200]);
            told.iter().filter(|turn| **turn == Some(Turn::Follow)).count()
        };
        assert_eq!((moments(700.0), moments(900.0)), (4, 0));
    }
}
