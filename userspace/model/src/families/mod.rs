//! One correlator per probe family: what its events add up to.

pub mod arena;
pub mod cpu;
mod ended;
pub mod eval;
pub mod gil;
pub mod nrt;
pub mod offcpu;
mod past;
pub mod redundancy;
pub mod shm;
pub mod ucx;

use ended::Ended;
pub use ended::Forgotten;
use past::{Past, Timed};

use crate::Nanos;

/// The probe families, in the order in which they are listed everywhere.
pub const NAMES: &[&str] = &["cpu", "offcpu", "gil", "eval", "arena", "shm", "nrt", "ucx", "redundancy"];

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
}
