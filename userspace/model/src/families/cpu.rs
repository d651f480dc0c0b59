//! Where CPU time goes: samples by thread and stack.

use foldhash::HashMap;

use super::{Past, Timed};
use crate::loss::Losses;
use crate::{History, Nanos, Outcome, Place, Sample, Selection};

/// How the stacks of Python threads came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// Samples of threads that were in Python.
    pub samples: u64,
    /// All Python frames are there.
    pub complete: u64,
    pub truncated: u64,
    pub failed: Losses,
    /// Of the complete ones, those whose native frames do not lead to the outermost.
    pub cut: Losses,
}

impl Stacks {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::NoPython => return,
            Outcome::Complete => self.complete += 1,
            Outcome::Truncated => self.truncated += 1,
            Outcome::Failed(reason) => self.failed.add(reason, 1),
            Outcome::Cut(reason) => {
                self.complete += 1;
                self.cut.add(reason, 1);
            }
        }
        self.samples += 1;
    }
}

impl Timed for Sample {
    fn at(&self) -> Nanos {
        self.at
    }
}

/// The samples kept, and their sums.
#[derive(Debug)]
pub struct Cpu {
    samples: Past<Sample>,
    sums: HashMap<Place, u64>,
    total: u64,
    stacks: Stacks,
}

impl Cpu {
    pub fn new(history: History) -> Self {
        Self { samples: Past::new(history), sums: HashMap::default(), total: 0, stacks: Stacks::default() }
    }

    pub fn add(&mut self, sample: Sample) {
        self.total += 1;
        self.stacks.add(sample.outcome);
        *self.sums.entry(sample.place()).or_default() += 1;
        if let Some(oldest) = self.samples.push(sample) {
            self.forget(&oldest);
        }
    }

    /// Forgets what is older than the window before `now`.
    pub fn expire(&mut self, now: Nanos) {
        while let Some(oldest) = self.samples.expire(now) {
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, sample: &Sample) {
        if let Some(sum) = self.sums.get_mut(&sample.place()) {
            *sum -= 1;
            if *sum == 0 {
                self.sums.remove(&sample.place());
            }
        }
    }

    /// Samples that are kept, oldest first.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> + '_ {
        self.samples.iter()
    }

    /// The kept samples that `selection` has, oldest first.
    pub fn selected<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a Sample> + 'a {
        self.samples.since_then(selection.from).filter(|sample| selection.has(sample.process, sample.tid, sample.at))
    }

    /// Samples from then on are kept.
    pub fn since(&self) -> Nanos {
        self.samples.since()
    }

    /// All samples since the recording began, also those that the window has forgotten.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How the stacks came out since the recording began.
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// Sums of the kept samples that `selection` has.
    pub fn sums(&self, selection: &Selection) -> HashMap<Place, u64> {
        if selection.is_timed() {
            let mut sums = HashMap::default();
            for sample in self.selected(selection) {
                *sums.entry(sample.place()).or_default() += 1;
            }
            return sums;
        }
        self.sums
            .iter()
            .filter(|(place, _)| selection.has_thread(place.process, place.tid))
            .map(|(place, sum)| (*place, *sum))
            .collect()
    }
}
