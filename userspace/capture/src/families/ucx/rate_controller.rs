//! How closely transfers are followed: to their ends or, if there are too many, only counted.

use std::time::Duration;

use aya::maps::{Array, MapData};
use pyobs_abi::control::{self, counted};
use pyobs_abi::ucx::{Key, Kind, OF_UCXX, Transfer, flags, operation};
use pyobs_model::{Event, Family, Library, Nanos, Transfers};

use super::convert::operation_of;
use super::{REPORTED_PER_SECOND, SLOW, Ucx};

/// The measure's name in `shed`.
const COUNTED_ONLY: &str = "counted only";
/// From this many a second on, transfers are only counted, when they are submitted.
const FAST: f64 = 10_000.0;
/// Approximate cost of following one transfer to its end, in seconds: of UCX and of UCXX.
const COST_S: f64 = 25e-6;
const COST_UCXX_S: f64 = 14e-6;
/// From this many UCXX transfers a second on they are only counted, if the rate lasts. Each costs about seven
/// traps, in threads that wake each other.
const FAST_UCXX: f64 = 1_000.0;
const LASTING: Duration = Duration::from_secs(2);
/// Transfers are followed again below this share of the limits.
const SLOWER: f64 = 0.5;
/// How long transfers are only counted before they are followed for a moment, to learn how long they take.
/// The period grows with their rate, so that such moments use this share of the time.
const PERIOD: Duration = Duration::from_secs(10);
const PERIOD_MAX: Duration = Duration::from_secs(60);
const MOMENTS_SHARE: f64 = 0.005;
/// Length of a moment, including attaching and removing the probes.
const MOMENT_S: f64 = 1.2;
/// At most one transfer in this many is reported one by one during a moment.
const MOMENT: u32 = 40;

/// Transfers per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) all: f64,
    /// UCXX's part of these.
    pub(super) ucxx: f64,
}

impl Rate {
    /// How long transfers are only counted between two moments.
    fn period(self) -> Duration {
        let cost = (self.all - self.ucxx).max(0.0) * COST_S + self.ucxx * COST_UCXX_S;
        Duration::from_secs_f64((cost * MOMENT_S / MOMENTS_SHARE).min(PERIOD_MAX.as_secs_f64())).max(PERIOD)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// For how long there have been too many UCXX transfers.
    Followed(Duration),
    /// New ones are counted; unfinished ones are followed to their end.
    Leaving,
    /// For how long transfers have only been counted.
    Counted(Duration),
}

/// What to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Count transfers submitted from now on.
    Count,
    /// Remove the probes that follow transfers to their ends.
    Leave,
    /// Attach them again, then follow new transfers.
    Follow,
}

#[derive(Debug)]
pub(super) struct RateController {
    state: State,
    /// Transfers are only counted because of the budget.
    is_held: bool,
}

impl Default for RateController {
    fn default() -> Self {
        Self { state: State::Followed(Duration::ZERO), is_held: false }
    }
}

impl RateController {
    pub(super) fn is_followed(&self) -> bool {
        matches!(self.state, State::Followed(_))
    }

    /// Whether transfers are only counted because of their number, not because of the budget.
    fn is_counted(&self) -> bool {
        matches!(self.state, State::Counted(_)) && !self.is_held
    }

    /// Keeps following, because these transfers cannot only be counted.
    fn stay(&mut self) {
        self.state = State::Followed(Duration::ZERO);
    }

    /// Takes the rate since the last call, and whether only counting is possible.
    fn next(&mut self, rate: Rate, elapsed: Duration, may_count: bool) -> Option<Turn> {
        let is_fast = |share: f64| [rate.all >= FAST * share, rate.ucxx >= FAST_UCXX * share];
        let (state, turn) = match self.state {
            State::Followed(before) => {
                let [is_fast, has_many] = is_fast(1.0);
                let long = if has_many { before + elapsed } else { Duration::ZERO };
                if may_count && (self.is_held || is_fast || long > LASTING) {
                    (State::Leaving, Some(Turn::Count))
                } else {
                    (State::Followed(long), None)
                }
            }
            State::Leaving => (State::Counted(Duration::ZERO), Some(Turn::Leave)),
            State::Counted(before) => {
                let long = before + elapsed;
                if !may_count || !(self.is_held || is_fast(SLOWER).contains(&true)) {
                    (State::Followed(Duration::ZERO), Some(Turn::Follow))
                } else if !self.is_held && long >= rate.period() {
                    (State::Followed(LASTING), Some(Turn::Follow))
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
    /// Follows transfers to their ends, or only counts them. Returns whether that changed.
    pub(super) fn turn(
        &mut self,
        rate: Rate,
        elapsed: Duration,
        now: Nanos,
        control: &mut Array<MapData, u64>,
        events: &mut Vec<Event>,
    ) -> bool {
        let turn = self.rate_controller.next(rate, elapsed, self.may_count());
        match turn {
            Some(Turn::Count) => match control.set(control::COUNTED, counted::NEW, 0) {
                Ok(()) => self.stray_until = u64::MAX,
                Err(_) => self.rate_controller.stay(),
            },
            Some(Turn::Leave) => {
                self.ends.suspend();
                self.report_left(now, events);
                // If this fails, each transfer is still checked for whether it was followed.
                let _ = control.set(control::COUNTED, counted::ALL, 0);
                self.report_every(((rate.all / REPORTED_PER_SECOND).ceil() as u32).clamp(1, MOMENT), control);
                if self.rate_controller.is_counted() && !std::mem::replace(&mut self.has_counted, true) {
                    let (rate, period) = (rate.all, rate.period().as_secs_f64());
                    let what = format!(
                        "{rate:.0} transfers a second: they are counted when they are submitted, and followed to \
                         their ends only for a moment every {period:.0} seconds"
                    );
                    events.push(Event::Shed { at: now, what: what.into() });
                }
            }
            Some(Turn::Follow) => {
                // If this fails, transfers end unseen, as before.
                let _ = self.ends.resume();
                let _ = control.set(control::COUNTED, counted::UNREGISTERED, 0);
                self.stray_until = now.0.saturating_add(self.start.0).saturating_add(SLOW);
            }
            None => {}
        }
        self.report_measure(now, events);
        turn.is_some()
    }

    /// Emits the beginning and the end of counting that is not due to the budget.
    fn report_measure(&mut self, now: Nanos, events: &mut Vec<Event>) {
        let is_counted = self.rate_controller.is_counted();
        if std::mem::replace(&mut self.is_counted, is_counted) != is_counted {
            events.push(Event::measure(now, Family::Ucx.name(), COUNTED_ONLY, is_counted));
        }
    }

    /// A transfer of several buffers spans several calls, so it cannot be counted by one of them.
    fn may_count(&self) -> bool {
        let has_several =
            |kind: &Kind| matches!(kind.operation & !OF_UCXX, operation::MULTI_SEND | operation::MULTI_RECV);
        !self.totals.keys().any(has_several) && !self.probes.is_closed()
    }

    /// Keeps a share of the work, for the budget: follows transfers, only counts them, or removes the probes
    /// for good.
    pub fn keep(&mut self, share: f64, now: Nanos, events: &mut Vec<Event>) {
        self.rate_controller.is_held = share < 1.0;
        self.report_measure(now, events);
        if share == 0.0 {
            self.ends.close();
            self.probes.close();
        }
    }

    /// Unfinished transfers end unseen. Registered ones are counted when they are submitted.
    fn report_left(&mut self, at: Nanos, events: &mut Vec<Event>) {
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

    fn turns(rate_controller: &mut RateController, rates: &[f64]) -> Vec<Option<Turn>> {
        rates.iter().map(|rate| rate_controller.next(of_ucx(*rate), TICK, true)).collect()
    }

    #[test]
    fn many_are_counted_and_few_are_followed() {
        let mut rate_controller = RateController::default();
        let turned = turns(&mut rate_controller, &[9e3, 4e4, 2e5, 2e5, 6e3, 4e3, 4e3]);
        assert_eq!(turned, [None, Some(Turn::Count), Some(Turn::Leave), None, None, Some(Turn::Follow), None]);
    }

    #[test]
    fn they_are_followed_for_a_moment_now_and_then() {
        let followed = |rate: f64| {
            let turned = turns(&mut RateController::default(), &[rate; 500]);
            turned.iter().filter(|turn| **turn == Some(Turn::Follow)).count()
        };
        // In 125 seconds.
        assert_eq!((followed(2e5), followed(1e4)), (2, 2));
        assert_eq!([1e3, 3e3, 6e3, 1e5].map(|rate| of_ucx(rate).period().as_secs()), [10, 18, 36, 60]);
        assert_eq!([1e3, 9e3].map(|rate| Rate { all: rate, ucxx: rate }.period().as_secs()), [10, 30]);
    }

    #[test]
    fn where_they_cannot_be_counted_they_are_followed() {
        let mut rate_controller = RateController::default();
        assert_eq!(rate_controller.next(of_ucx(1e6), TICK, false), None);
        turns(&mut rate_controller, &[1e6; 3]);
        assert_eq!(rate_controller.next(of_ucx(1e6), TICK, false), Some(Turn::Follow));
    }

    #[test]
    fn many_of_ucxx_are_counted_when_they_last() {
        let mut rate_controller = RateController::default();
        let mut next = |rate| rate_controller.next(Rate { all: rate, ucxx: rate }, TICK, true);
        // Less than two seconds.
        assert!([2e3; 8].map(&mut next).iter().all(Option::is_none));
        assert_eq!(next(900.0), None);
        let turned = [2e3; 60].map(&mut next);
        assert_eq!(turned.iter().position(Option::is_some), Some(8));
        assert_eq!([turned[8], turned[9]], [Some(Turn::Count), Some(Turn::Leave)]);
        // Followed only for a moment once the rate has proved to last.
        let again = turned.iter().position(|turn| *turn == Some(Turn::Follow)).unwrap();
        assert_eq!((turned[again + 1], turned[again + 2]), (Some(Turn::Count), Some(Turn::Leave)));
        assert_eq!(next(400.0), Some(Turn::Follow));
    }

    #[test]
    fn for_the_budget_all_are_counted_without_a_moment() {
        let mut rate_controller = RateController { is_held: true, ..RateController::default() };
        let turned = turns(&mut rate_controller, &[3.0; 500]);
        assert_eq!(turned[..2], [Some(Turn::Count), Some(Turn::Leave)]);
        assert_eq!(turned[2..], [None; 498]);
        assert!(!rate_controller.is_counted());
        rate_controller.is_held = false;
        assert_eq!(turns(&mut rate_controller, &[3.0]), [Some(Turn::Follow)]);
    }
}
