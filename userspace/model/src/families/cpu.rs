//! Where CPU time goes: samples by thread and stack.

use std::collections::{HashMap, VecDeque};

use crate::loss::Losses;
use crate::{History, Nanos, Outcome, ProcessRef, Sample, Selection, StackId, Tid};

/// What samples are summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub process: ProcessRef,
    pub tid: Tid,
    pub stack: StackId,
}

/// How the stacks of Python threads came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// Samples of threads that were in Python.
    pub samples: u64,
    pub complete: u64,
    pub truncated: u64,
    pub failed: Losses,
}

impl Stacks {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::NoPython => return,
            Outcome::Complete => self.complete += 1,
            Outcome::Truncated => self.truncated += 1,
            Outcome::Failed(reason) => self.failed.add(reason, 1),
        }
        self.samples += 1;
    }
}

/// The samples kept, and their sums.
#[derive(Debug)]
pub struct Cpu {
    history: History,
    samples: VecDeque<Sample>,
    sums: HashMap<Key, u64>,
    total: u64,
    stacks: Stacks,
}

impl Cpu {
    pub fn new(history: History) -> Self {
        Self { history, samples: VecDeque::new(), sums: HashMap::new(), total: 0, stacks: Stacks::default() }
    }

    pub fn add(&mut self, sample: Sample) {
        self.total += 1;
        self.stacks.add(sample.outcome);
        *self.sums.entry(key(&sample)).or_default() += 1;
        self.samples.push_back(sample);
        if let History::Window { samples, .. } = self.history {
            while self.samples.len() > samples {
                self.forget_oldest();
            }
        }
    }

    /// Forgets what is older than the window before `now`.
    pub fn expire(&mut self, now: Nanos) {
        let History::Window { length, .. } = self.history else { return };
        let oldest = now.saturating_sub(length);
        while self.samples.front().is_some_and(|sample| sample.at < oldest) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(sample) = self.samples.pop_front() else { return };
        if let Some(sum) = self.sums.get_mut(&key(&sample)) {
            *sum -= 1;
            if *sum == 0 {
                self.sums.remove(&key(&sample));
            }
        }
    }

    /// Samples that are kept, oldest first.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> + '_ {
        self.samples.iter()
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
    pub fn sums(&self, selection: &Selection) -> HashMap<Key, u64> {
        if selection.is_timed() {
            let mut sums = HashMap::new();
            for sample in self.samples.iter().filter(|sample| selection.has_sample(sample)) {
                *sums.entry(key(sample)).or_default() += 1;
            }
            return sums;
        }
        self.sums
            .iter()
            .filter(|(key, _)| selection.has_thread(key.process, key.tid))
            .map(|(key, sum)| (*key, *sum))
            .collect()
    }
}

fn key(sample: &Sample) -> Key {
    Key { process: sample.process, tid: sample.tid, stack: sample.stack }
}
