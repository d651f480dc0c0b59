//! Holds pyobs's own cost inside the budget.

use pyobs_model::Nanos;

/// The start, when every file is new, sheds nothing for what user space does.
const START: Nanos = Nanos(3_000_000_000);
/// The cost is judged over this much time.
const WINDOW: Nanos = Nanos(5_000_000_000);
/// Where the kernel's part alone is more than the budget, sleeps are given up after so much time, from the beginning on.
const HASTE: Nanos = Nanos(1_000_000_000);
/// Stacks of sleeps are given up first, to so many times fewer in so many steps: the time that was slept stays exact, and
/// only which stack it is told with is known from fewer.
const STACKS_STEP: u64 = 8;
const STACKS_STEPS: u32 = 3;
/// Then sleeps of threads that sleep often: of each thread one is looked at for so much time.
const GAPS: [Nanos; 3] = [Nanos(20_000_000), Nanos(80_000_000), Nanos(320_000_000)];
const SLEEPS_STEPS: u32 = STACKS_STEPS + GAPS.len() as u32;
/// Then samples, to half in each step; after so many steps one is taken every ten seconds at 99 Hz.
const SAMPLES_STEPS: u32 = 10;
/// So much of the budget is theirs, whatever else there is: it would not be less without them.
const SAMPLES_SHARE: f64 = 0.5;
/// They are taken up again, twice as many, where they cost so much of that.
const SAMPLES_ROOM: f64 = 3.0;

#[derive(Debug)]
pub struct Governor {
    /// Share of one core.
    budget: f64,
    rate_hz: u32,
    /// The first and the last step, by what the budget binds.
    first: u32,
    last: u32,
    step: u32,
    window_start: Option<Used>,
}

/// The cost, since the start, of what the budget binds. What a file costs once, its unwind table and its names, is no part of
/// it: fewer samples would not make that less.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub at: Nanos,
    /// In the kernel.
    pub bpf: Nanos,
    /// Of that what samples cost.
    pub samples: Nanos,
    /// What all of pyobs costs in the kernel.
    pub all: Nanos,
    /// In user space.
    pub cpu: Nanos,
}

/// Shares of a core.
struct Shares {
    all: f64,
    kernel: f64,
    /// What samples cost in the kernel, and of user space's time as much as theirs is of the kernel's.
    samples: f64,
}

impl Used {
    fn shares_since(self, before: Self) -> Shares {
        let span = self.at.saturating_sub(before.at).as_secs_f64();
        let since = |of: fn(Self) -> Nanos| of(self).saturating_sub(of(before)).as_secs_f64() / span;
        let [kernel, samples, all, cpu] =
            [since(|it| it.bpf), since(|it| it.samples), since(|it| it.all), since(|it| it.cpu)];
        let of_cpu = if all > 0.0 { cpu * (samples / all).min(1.0) } else { 0.0 };
        Shares { all: kernel + cpu, kernel, samples: samples + of_cpu }
    }
}

/// What may be given up to stay inside the budget, and what that is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binds {
    pub samples: bool,
    pub sleeps: bool,
}

/// What is given up, or taken up again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// One sample in so many is taken.
    pub keep_every: u64,
    /// So many times fewer stacks of sleeps are taken.
    pub sleeps_rarer: u64,
    /// Of a thread's sleeps one is looked at for so much time; 0 for all.
    pub sleep_gap: Nanos,
    pub sentence: String,
}

impl Governor {
    /// `budget` in percent of one core.
    pub fn new(budget: f64, binds: Binds, rate_hz: u32) -> Self {
        let first = if binds.sleeps { 0 } else { SLEEPS_STEPS };
        let last = SLEEPS_STEPS + if binds.samples { SAMPLES_STEPS } else { 0 };
        Self { budget: budget / 100.0, rate_hz, first, last, step: first, window_start: None }
    }

    pub fn observe(&mut self, used: Used) -> Option<Change> {
        let at = used.at;
        if at >= START {
            self.window_start.take_if(|before| before.at < START);
        }
        let before = *self.window_start.get_or_insert(used);
        let span = at.saturating_sub(before.at);
        if self.first == self.last || span < HASTE {
            return None;
        }
        let shares = used.shares_since(before);
        let is_hasty = self.step < SLEEPS_STEPS && shares.kernel > self.budget;
        if !is_hasty && at >= START && span < WINDOW {
            return None;
        }
        self.window_start = Some(used);
        if !is_hasty && at < START {
            return None;
        }
        let wanted = self.wanted(&shares);
        if wanted == self.step {
            return None;
        }
        self.step = wanted;
        let (keep_every, sleeps_rarer, sleep_gap) = (self.keep_every(), self.sleeps_rarer(), self.sleep_gap());
        let rate = f64::from(self.rate_hz) / keep_every as f64;
        Some(Change {
            keep_every,
            sleeps_rarer,
            sleep_gap,
            sentence: format!(
                "{} {:.2} % of a core with a budget of {:.2} %: sampling at {rate:.1} Hz{}, from {:.0} s on",
                if self.last > SLEEPS_STEPS { "pyobs used" } else { "watching sleeps took" },
                shares.all * 100.0,
                self.budget * 100.0,
                self.of_sleeps(),
                at.as_secs_f64(),
            ),
        })
    }

    /// What is left of sleeps, as a part of the sentence.
    fn of_sleeps(&self) -> String {
        if self.first > 0 {
            return String::new();
        }
        let stacks = format!(", and stacks of sleeps {} times as seldom", self.sleeps_rarer());
        match self.sleep_gap() {
            Nanos(0) => stacks,
            gap => format!("{stacks}, of one sleep of each thread in {:.0} ms", gap.as_secs_f64() * 1e3),
        }
    }

    /// The step that would be right now.
    fn wanted(&self, shares: &Shares) -> u32 {
        let (more, less) = ((self.step + 1).min(self.last), self.step.saturating_sub(1).max(self.first));
        let of_samples = self.budget * SAMPLES_SHARE;
        if shares.all < self.budget / self.room() {
            less
        } else if shares.all <= self.budget {
            self.step
        } else if self.step < SLEEPS_STEPS || shares.samples > of_samples {
            more
        } else if self.step > SLEEPS_STEPS && shares.samples < of_samples / SAMPLES_ROOM {
            less
        } else {
            self.step
        }
    }

    /// How far inside the budget the cost must be for the last step to be taken back, so that it does not swing.
    fn room(&self) -> f64 {
        if self.step > SLEEPS_STEPS { 3.0 } else { STACKS_STEP as f64 }
    }

    fn keep_every(&self) -> u64 {
        1 << self.step.saturating_sub(SLEEPS_STEPS)
    }

    fn sleeps_rarer(&self) -> u64 {
        STACKS_STEP.pow(self.step.min(STACKS_STEPS))
    }

    fn sleep_gap(&self) -> Nanos {
        let steps = self.step.min(SLEEPS_STEPS).saturating_sub(STACKS_STEPS);
        steps.checked_sub(1).and_then(|last| GAPS.get(last as usize)).copied().unwrap_or(Nanos(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing but samples.
    fn used_at(at: f64, bpf: f64, cpu: f64) -> Used {
        let [at, bpf, cpu] = [at, bpf, cpu].map(Nanos::from_secs_f64);
        Used { at, bpf, samples: bpf, all: bpf, cpu }
    }

    const SAMPLES: Binds = Binds { samples: true, sleeps: false };
    const BOTH: Binds = Binds { samples: true, sleeps: true };

    /// What is watched: what samples, stacks of sleeps, and sleeps cost while nothing is given up, and what else does, as shares
    /// of a core.
    #[derive(Clone, Copy, Default)]
    struct Load {
        samples: f64,
        stacks: f64,
        sleeps: f64,
        rest: f64,
    }

    /// What was kept over so many seconds; the gap in milliseconds.
    fn run(governor: &mut Governor, load: Load, ticks: u64) -> Vec<(u64, u64, u64)> {
        let (mut used, mut samples, mut kept) = (0.0, 0.0, Vec::new());
        for second in 0..ticks {
            let so_far = Used { samples: Nanos::from_secs_f64(samples), ..used_at(second as f64, used, 0.0) };
            if let Some(change) = governor.observe(so_far) {
                kept.push((change.keep_every, change.sleeps_rarer, change.sleep_gap.0 / 1_000_000));
            }
            let passed = if governor.sleep_gap().0 == 0 { 1.0 } else { 5e6 / governor.sleep_gap().0 as f64 };
            samples += load.samples / governor.keep_every() as f64;
            used += load.samples / governor.keep_every() as f64 + load.rest;
            used += load.stacks / governor.sleeps_rarer() as f64 + load.sleeps * passed;
        }
        kept
    }

    #[test]
    fn sheds_until_it_is_inside_and_stays_there() {
        let mut governor = Governor::new(1.0, SAMPLES, 999);
        let load = Load { samples: 0.07, ..Load::default() };
        assert_eq!(run(&mut governor, load, 100), [(2, 512, 320), (4, 512, 320), (8, 512, 320)]);
    }

    #[test]
    fn gives_up_stacks_of_sleeps_then_sleeps_then_samples() {
        let mut governor = Governor::new(1.0, BOTH, 99);
        let load = Load { samples: 0.006, stacks: 0.07, ..Load::default() };
        assert_eq!(run(&mut governor, load, 100), [(1, 8, 0), (1, 64, 0)]);
        let mut governor = Governor::new(1.0, BOTH, 99);
        let load = Load { sleeps: 0.01, ..load };
        assert_eq!(run(&mut governor, load, 100), [(1, 8, 0), (1, 64, 0), (1, 512, 0), (1, 512, 20)]);
        let mut governor = Governor::new(1.0, BOTH, 99);
        let all = [(1, 8, 0), (1, 64, 0), (1, 512, 0), (1, 512, 20), (1, 512, 80), (1, 512, 320), (2, 512, 320)];
        assert_eq!(run(&mut governor, Load { samples: 0.012, ..load }, 100), all);
    }

    #[test]
    fn does_not_give_up_samples_for_what_they_do_not_cost() {
        let mut governor = Governor::new(1.0, SAMPLES, 99);
        let mut load = Load { samples: 0.004, rest: 0.03, ..Load::default() };
        assert_eq!(run(&mut governor, load, 3600), []);
        let mut again = |load| {
            // A clock that begins anew.
            governor.window_start = None;
            run(&mut governor, load, 3600).into_iter().map(|(keep_every, ..)| keep_every).collect::<Vec<_>>()
        };
        load.samples = 0.07;
        assert_eq!(again(load), [2, 4, 8, 16], "half of the budget is theirs");
        load.samples = 0.003;
        assert_eq!(again(load), [8, 4, 2, 1], "and is again when they cost less");
    }

    #[test]
    fn the_time_of_user_space_is_that_of_samples_by_their_part_of_the_kernel_s() {
        let shares = |samples: f64, all: f64| {
            let [samples, all] = [samples, all].map(Nanos::from_secs_f64);
            let none = Used { at: Nanos(0), bpf: Nanos(0), samples: Nanos(0), all: Nanos(0), cpu: Nanos(0) };
            let second = Nanos::from_secs_f64(1.0);
            Used { at: second, bpf: all, samples, all, cpu: second }.shares_since(none).samples
        };
        assert!((shares(0.01, 0.04) - 0.26).abs() < 1e-6);
        assert!((shares(0.04, 0.04) - 1.04).abs() < 1e-6);
        assert!(shares(0.0, 0.0).abs() < 1e-9);
    }

    #[test]
    fn says_nothing_of_sleeps_where_there_are_none() {
        for (binds, says) in [(SAMPLES, false), (BOTH, true)] {
            let mut governor = Governor::new(1.0, binds, 99);
            let mut at = |time: f64| governor.observe(used_at(time, time * 0.1, 0.0));
            let change = [3.0, 9.0].map(&mut at)[1].clone().unwrap();
            assert_eq!(change.sentence.contains("sleeps"), says, "{}", change.sentence);
        }
    }

    #[test]
    fn takes_up_again_what_it_shed() {
        let mut governor = Governor::new(1.0, BOTH, 999);
        governor.step = SLEEPS_STEPS + 1;
        let load = Load { samples: 0.001, stacks: 0.000_01, sleeps: 0.000_01, rest: 0.0 };
        let all = [(1, 512, 320), (1, 512, 80), (1, 512, 20), (1, 512, 0), (1, 64, 0), (1, 8, 0), (1, 1, 0)];
        assert_eq!(run(&mut governor, load, 100), all);
    }

    #[test]
    fn the_start_sheds_nothing_for_user_space() {
        let mut governor = Governor::new(1.0, BOTH, 99);
        assert_eq!(governor.observe(used_at(0.5, 0.0, 0.5)), None);
        assert_eq!(governor.observe(used_at(1.9, 0.0, 0.8)), None);
        assert_eq!(governor.observe(used_at(3.0, 0.0, 0.9)), None);
        assert_eq!(governor.observe(used_at(9.0, 0.0, 0.91)), None);
    }

    #[test]
    fn what_the_user_typed_is_honoured() {
        let mut governor = Governor::new(1.0, Binds { samples: false, sleeps: false }, 5000);
        assert_eq!(run(&mut governor, Load { samples: 0.5, ..Load::default() }, 100), []);
        let mut governor = Governor::new(1.0, Binds { samples: false, sleeps: true }, 5000);
        let kept = run(&mut governor, Load { sleeps: 10.0, ..Load::default() }, 100);
        assert_eq!(
            kept.last(),
            Some(&(1, 512, 320)),
            "samples that were asked for are not given up for sleeps: {kept:?}"
        );
    }

    #[test]
    fn sleeps_that_cost_the_kernel_more_than_the_budget_are_given_up_at_once() {
        let mut governor = Governor::new(1.0, BOTH, 99);
        let mut at = |time: f64, bpf: f64, cpu: f64| governor.observe(used_at(time, bpf, cpu)).is_some();
        assert!(!at(0.2, 0.0, 0.0) && !at(0.7, 0.05, 0.0), "half a second is too short");
        assert!(at(1.2, 0.1, 0.0));
        assert!(!at(3.0, 0.105, 0.1), "what user space did so far does not count");
        assert!(!at(5.0, 0.11, 0.2), "user space is judged over five seconds");
        assert!(at(9.0, 0.115, 0.3));
    }
}
