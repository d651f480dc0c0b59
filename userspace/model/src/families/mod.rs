//! One correlator per probe family: what its events add up to.

pub mod arena;
mod clip;
pub mod cpu;
mod ended;
pub mod eval;
pub mod gil;
mod lengths;
pub mod nrt;
pub mod offcpu;
mod past;
mod places;
pub mod redundancy;
pub mod shm;
pub mod ucx;

use ended::Ended;
pub use ended::Forgotten;
pub use lengths::Lengths;
use past::{Past, Timed};
use places::{Places, Summed};

use crate::Nanos;

/// Things that take time, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub count: u64,
    pub total: Nanos,
    /// The longest of them.
    pub max: Nanos,
}

impl Times {
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.total = self.total.saturating_add(other.total);
        self.max = self.max.max(other.max);
    }

    /// Raises the longest to the mean: an estimated maximum can be below it.
    pub fn settled(self) -> Self {
        let mean = Nanos(self.total.0.div_ceil(self.count.max(1)));
        if self.count == 0 { self } else { Self { max: self.max.max(mean), ..self } }
    }
}

/// How well a figure that rests on sampled stacks is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    pub stacks: u64,
    /// Sleeps whose stacks were not taken, and whose time is split over stacks by estimate.
    pub unseen: u64,
}

impl Sampled {
    /// The lots are drawn so that each stack stands for about the same time. Then the number of stacks at one place is Poisson
    /// distributed, and of `n` stacks the relative standard error is `1 / sqrt(n)`: over 30 % for less than 12.
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
