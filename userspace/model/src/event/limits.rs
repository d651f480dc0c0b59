//! What control groups may use, and what they used.

use std::sync::Arc;

use serde::Serialize;

use crate::Nanos;

/// The limits of a control group that has one. All counts and sums begin when the group was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub at: Nanos,
    /// From the root of the hierarchy, as in [`Placement`](super::Placement).
    pub cgroup: Arc<str>,
    pub cpu: Option<CpuLimit>,
    pub memory: Option<MemoryLimit>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuLimit {
    /// CPU time that the group may use in each period.
    pub quota: Nanos,
    pub period: Nanos,
    /// Periods in which the group ran, and those in which it used its quota up.
    pub periods: u64,
    pub throttled_periods: u64,
    /// Time for which threads had to wait for the next period, summed over CPUs.
    pub throttled: Nanos,
}

impl CpuLimit {
    /// The limit in CPUs.
    pub fn cpus(self) -> f64 {
        self.quota.0 as f64 / self.period.0.max(1) as f64
    }

    /// The share of the periods in which the group used its quota up.
    pub fn throttled_share(self) -> f64 {
        self.throttled_periods as f64 / self.periods.max(1) as f64
    }

    /// What was added since an earlier state.
    pub fn since(self, before: Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(before.periods),
            throttled_periods: self.throttled_periods.saturating_sub(before.throttled_periods),
            throttled: self.throttled.saturating_sub(before.throttled),
            ..self
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryLimit {
    pub limit_bytes: u64,
    /// Memory that counts towards the limit, without pages of files that the kernel can drop at once.
    pub used_bytes: u64,
    /// Processes that the kernel killed because the group's memory was used up.
    pub killed: u64,
}
