//! Keeps the cost of pyobs within `--budget`. This is the only place that decides what is given up, and when
//! it is restored.
//!
//! Once a second the session reports the cost of each family. [`Arbiter`] takes the measure that does the
//! least harm per percent saved until the predicted cost fits, and reverts it once the predicted cost leaves
//! room. It does not know any family's programs: the session applies [`Arbiter::level`]. The windows of
//! `eval` open and close several times a second, within [`Arbiter::allowed_share`].

mod ladder;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use pyobs_model::Nanos;

pub use self::ladder::Measure;
use self::ladder::{FAULTS, LIBRARIES, Ladder, MEM_INFOS, SLEEPS, TRANSFERS, WATCHPOINTS, samples};

/// Cost in the first seconds does not count, because every file and stack is new.
const START: Nanos = Nanos(3_000_000_000);
/// Costs are compared over at least this long. The last observation of a recording may come a moment after the one before it,
/// and includes the work of the end.
const SPAN_MIN: f64 = 0.5;
/// The cost of one second must exceed the budget by this factor for a measure to be taken at once. Over
/// [`WINDOW`] seconds, any excess suffices.
const FAR_ABOVE: f64 = 1.5;
const WINDOW: usize = 3;
/// A measure is taken so that the predicted cost is at most this share of the budget, and reverted on the
/// same condition.
const TARGET: f64 = 0.8;
/// A measure that would save less than this share of the budget is not worth its harm.
const WORTH: f64 = 0.02;
/// Consecutive observations that must leave room before a measure is reverted.
const QUIET: usize = 2;
/// Predictions treat a family's whole cost as proportional to what it keeps, which overstates the cost of
/// reverting. So if there is room, one measure is reverted on trial: first after this many seconds, and after
/// a successful trial one each second. Each failed trial doubles the wait.
const TRIAL_AFTER: u32 = 2;
const TRIAL_AFTER_MAX: u32 = 640;
/// A trial succeeds if no measure is taken for this many seconds.
const TRIAL_LENGTH: u32 = 10;
/// A family's share of the time in user space is at most this many times its time in the kernel. The rest is
/// the fixed cost of polling.
const USER_MAX: f64 = 4.0;
/// Calls always keep at least this share of the budget, and probes that cost less are never removed.
const ALLOWED_SHARE_MIN: f64 = 0.25;

/// The account that a cost is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Spender {
    /// CPU samples.
    Samples,
    /// The families `offcpu` and `gil`, which share their programs.
    Sleeps,
    /// Traps at watchpoints, of the family `redundancy`.
    Watchpoints,
    Calls,
    MemInfos,
    Libraries,
    Transfers,
    /// Page faults, of the family `heap`.
    Faults,
    /// What cannot be made cheaper: system calls that share memory, process creation and exit.
    Rest,
}

pub const SPENDERS: usize = Spender::Rest as usize + 1;

/// The cost of a family since the start.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub family: Spender,
    /// Run time of its programs and of the traps that lead to them.
    pub kernel: Nanos,
}

/// Which families the budget binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binds {
    pub samples: bool,
    pub sleeps: bool,
    /// The families that must be requested by name. The budget binds these too if the user gave one.
    pub named: bool,
}

impl Binds {
    /// Whether a family's cost counts towards the budget.
    fn counts(self, family: Spender) -> bool {
        match family {
            Spender::Samples => self.samples,
            Spender::Sleeps => self.sleeps,
            Spender::Calls => true,
            Spender::Watchpoints | Spender::MemInfos | Spender::Libraries | Spender::Transfers => self.named,
            Spender::Faults | Spender::Rest => self.samples && self.sleeps,
        }
    }
}

/// A measure that was taken or reverted.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub family: &'static str,
    /// The measures in force before and after; `None` if nothing is given up.
    pub before: Option<&'static str>,
    pub after: Option<&'static str>,
    /// For the user, if more is given up than before.
    pub sentence: Option<String>,
}

/// Shares of a core over one second.
type Shares = [f64; SPENDERS];

const LADDERS: usize = 7;

struct Observed {
    at: Nanos,
    kernel: [Nanos; SPENDERS],
    user: Nanos,
}

pub struct Arbiter {
    /// Share of one core.
    budget: f64,
    cpus: f64,
    binds: Binds,
    ladders: [Ladder; LADDERS],
    last: Option<Observed>,
    /// Since the last change, the latest at the back.
    seconds: VecDeque<Shares>,
    /// Seconds for which a trial would have been possible, how many are required, and seconds since the last
    /// trial began.
    waited: u32,
    patience: u32,
    trial: Option<u32>,
}

impl Arbiter {
    /// `percent` of all CPUs together.
    pub fn new(percent: f64, cpus: usize, rate_hz: u32, binds: Binds) -> Self {
        let cpus = cpus.max(1) as f64;
        Self {
            budget: percent / 100.0 * cpus,
            cpus,
            binds,
            ladders: [
                Ladder::new(Spender::Samples, samples(rate_hz), binds.samples),
                Ladder::new(Spender::Sleeps, SLEEPS, binds.sleeps),
                Ladder::new(Spender::Watchpoints, WATCHPOINTS, binds.named),
                Ladder::new(Spender::MemInfos, MEM_INFOS, binds.named),
                Ladder::new(Spender::Libraries, LIBRARIES, binds.named),
                Ladder::new(Spender::Transfers, TRANSFERS, binds.named),
                Ladder::new(Spender::Faults, FAULTS, binds.samples && binds.sleeps),
            ],
            last: None,
            seconds: VecDeque::new(),
            waited: 0,
            patience: TRIAL_AFTER,
            trial: None,
        }
    }

    /// The share of a family's work that is kept now.
    pub fn level(&self, family: Spender) -> f64 {
        self.ladders.iter().find(|ladder| ladder.family == family).map_or(1.0, Ladder::keeps)
    }

    /// What calls may cost now, in percent of a core: what the others leave.
    pub fn allowed_share(&self) -> f64 {
        let others =
            self.seconds.back().map_or(0.0, |shares| self.total(shares) - self.counted(shares, Spender::Calls));
        (self.budget - others).max(self.budget * ALLOWED_SHARE_MIN) * 100.0
    }

    /// Call once a second with the cost of each family since the start, and the time in user space without
    /// start-up work.
    pub fn observe(&mut self, at: Nanos, costs: &[Cost], user: Nanos) -> Vec<Change> {
        let mut now = Observed { at, kernel: [Nanos(0); SPENDERS], user };
        for cost in costs {
            now.kernel[cost.family as usize].0 += cost.kernel.0;
        }
        let Some(shares) = self.last.as_ref().and_then(|last| now.since(last)) else {
            self.last.get_or_insert(now);
            return Vec::new();
        };
        self.last = Some(now);
        if self.seconds.len() == WINDOW {
            self.seconds.pop_front();
        }
        self.seconds.push_back(shares);
        if let Some(since) = &mut self.trial {
            *since += 1;
            if *since > TRIAL_LENGTH {
                (self.trial, self.patience) = (None, TRIAL_AFTER);
            }
        }
        let before = self.levels();
        let cost = self.total(&shares);
        if self.is_above() {
            self.give_up();
        }
        if before == self.levels() && self.ladders.iter().any(|ladder| ladder.previous().is_some()) {
            self.take_up(cost);
        }
        self.changes(before, cost, at)
    }

    fn is_above(&self) -> bool {
        let latest = self.seconds.back().map_or(0.0, |shares| self.total(shares));
        let mean = self.seconds.iter().map(|shares| self.total(shares)).sum::<f64>() / self.seconds.len().max(1) as f64;
        let is_trial = self.trial.is_some_and(|since| since <= 2);
        latest > self.budget * if is_trial { 1.0 } else { FAR_ABOVE }
            || self.seconds.len() == WINDOW && latest.min(mean) > self.budget
    }

    /// Takes measures until the cost of the last second would have fitted.
    fn give_up(&mut self) {
        let Some(mut shares) = self.seconds.back().copied() else { return };
        // Irreversible measures are judged over the whole window.
        let is_lasting =
            self.seconds.len() == WINDOW && self.seconds.iter().all(|shares| self.total(shares) > self.budget);
        while self.total(&shares) > self.budget * TARGET {
            let budget = self.budget;
            let worth = |ladder: &Ladder| {
                let cost = shares[ladder.family as usize];
                let step = ladder.next().filter(|step| is_lasting || !step.is_final)?;
                if cost <= ladder.reserve() * budget {
                    return None;
                }
                let saved = cost * (1.0 - step.keeps / ladder.keeps());
                (saved > WORTH * budget).then(|| step.harm / saved)
            };
            let best = self.ladders.iter_mut().filter_map(|ladder| worth(ladder).map(|harm| (harm, ladder)));
            let Some((_, ladder)) = best.min_by(|one, other| one.0.total_cmp(&other.0)) else { return };
            let before = ladder.keeps();
            ladder.level += 1;
            shares[ladder.family as usize] *= ladder.keeps() / before;
            if self.trial.take().is_some() {
                self.patience = (self.patience * 2).min(TRIAL_AFTER_MAX);
            }
            self.waited = 0;
        }
    }

    /// Reverts the most harmful measures for which there is room.
    fn take_up(&mut self, cost: f64) {
        if self.seconds.len() < QUIET && self.trial.is_none() {
            return;
        }
        let recent = self.seconds.iter().rev().take(QUIET);
        let mut shares: Shares = recent
            .fold([0.0; SPENDERS], |most, shares| std::array::from_fn(|family| f64::max(most[family], shares[family])));
        loop {
            let total = self.total(&shares);
            let fits = |ladder: &Ladder| {
                let keeps = ladder.previous()?;
                let more = shares[ladder.family as usize] * (keeps / ladder.keeps() - 1.0);
                // If other families exceed the budget, something that costs almost nothing need not be given
                // up for them.
                let hardly_costs = more <= WORTH * self.budget * TARGET;
                (hardly_costs || total + more <= self.budget * TARGET).then_some(keeps)
            };
            let all = self.ladders.iter().enumerate();
            let fitting = all.filter_map(|(index, ladder)| fits(ladder).map(|keeps| (ladder.harm(), index, keeps)));
            let Some((_, index, keeps)) = fitting.max_by(|one, other| one.0.total_cmp(&other.0)) else { break };
            let ladder = &mut self.ladders[index];
            shares[ladder.family as usize] *= keeps / ladder.keeps();
            ladder.level -= 1;
            self.waited = 0;
        }
        self.waited = if cost < self.budget * TARGET { self.waited + 1 } else { 0 };
        if self.waited >= if self.trial.is_some() { 1 } else { self.patience } {
            let given_up = self.ladders.iter_mut().filter(|ladder| ladder.previous().is_some());
            if let Some(ladder) = given_up.max_by(|one, other| one.harm().total_cmp(&other.harm())) {
                ladder.level -= 1;
                (self.trial, self.waited) = (Some(0), 0);
            }
        }
    }

    fn levels(&self) -> [usize; LADDERS] {
        std::array::from_fn(|index| self.ladders[index].level)
    }

    fn changes(&mut self, before: [usize; LADDERS], cost: f64, at: Nanos) -> Vec<Change> {
        let changed: Vec<usize> =
            (0..before.len()).filter(|index| self.ladders[*index].level != before[*index]).collect();
        if !changed.is_empty() {
            self.seconds.clear();
        }
        let of_machine = |share: f64| share / self.cpus * 100.0;
        let change = |index: usize| {
            let ladder = &self.ladders[index];
            let after = ladder.measure(ladder.level);
            let sentence = after.filter(|_| ladder.level > before[index]).map(|measure| {
                let (cost, budget, from) = (of_machine(cost), of_machine(self.budget), at.as_secs_f64());
                let Measure { what, effect, .. } = measure;
                format!(
                    "pyobs used {cost:.2} % of the machine with a budget of {budget:.2} %: {what} from {from:.0} s on; {effect}"
                )
            });
            Change {
                family: ladder.name(),
                before: ladder.measure(before[index]).map(|measure| measure.name),
                after: after.map(|measure| measure.name),
                sentence,
            }
        };
        changed.into_iter().map(change).collect()
    }

    fn total(&self, shares: &Shares) -> f64 {
        const ALL: [Spender; SPENDERS] = [
            Spender::Samples,
            Spender::Sleeps,
            Spender::Watchpoints,
            Spender::Calls,
            Spender::MemInfos,
            Spender::Libraries,
            Spender::Transfers,
            Spender::Faults,
            Spender::Rest,
        ];
        ALL.into_iter().map(|family| self.counted(shares, family)).sum()
    }

    fn counted(&self, shares: &Shares, family: Spender) -> f64 {
        if self.binds.counts(family) { shares[family as usize] } else { 0.0 }
    }
}

impl Observed {
    /// `None` if too little time has passed. A family that sends many records also has a long run time in the kernel,
    /// so each gets the same share of the time in user space as of the time in the kernel.
    fn since(&self, before: &Self) -> Option<Shares> {
        let span = self.at.saturating_sub(before.at).as_secs_f64();
        let kernel: Shares =
            std::array::from_fn(|family| self.kernel[family].saturating_sub(before.kernel[family]).as_secs_f64());
        let all: f64 = kernel.iter().sum();
        let user = if before.at < START { Nanos(0) } else { self.user.saturating_sub(before.user) };
        let user = user.as_secs_f64();
        let attributed = user.min(all * USER_MAX);
        let times = if all > 0.0 { 1.0 + attributed / all } else { 1.0 };
        (span >= SPAN_MIN).then(|| {
            let mut shares = kernel.map(|time| time * times / span);
            shares[Spender::Rest as usize] += (user - attributed) / span;
            shares
        })
    }
}
