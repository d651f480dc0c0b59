//! The families of probes.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Defines the enumeration with its list, its names and what each family sees.
macro_rules! families {
    ($($family:ident = $name:literal: $what:literal,)*) => {
        /// A group of probes that answer one question. Recordings name their families by text, because a later pyobs may
        /// have more.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Family {
            $(#[doc = $what] $family,)*
        }

        impl Family {
            /// In the order in which they are listed everywhere.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$family),*];

            /// The name on the command line, in recordings and in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$family => $name,)*
                }
            }

            /// What it sees, as the beginning of a sentence.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$family => $what,)*
                }
            }
        }
    };
}

families! {
    Cpu = "cpu": "CPU samples",
    OffCpu = "offcpu": "Sleeps of threads",
    Gil = "gil": "Waits for the GIL",
    Eval = "eval": "Calls",
    Arena = "arena": "Arenas",
    Heap = "heap": "Memory by the line that uses it",
    Shm = "shm": "Shared segments",
    Nrt = "nrt": "MemInfos of Numba",
    Ucx = "ucx": "Transfers of UCX",
    Redundancy = "redundancy": "Accesses of native code",
    Tasks = "tasks": "Tasks of event loops",
}

impl Family {
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
