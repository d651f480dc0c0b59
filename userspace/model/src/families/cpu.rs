//! Where CPU time goes: samples by thread and stack.

use foldhash::HashMap;

use super::{Past, Places, Summed, Timed};
use crate::loss::Losses;
use crate::{History, Nanos, Outcome, Place, ProcessRef, Sample, Selection};

/// How many stacks of Python threads are complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// Samples of threads that were running Python.
    pub samples: u64,
    /// Samples with all Python frames.
    pub complete: u64,
    pub truncated: u64,
    pub failed: Losses,
    /// Complete samples whose native frames stop short of the outermost, by reason.
    pub cut: Losses,
}

impl Stacks {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::NoPython => return,
            Outcome::Complete => self.complete += 1,
            Outcome::Truncated => self.truncated += 1,
            Outcome::Failed(reason) => self.failed.add(reason, 1),
            Outcome::NativePartial(reason) => {
                self.complete += 1;
                self.cut.add(reason, 1);
            }
        }
        self.samples += 1;
    }
}

impl Summed for CpuSum {
    fn weight(&self) -> u64 {
        self.time.0
    }

    fn take(&mut self, other: Self) {
        self.add(other);
    }
}

impl Timed for Sample {
    fn at(&self) -> Nanos {
        self.at
    }
}

/// A set of samples, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuSum {
    pub samples: u64,
    /// The CPU time that they represent.
    pub time: Nanos,
    /// The sum of their squared weights, in seconds squared.
    squares: f64,
}

impl CpuSum {
    fn of(sample: &Sample) -> Self {
        Self { samples: 1, time: sample.weight, squares: sample.weight.as_secs_f64().powi(2) }
    }

    pub(crate) fn add_sample(&mut self, sample: &Sample) {
        self.add(Self::of(sample));
    }

    /// Adds another set.
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.add(others);
        self
    }

    pub fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.time = Nanos(self.time.0.saturating_add(other.time.0));
        self.squares += other.squares;
    }

    fn remove(&mut self, other: Self) {
        self.samples = self.samples.saturating_sub(other.samples);
        self.time = self.time.saturating_sub(other.time);
        self.squares = (self.squares - other.squares).max(0.0);
    }

    /// The mean weight in seconds, with each sample weighted by its own weight.
    pub(crate) fn mean_weight(&self) -> f64 {
        let time = self.time.as_secs_f64();
        if time > 0.0 { self.squares / time } else { 0.0 }
    }

    /// These samples as a share of `all`, which contains them, and the standard error of that share: a ratio of sums of
    /// independent samples (Cochran, "Sampling Techniques", 3rd edition, section 6.3).
    pub fn share_of(&self, all: &Self) -> (f64, f64) {
        let whole = all.time.as_secs_f64();
        if whole <= 0.0 {
            return (0.0, 0.0);
        }
        let share = self.time.as_secs_f64() / whole;
        let others = (all.squares - self.squares).max(0.0);
        let variance = self.squares * (1.0 - share).powi(2) + others * share.powi(2);
        (share, variance.sqrt() / whole)
    }
}

/// The kept samples, and sums over all samples.
#[derive(Debug)]
pub struct Cpu {
    samples: Past<Sample>,
    sums: HashMap<Place, CpuSum>,
    /// Sums of samples that are no longer kept one by one.
    folded: Places<Place, CpuSum>,
    total: CpuSum,
    stacks: Stacks,
}

impl Cpu {
    pub fn new(history: History) -> Self {
        Self {
            samples: Past::new(history),
            sums: HashMap::default(),
            folded: Places::default(),
            total: CpuSum::default(),
            stacks: Stacks::default(),
        }
    }

    pub fn add(&mut self, sample: Sample) {
        self.total.add(CpuSum::of(&sample));
        self.stacks.add(sample.outcome);
        if !sample.is_within(self.samples.covered()) {
            return;
        }
        self.sums.entry(sample.place()).or_default().add(CpuSum::of(&sample));
        if let Some(oldest) = self.samples.push(sample) {
            self.forget(&oldest);
            if self.samples.has_sums() {
                self.folded.of(oldest.place()).add(CpuSum::of(&oldest));
            }
        }
    }

    /// Reassigns the samples of evicted processes.
    pub(crate) fn reassign(&mut self, resolve: impl Fn(ProcessRef) -> ProcessRef) {
        self.samples.iter_mut().for_each(|sample| sample.process = resolve(sample.process));
        let of_others: Vec<_> = self.sums.extract_if(|place, _| resolve(place.process) != place.process).collect();
        for (place, sum) in of_others {
            self.sums.entry(Place { process: resolve(place.process), ..place }).or_default().add(sum);
        }
        self.folded.reassign(resolve);
    }

    /// Forgets samples older than the window ending at `now`.
    pub fn expire(&mut self, now: Nanos) {
        while let Some(oldest) = self.samples.expire(now) {
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, sample: &Sample) {
        if let Some(sum) = self.sums.get_mut(&sample.place()) {
            sum.remove(CpuSum::of(sample));
            if sum.samples == 0 {
                self.sums.remove(&sample.place());
            }
        }
    }

    /// Kept samples, oldest first.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> + '_ {
        self.samples.iter()
    }

    /// Samples in `selection` that are kept one by one, oldest first.
    pub fn selected<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a Sample> + 'a {
        self.samples.since_then(selection.from).filter(|sample| selection.has(sample.process, sample.tid, sample.at))
    }

    /// The time from which on samples of `selection` are known, one by one or in sums.
    pub fn since(&self, selection: &Selection) -> Nanos {
        self.samples.since(selection)
    }

    /// The time from which on samples are kept one by one.
    pub fn kept_since(&self) -> Nanos {
        self.samples.kept_since()
    }

    /// The number of samples since the recording began, including forgotten ones.
    pub fn total(&self) -> u64 {
        self.total.samples
    }

    /// The sum of all samples since the recording began, including forgotten ones.
    pub fn sum(&self) -> CpuSum {
        self.total
    }

    /// The current sampling rate per second of CPU time, from the last hundred samples.
    pub fn rate_now(&self) -> Option<f64> {
        const LAST: usize = 100;
        let mut sum = CpuSum::default();
        self.samples.latest().take(LAST).for_each(|sample| sum.add_sample(sample));
        let seconds = sum.time.as_secs_f64();
        (seconds > 0.0).then(|| sum.samples as f64 / seconds)
    }

    /// Completeness of the stacks since the recording began.
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// Sums of the samples in `selection`, by place. Unless the sums cover its time, only samples that are kept one by one
    /// count.
    pub fn sums(&self, selection: &Selection) -> HashMap<Place, CpuSum> {
        if !self.samples.is_summed(selection) {
            let mut sums: HashMap<Place, CpuSum> = HashMap::default();
            for sample in self.selected(selection) {
                sums.entry(sample.place()).or_default().add(CpuSum::of(sample));
            }
            return sums;
        }
        let mut sums: HashMap<Place, CpuSum> = HashMap::default();
        let all = self.sums.iter().chain(self.folded.iter());
        for (place, sum) in all.filter(|(place, _)| selection.has_thread(place.process, place.tid)) {
            sums.entry(*place).or_default().add(*sum);
        }
        sums
    }

    /// Samples that are in sums only, and places that are only in the sums of their threads.
    pub fn summed(&self) -> (u64, u64) {
        (if self.samples.has_sums() { self.samples.gone() } else { 0 }, self.folded.gone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(samples: u64, weight_s: f64) -> CpuSum {
        let time = Nanos::from_secs_f64(samples as f64 * weight_s);
        CpuSum { samples, time, squares: samples as f64 * weight_s * weight_s }
    }

    #[test]
    fn equal_weights_have_the_error_of_a_binomial_share() {
        let (part, mut all) = (sum(100, 0.01), sum(300, 0.01));
        all.add(part);
        let (share, error) = part.share_of(&all);
        assert!((share - 0.25).abs() < 1e-9);
        assert!((error - (0.25_f64 * 0.75 / 400.0).sqrt()).abs() < 1e-9, "{error}");
    }

    #[test]
    fn few_heavy_samples_are_less_certain_than_many_light_ones() {
        let (light, heavy) = (sum(100, 0.01), sum(10, 0.1));
        let mut all = sum(100, 0.01);
        all.add(heavy);
        assert!(heavy.share_of(&all).1 > light.share_of(&sum(200, 0.01)).1);
        assert_eq!(light.share_of(&CpuSum::default()), (0.0, 0.0));
    }
}
