//! Holds pyobs's own cost inside the budget.

use pyobs_model::Nanos;

/// The start, when every file is new, sheds nothing.
const START: Nanos = Nanos(3_000_000_000);
/// The cost is judged over this much time.
const WINDOW: Nanos = Nanos(5_000_000_000);
/// Above all machines' needs: then a sample is taken every ten seconds at 99 Hz.
const KEEP_MAX: u64 = 1024;

#[derive(Debug)]
pub struct Governor {
    /// Share of one core.
    budget: f64,
    binds_rate: bool,
    rate_hz: u32,
    keep_every: u64,
    window_start: Option<(Nanos, Nanos)>,
}

/// What is given up, or taken up again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub keep_every: u64,
    pub sentence: String,
}

impl Governor {
    /// `budget` in percent of one core.
    pub fn new(budget: f64, binds_rate: bool, rate_hz: u32) -> Self {
        Self { budget: budget / 100.0, binds_rate, rate_hz, keep_every: 1, window_start: None }
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
            self.keep_every.saturating_mul(2).min(KEEP_MAX)
        } else if share < self.budget / 3.0 {
            // Twice the samples stay inside with room to spare, so that it does not swing.
            (self.keep_every / 2).max(1)
        } else {
            self.keep_every
        };
        if wanted == self.keep_every {
            return None;
        }
        self.keep_every = wanted;
        let rate = f64::from(self.rate_hz) / wanted as f64;
        Some(Change {
            keep_every: wanted,
            sentence: format!(
                "pyobs used {:.2} % of a core with a budget of {:.2} %: sampling at {rate:.1} Hz, and sleeps as seldom, from {:.0} s on",
                share * 100.0,
                self.budget * 100.0,
                at.as_secs_f64(),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Nanos {
        Nanos::from_secs_f64(seconds)
    }

    /// The cost of `share` of a core over time, with what the governor kept.
    fn run(governor: &mut Governor, full_share: f64, ticks: u64, from: f64) -> Vec<u64> {
        let (mut used, mut kept) = (0.0, Vec::new());
        for second in 0..ticks {
            let at = from + second as f64;
            if let Some(change) = governor.observe(seconds(at), seconds(used), Nanos(0)) {
                kept.push(change.keep_every);
            }
            used += full_share / governor.keep_every as f64;
        }
        kept
    }

    #[test]
    fn sheds_until_it_is_inside_and_stays_there() {
        let mut governor = Governor::new(1.0, true, 999);
        assert_eq!(run(&mut governor, 0.07, 100, 0.0), [2, 4, 8]);
    }

    #[test]
    fn takes_up_again_what_it_shed() {
        let mut governor = Governor::new(1.0, true, 999);
        governor.keep_every = 8;
        assert_eq!(run(&mut governor, 0.001, 100, 0.0), [4, 2, 1]);
    }

    #[test]
    fn a_rate_that_the_user_typed_is_honoured() {
        let mut governor = Governor::new(1.0, false, 5000);
        assert_eq!(run(&mut governor, 0.5, 100, 0.0), [0u64; 0]);
    }
}
