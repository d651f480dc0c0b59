//! What the size of a frame stands for.

use std::collections::BTreeMap;
use std::fmt;

use super::own_line;
use crate::{Model, Nanos, Place, Selection};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Weight {
    /// Samples.
    #[default]
    Cpu,
    /// Nanoseconds that threads slept, for whatever reason.
    OffCpu,
    /// Nanoseconds that threads waited for the GIL; the stacks are the waiters'.
    Gil,
    /// Samples in native code that changed nothing: in dispatch, and in stores of what was there.
    Redundant,
}

impl Weight {
    pub const ALL: [Self; 4] = [Self::Cpu, Self::OffCpu, Self::Gil, Self::Redundant];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::OffCpu => "offcpu",
            Self::Gil => "gil",
            Self::Redundant => "redundant",
        }
    }

    /// The family whose events it adds up.
    pub fn family(self) -> &'static str {
        if self == Self::Redundant { "redundancy" } else { self.name() }
    }

    /// In nanoseconds, rather than samples.
    pub fn is_time(self) -> bool {
        match self {
            Self::Cpu | Self::Redundant => false,
            Self::OffCpu | Self::Gil => true,
        }
    }

    /// Whether its family was on.
    pub fn is_known(self, model: &Model) -> bool {
        model.is_on(self.family())
    }

    /// What the selected events weigh, and when they were, or ended; oldest first.
    pub fn pieces<'a>(
        self,
        model: &'a Model,
        selection: &'a Selection,
    ) -> Box<dyn Iterator<Item = (Nanos, Place, u64)> + 'a> {
        match self {
            Self::Cpu => Box::new(model.cpu().selected(selection).map(|sample| (sample.at, sample.place(), 1))),
            Self::OffCpu => {
                Box::new(model.offcpu().sleeps(selection).map(|sleep| (sleep.at, sleep.place(), sleep.total.0)))
            }
            Self::Gil => Box::new(model.gil().waits(selection).map(|wait| (wait.at, wait.place(), wait.total.0))),
            Self::Redundant => Box::new(model.redundancy().redundant(selection, |stack| own_line(model, stack))),
        }
    }

    /// What the selected events weigh together, by stack.
    pub fn sums(self, model: &Model, selection: &Selection) -> BTreeMap<Place, u64> {
        if self == Self::Cpu {
            return model.cpu().sums(selection).into_iter().collect();
        }
        let mut sums: BTreeMap<Place, u64> = BTreeMap::new();
        for (_, place, weight) in self.pieces(model, selection) {
            add(sums.entry(place).or_default(), weight);
        }
        sums
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A recording may hold any number.
pub(super) fn add(sum: &mut u64, weight: u64) {
    *sum = sum.saturating_add(weight);
}
