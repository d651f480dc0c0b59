//! One correlator per probe family, which sums its events.

pub mod arena;
mod clip;
pub mod cpu;
mod ended;
pub mod eval;
pub mod gil;
pub mod heap;
mod lengths;
pub mod limits;
pub mod machine;
pub mod nrt;
pub mod offcpu;
mod past;
mod places;
pub mod redundancy;
pub mod shm;
pub mod tasks;
pub mod turns;
pub mod ucx;

use ended::Ended;
pub use ended::Forgotten;
pub use lengths::LengthSum;
use past::{Past, Timed};
use places::{Places, Summed};

use crate::Nanos;

/// A count of durations, their sum and their maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub count: u64,
    pub total: Nanos,
    pub max: Nanos,
}

impl Times {
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.total = self.total.saturating_add(other.total);
        self.max = self.max.max(other.max);
    }

    /// Raises the maximum to the mean. An estimated maximum can be below it.
    pub fn settled(self) -> Self {
        let mean = Nanos(self.total.0.div_ceil(self.count.max(1)));
        if self.count == 0 { self } else { Self { max: self.max.max(mean), ..self } }
    }
}

/// How reliable a figure from sampled stacks is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    pub stacks: u64,
    /// Sleeps whose stacks were not taken. Their time is split over the sampled stacks by estimate.
    pub unseen: u64,
}

impl Sampled {
    /// Stacks are drawn so that each stands for about the same time. Then the number of stacks at one place is Poisson
    /// distributed, and `n` stacks have a relative standard error of `1 / sqrt(n)`: over 30 % for fewer than 12.
    const LEAST: u64 = 12;

    pub fn add(&mut self, other: Self) {
        self.stacks = self.stacks.saturating_add(other.stacks);
        self.unseen = self.unseen.saturating_add(other.unseen);
    }

    /// Whether every sleep has its own stack, so that nothing is estimated.
    pub fn is_exact(self) -> bool {
        self.unseen == 0
    }

    /// Whether the figure is exact, or its relative standard error is at most 30 %.
    pub fn is_enough(self) -> bool {
        self.is_exact() || self.stacks >= Self::LEAST
    }

    /// The relative standard error; 0 if the figure is exact.
    pub fn error(self) -> f64 {
        if self.is_exact() { 0.0 } else { 1.0 / (self.stacks.max(1) as f64).sqrt() }
    }
}
