//! The families of probes.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A group of probes that answer one question. Recordings name their families by text, because a later pyobs may have
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Samples of CPU time.
    Cpu,
    /// Sleeps of threads.
    OffCpu,
    /// Waits for the GIL.
    Gil,
    /// Calls of Python functions.
    Eval,
    /// Arenas of CPython's allocator, and of libraries.
    Arena,
    /// Shared memory.
    Shm,
    /// Numba's MemInfos.
    Nrt,
    /// Transfers of UCX and UCXX.
    Ucx,
    /// Redundant loads, stores and calls.
    Redundancy,
}

impl Family {
    /// In the order in which they are listed everywhere.
    pub const ALL: [Self; 9] = [
        Self::Cpu,
        Self::OffCpu,
        Self::Gil,
        Self::Eval,
        Self::Arena,
        Self::Shm,
        Self::Nrt,
        Self::Ucx,
        Self::Redundancy,
    ];

    /// The name on the command line, in recordings and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::OffCpu => "offcpu",
            Self::Gil => "gil",
            Self::Eval => "eval",
            Self::Arena => "arena",
            Self::Shm => "shm",
            Self::Nrt => "nrt",
            Self::Ucx => "ucx",
            Self::Redundancy => "redundancy",
        }
    }

    pub fn names() -> Vec<String> {
        Self::ALL.map(|family| family.name().to_owned()).to_vec()
    }
}

/// No family has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

impl FromStr for Family {
    type Err = Unknown;

    fn from_str(name: &str) -> Result<Self, Unknown> {
        Self::ALL.into_iter().find(|family| family.name() == name).ok_or(Unknown)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
