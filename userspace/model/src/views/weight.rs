//! What the size of a frame stands for.

use crate::Family;
use std::collections::BTreeMap;
use std::fmt;

use super::{held, own_line};
use crate::{Model, Nanos, Place, Selection};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Weight {
    /// Nanoseconds of CPU time.
    #[default]
    Cpu,
    /// Nanoseconds that threads slept, for whatever reason.
    OffCpu,
    /// Nanoseconds that threads waited for the GIL; the stacks are the waiters'.
    Gil,
    /// Samples in native code that changed nothing: in dispatch, and in stores of what was there.
    Redundant,
    /// Bytes of arenas, segments and MemInfos that were not given back; the stacks are of who made them.
    Bytes,
}

/// What a weight is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Samples,
    Nanoseconds,
    Bytes,
}

/// When an event was, or ended, where, and what it weighs.
pub type Piece = (Nanos, Place, u64);

impl Weight {
    pub const ALL: [Self; 5] = [Self::Cpu, Self::OffCpu, Self::Gil, Self::Redundant, Self::Bytes];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::OffCpu => "offcpu",
            Self::Gil => "gil",
            Self::Redundant => "redundant",
            Self::Bytes => "bytes",
        }
    }

    /// The families whose events it adds up, the usual one first.
    pub fn families(self) -> &'static [Family] {
        match self {
            Self::Cpu => &[Family::Cpu],
            Self::OffCpu => &[Family::OffCpu],
            Self::Gil => &[Family::Gil],
            Self::Redundant => &[Family::Redundancy],
            Self::Bytes => &[Family::Arena, Family::Shm, Family::Nrt],
        }
    }

    pub fn unit(self) -> Unit {
        match self {
            Self::Redundant => Unit::Samples,
            Self::Cpu | Self::OffCpu | Self::Gil => Unit::Nanoseconds,
            Self::Bytes => Unit::Bytes,
        }
    }

    /// Whether any of its families was on.
    pub fn is_known(self, model: &Model) -> bool {
        self.families().iter().any(|family| model.is_on(*family))
    }

    /// What the selected events weigh; of each family the oldest first.
    pub fn pieces<'a>(self, model: &'a Model, selection: &'a Selection) -> Box<dyn Iterator<Item = Piece> + 'a> {
        match self {
            Self::Cpu => {
                Box::new(model.cpu().selected(selection).map(|sample| (sample.at, sample.place(), sample.weight.0)))
            }
            Self::OffCpu => {
                Box::new(model.offcpu().sleeps(selection).map(|sleep| (sleep.at, sleep.place(), sleep.total.0)))
            }
            Self::Gil => Box::new(model.gil().waits(selection).map(|wait| (wait.at, wait.place(), wait.total.0))),
            Self::Redundant => Box::new(model.redundancy().redundant(selection, |stack| own_line(model, stack))),
            Self::Bytes => Box::new(held::held(model, selection)),
        }
    }

    /// What the selected events weigh together, by stack.
    pub fn sums(self, model: &Model, selection: &Selection) -> BTreeMap<Place, u64> {
        if self == Self::Cpu {
            return model.cpu().sums(selection).into_iter().map(|(place, sum)| (place, sum.time.0)).collect();
        }
        let mut sums: BTreeMap<Place, u64> = BTreeMap::new();
        let mut put = |place, weight| add(sums.entry(place).or_default(), weight);
        match self {
            Self::OffCpu => {
                let sleeps = model.offcpu().sums(selection).into_iter();
                sleeps.for_each(|(key, sum)| put(key.place, sum.times.total.0));
            }
            Self::Gil => {
                let waits = model.gil().sums(selection).into_iter();
                waits.for_each(|(key, sum)| put(key.waiter, sum.times.total.0));
            }
            Self::Cpu | Self::Redundant | Self::Bytes => {
                self.pieces(model, selection).for_each(|(_, place, weight)| put(place, weight));
            }
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
