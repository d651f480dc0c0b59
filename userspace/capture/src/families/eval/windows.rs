//! When calls are watched: all the time, or as long as the budget lasts.
//!
//! The budget fills a token bucket that holds a few seconds' worth. While a window is open, the kernel side
//! charges each call to the bucket and stops when it is empty. The window opens again when the bucket is
//! full, so a program with few calls is watched without gaps.

use pyobs_model::Nanos;

/// Size of the token bucket in seconds of budget. It bounds the time between windows.
const BURST_S: f64 = 5.0;
/// Changes of the watched share of time by less than this factor are not reported.
const WORTH_REPORTING: f64 = 1.5;
const FIRST_REPORT: Nanos = Nanos(5_000_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Closed,
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Nothing,
    /// A window begins, in which this many nanoseconds may be spent.
    Open(u64),
    /// The open window's limit rises to this many nanoseconds.
    Extend(u64),
    Close,
}

#[derive(Debug)]
pub struct Windows {
    /// The share of one core that calls may cost; `None` for no bound.
    share: Option<f64>,
    phase: Phase,
    /// Nanoseconds that could be spent when the present phase began.
    tokens: f64,
    since: Nanos,
    /// When the first window was opened.
    begun: Option<Nanos>,
    watched: Nanos,
    /// Whether a window was ever closed because the budget was used up.
    has_gaps: bool,
    reported: Option<f64>,
}

impl Windows {
    /// `percent` of one core; `None` for no bound.
    pub fn new(percent: Option<f64>, now: Nanos) -> Self {
        let share = percent.map(|percent| percent / 100.0);
        let tokens = share.map_or(0.0, full);
        Self {
            share,
            phase: Phase::Closed,
            tokens,
            since: now,
            begun: None,
            watched: Nanos(0),
            has_gaps: false,
            reported: None,
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    pub fn is_bound(&self) -> bool {
        self.share.is_some()
    }

    /// Sets the share of a core that calls may cost from now on, in percent; no effect without a bound.
    pub fn allow(&mut self, percent: f64) {
        if let Some(share) = &mut self.share {
            *share = percent / 100.0;
        }
    }

    /// Nanoseconds left in the bucket if `spent` were used since the phase began.
    fn left(&self, share: f64, now: Nanos, spent: u64) -> f64 {
        let flown = now.saturating_sub(self.since).0 as f64 * share;
        (self.tokens + flown - spent as f64).min(full(share))
    }

    /// `spent`: nanoseconds used since the present phase began.
    pub fn turn(&self, now: Nanos, spent: u64) -> Turn {
        match (self.phase, self.share) {
            (Phase::Closed, None) => Turn::Open(u64::MAX),
            (Phase::Open, None) => Turn::Nothing,
            (Phase::Closed, Some(share)) if self.left(share, now, spent) >= full(share) => {
                Turn::Open(full(share) as u64)
            }
            (Phase::Closed, Some(_)) => Turn::Nothing,
            (Phase::Open, Some(share)) => match self.left(share, now, spent) {
                left if left <= 0.0 => Turn::Close,
                left => Turn::Extend(spent.saturating_add(left as u64)),
            },
        }
    }

    pub fn opened(&mut self, now: Nanos) {
        self.tokens = self.share.map_or(0.0, full);
        (self.phase, self.since) = (Phase::Open, now);
        self.begun.get_or_insert(now);
    }

    /// Records that the budget ran out at `ended`, which may be some time before `now`.
    pub fn closed(&mut self, now: Nanos, ended: Nanos, spent: u64) {
        self.has_gaps = true;
        self.watched.0 += ended.saturating_sub(self.since).0;
        self.tokens = self.share.map_or(0.0, |share| self.left(share, now, spent));
        (self.phase, self.since) = (Phase::Closed, now);
    }

    /// The share of the time since the first window in which calls were watched.
    pub fn coverage(&self, now: Nanos) -> f64 {
        let open = if self.phase == Phase::Open { now.saturating_sub(self.since).0 } else { 0 };
        let all = self.begun.map_or(1, |begun| now.saturating_sub(begun).0.max(1));
        ((self.watched.0 + open) as f64 / all as f64).min(1.0)
    }

    /// Whether a gap was reported.
    pub fn is_reported(&self) -> bool {
        self.reported.is_some()
    }

    /// Returns one sentence if the watched share of time has changed, and at the end what it was.
    pub fn report(&mut self, now: Nanos, at_the_end: bool) -> Option<String> {
        let (share, begun) = (self.share?, self.begun.filter(|_| self.has_gaps)?);
        let coverage = self.coverage(now);
        let news = match self.reported {
            // Report the first gap only after the share has become meaningful.
            None => now.saturating_sub(begun) >= FIRST_REPORT,
            Some(before) => coverage > before * WORTH_REPORTING || coverage * WORTH_REPORTING < before,
        };
        if !(news || at_the_end) {
            return None;
        }
        self.reported = Some(coverage);
        let (percent, budget) = (coverage * 100.0, share * 100.0);
        let (from, to) = (begun.as_secs_f64(), now.as_secs_f64());
        Some(format!(
            "calls cost more than {budget:.2} % of a core: they were counted in {percent:.2} % of the time from {from:.0} s to {to:.0} s"
        ))
    }
}

fn full(share: f64) -> f64 {
    share * BURST_S * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Nanos {
        Nanos::from_secs_f64(seconds)
    }

    /// Simulates a program whose watched calls cost `load` of a core, for `length` seconds in steps of 10 ms.
    /// Returns the share of time watched and the cost.
    fn run(windows: &mut Windows, load: f64, length: f64) -> (f64, f64) {
        let (mut spent, mut cost, mut limit) = (0.0, 0.0, 0);
        for tick in 0..(length * 100.0) as u64 {
            let now = seconds(tick as f64 * 0.01);
            match windows.turn(now, spent as u64) {
                Turn::Open(most) => {
                    windows.opened(now);
                    (spent, limit) = (0.0, most);
                }
                Turn::Extend(most) => limit = most,
                Turn::Close => {
                    windows.closed(now, now, spent as u64);
                    (spent, limit) = (0.0, 0);
                }
                Turn::Nothing => {}
            }
            // Calls between the limit and the next check cost time, too.
            if windows.phase() == Phase::Open && limit > 0 {
                spent += load * 1e7;
                cost += load * 0.01;
            }
        }
        (windows.coverage(seconds(length)), cost / length)
    }

    #[test]
    fn a_busy_program_is_watched_for_its_share() {
        let mut windows = Windows::new(Some(1.0), seconds(0.0));
        let (coverage, cost) = run(&mut windows, 0.8, 100.0);
        assert!(cost > 0.008 && cost < 0.0115, "{cost}");
        assert!(coverage > 0.008 && coverage < 0.02, "{coverage}");
        assert!(windows.report(seconds(100.0), true).is_some());
    }

    #[test]
    fn an_idle_program_is_watched_without_a_gap() {
        let mut windows = Windows::new(Some(1.0), seconds(0.0));
        let (coverage, cost) = run(&mut windows, 0.009, 100.0);
        assert!(coverage > 0.999 && cost < 0.01, "{coverage} {cost}");
        assert_eq!(windows.report(seconds(100.0), true), None);
    }

    #[test]
    fn without_a_bound_there_is_one_window() {
        let mut windows = Windows::new(None, seconds(1.0));
        assert_eq!(windows.turn(seconds(1.0), 0), Turn::Open(u64::MAX));
        windows.opened(seconds(1.0));
        assert_eq!(windows.turn(seconds(50.0), u64::MAX), Turn::Nothing);
        assert_eq!(windows.report(seconds(50.0), true), None);
    }

    #[test]
    fn gaps_are_reported_when_they_begin_change_and_at_the_end() {
        let mut windows = Windows::new(Some(1.0), seconds(0.0));
        windows.opened(seconds(0.0));
        windows.closed(seconds(0.06), seconds(0.05), 60_000_000);
        assert_eq!(windows.report(seconds(1.0), false), None);
        let said = windows.report(seconds(5.0), false).unwrap();
        assert!(said.contains("counted in 1.00 % of the time from 0 s to 5 s"), "{said}");
        assert_eq!(windows.report(seconds(5.1), false), None);
        assert!(windows.report(seconds(10.0), false).unwrap().contains("0.50 %"));
        assert!(windows.report(seconds(10.1), true).is_some());
    }
}
