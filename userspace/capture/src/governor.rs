//! Holds pyobs's own cost inside the budget.

use pyobs_model::Nanos;

/// The start, when every file is new, sheds nothing.
const START: Nanos = Nanos(3_000_000_000);
/// The cost is judged over this much time.
const WINDOW: Nanos = Nanos(5_000_000_000);
/// Stacks of sleeps are given up first, to so many times fewer in so many steps: the time that was slept stays exact, and
/// only which stack it is told with is known from fewer.
const SLEEPS_STEP: u64 = 8;
const SLEEPS_STEPS: u32 = 3;
/// Then samples, to half in each step; after so many steps one is taken every ten seconds at 99 Hz.
const SAMPLES_STEPS: u32 = 10;

#[derive(Debug)]
pub struct Governor {
    /// Share of one core.
    budget: f64,
    binds_rate: bool,
    rate_hz: u32,
    /// The step that comes first: without sleeps there are none to give up.
    first: u32,
    step: u32,
    window_start: Option<(Nanos, Nanos)>,
}

/// What is given up, or taken up again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// One sample in so many is taken.
    pub keep_every: u64,
    /// So many times fewer stacks of sleeps are taken.
    pub sleeps_rarer: u64,
    pub sentence: String,
}

impl Governor {
    /// `budget` in percent of one core.
    pub fn new(budget: f64, binds_rate: bool, rate_hz: u32, has_sleeps: bool) -> Self {
        let first = if has_sleeps { 0 } else { SLEEPS_STEPS };
        Self { budget: budget / 100.0, binds_rate, rate_hz, first, step: first, window_start: None }
    }

    /// Takes the cost since the start: `bpf` in the kernel, `cpu` in user space. What a file costs once, its unwind table and
    /// its names, is no part of it: fewer samples would not make that less.
    pub fn observe(&mut self, at: Nanos, bpf: Nanos, cpu: Nanos) -> Option<Change> {
        if at < START {
            return None;
        }
        let used = Nanos(bpf.0 + cpu.0);
        let (since, used_then) = *self.window_start.get_or_insert((at, used));
        if !self.binds_rate || at.saturating_sub(since) < WINDOW {
            return None;
        }
        self.window_start = Some((at, used));
        let share = used.saturating_sub(used_then).as_secs_f64() / at.saturating_sub(since).as_secs_f64();
        let wanted = if share > self.budget {
            (self.step + 1).min(SLEEPS_STEPS + SAMPLES_STEPS)
        } else if share < self.budget / self.room() {
            self.step.saturating_sub(1).max(self.first)
        } else {
            self.step
        };
        if wanted == self.step {
            return None;
        }
        self.step = wanted;
        let (keep_every, sleeps_rarer) = (self.keep_every(), self.sleeps_rarer());
        let rate = f64::from(self.rate_hz) / keep_every as f64;
        Some(Change {
            keep_every,
            sleeps_rarer,
            sentence: format!(
                "pyobs used {:.2} % of a core with a budget of {:.2} %: sampling at {rate:.1} Hz, and stacks of sleeps {sleeps_rarer} times as seldom, from {:.0} s on",
                share * 100.0,
                self.budget * 100.0,
                at.as_secs_f64(),
            ),
        })
    }

    /// How far inside the budget the cost must be for the last step to be taken back, so that it does not swing.
    fn room(&self) -> f64 {
        if self.step > SLEEPS_STEPS { 3.0 } else { SLEEPS_STEP as f64 }
    }

    fn keep_every(&self) -> u64 {
        1 << self.step.saturating_sub(SLEEPS_STEPS)
    }

    fn sleeps_rarer(&self) -> u64 {
        SLEEPS_STEP.pow(self.step.min(SLEEPS_STEPS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Nanos {
        Nanos::from_secs_f64(seconds)
    }

    /// The cost over time of `samples` and `sleeps`, as shares of a core while nothing is given up, with what was kept.
    fn run(governor: &mut Governor, samples: f64, sleeps: f64, ticks: u64) -> Vec<(u64, u64)> {
        let (mut used, mut kept) = (0.0, Vec::new());
        for second in 0..ticks {
            if let Some(change) = governor.observe(seconds(second as f64), seconds(used), Nanos(0)) {
                kept.push((change.keep_every, change.sleeps_rarer));
            }
            used += samples / governor.keep_every() as f64 + sleeps / governor.sleeps_rarer() as f64;
        }
        kept
    }

    #[test]
    fn sheds_until_it_is_inside_and_stays_there() {
        let mut governor = Governor::new(1.0, true, 999, false);
        assert_eq!(run(&mut governor, 0.07, 0.0, 100), [(2, 512), (4, 512), (8, 512)]);
    }

    #[test]
    fn gives_up_stacks_of_sleeps_before_samples() {
        let mut governor = Governor::new(1.0, true, 99, true);
        assert_eq!(run(&mut governor, 0.006, 0.07, 100), [(1, 8), (1, 64)]);
        let mut governor = Governor::new(1.0, true, 99, true);
        assert_eq!(run(&mut governor, 0.012, 0.07, 100), [(1, 8), (1, 64), (1, 512), (2, 512)]);
    }

    #[test]
    fn takes_up_again_what_it_shed() {
        let mut governor = Governor::new(1.0, true, 999, true);
        governor.step = SLEEPS_STEPS + 1;
        assert_eq!(run(&mut governor, 0.001, 0.000_01, 100), [(1, 512), (1, 64), (1, 8), (1, 1)]);
    }

    #[test]
    fn the_start_sheds_nothing() {
        let mut governor = Governor::new(1.0, true, 99, true);
        assert_eq!(governor.observe(seconds(1.0), seconds(0.5), Nanos(0)), None);
        assert_eq!(governor.observe(seconds(3.0), seconds(0.9), Nanos(0)), None);
        assert_eq!(governor.observe(seconds(9.0), seconds(0.91), Nanos(0)), None);
    }

    #[test]
    fn a_rate_that_the_user_typed_is_honoured() {
        let mut governor = Governor::new(1.0, false, 5000, true);
        assert_eq!(run(&mut governor, 0.5, 0.0, 100), []);
    }
}
