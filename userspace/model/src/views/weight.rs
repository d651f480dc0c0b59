//! What the width of a frame represents.

use crate::Family;
use std::collections::BTreeMap;
use std::fmt;

use super::{calling_line, held};
use crate::{Model, Nanos, Place, Selection};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Weight {
    /// Nanoseconds of CPU time.
    #[default]
    Cpu,
    /// Nanoseconds that threads slept, for any reason.
    OffCpu,
    /// Nanoseconds that threads waited for the GIL. The stacks are the waiters'.
    Gil,
    /// Redundant samples in native code: dispatch, and stores that left the value unchanged.
    Redundant,
    /// Bytes of memory that was not freed, by the stacks that made it or use it.
    Bytes,
}

/// The unit of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Samples,
    Nanoseconds,
    Bytes,
}

/// When an event happened or ended, where, and its weight.
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

    /// The families whose events it sums, the main one first.
    pub fn families(self) -> &'static [Family] {
        match self {
            Self::Cpu => &[Family::Cpu],
            Self::OffCpu => &[Family::OffCpu],
            Self::Gil => &[Family::Gil],
            Self::Redundant => &[Family::Redundancy],
            Self::Bytes => &[Family::Heap, Family::Arena, Family::Shm, Family::Nrt],
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

    /// The weight of each selected event, oldest first within a family.
    pub fn pieces<'a>(self, model: &'a Model, selection: &'a Selection) -> Box<dyn Iterator<Item = Piece> + 'a> {
        match self {
            Self::Cpu => {
                Box::new(model.cpu().selected(selection).map(|sample| (sample.at, sample.place(), sample.weight.0)))
            }
            Self::OffCpu => {
                Box::new(model.offcpu().sleeps(selection).map(|sleep| (sleep.at, sleep.place(), sleep.total.0)))
            }
            Self::Gil => Box::new(model.gil().waits(selection).map(|wait| (wait.at, wait.place(), wait.total.0))),
            Self::Redundant => Box::new(model.redundancy().redundant(selection, |stack| calling_line(model, stack))),
            Self::Bytes => Box::new(held::held(model, selection)),
        }
    }

    /// Sums of the weights of the selected events, by stack.
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
                if self == Self::Redundant {
                    let sums = model.redundancy().redundant_sums(selection, |stack| calling_line(model, stack));
                    sums.for_each(|(place, weight)| put(place, weight));
                }
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

/// A recording may contain any numbers, so sums saturate.
pub(super) fn add(sum: &mut u64, weight: u64) {
    *sum = sum.saturating_add(weight);
}
