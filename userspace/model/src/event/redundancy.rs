//! Events of the family `redundancy`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Nanos, ProcessRef, StackId, Tid};

/// What lies at an address. Names come unmodified from the watched process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Touched {
    /// A Python object, with the name of its type if it could be read.
    Metadata(Option<Arc<str>>),
    /// The data of an array, described as in `float64 32x256`.
    Array(Arc<str>),
    /// Data of a mapped file.
    Static,
    /// Memory about which nothing is known.
    Unknown,
}

impl Touched {
    /// The name in JSON, recordings and on screens.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Metadata(_) => "metadata",
            Self::Array(_) => "array",
            Self::Static => "static",
            Self::Unknown => "unknown",
        }
    }

    /// The type of an object, or the shape of an array.
    pub fn detail(&self) -> Option<&Arc<str>> {
        match self {
            Self::Metadata(name) => name.as_ref(),
            Self::Array(shape) => Some(shape),
            Self::Static | Self::Unknown => None,
        }
    }

    pub fn from_name(name: &str, detail: Option<Arc<str>>) -> Option<Self> {
        match name {
            "metadata" => Some(Self::Metadata(detail)),
            "array" => Some(Self::Array(detail.unwrap_or_default())),
            "static" => Some(Self::Static),
            "unknown" => Some(Self::Unknown),
            _ => None,
        }
    }
}

/// A sample in native code that Python called, with the memory it was about to access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    pub stack: StackId,
    /// The number of samples that it represents.
    pub weight: u32,
    /// `None` if unknown.
    pub touched: Option<Touched>,
    pub stores: bool,
    /// Set if the sample is inside a Python instruction that reads or writes a single element of an array: the element type
    /// and shape of that array.
    pub element_of: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PairKind {
    Load,
    Store,
}

impl PairKind {
    /// The name in JSON, recordings and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Store => "store",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Load, Self::Store].into_iter().find(|kind| kind.name() == name)
    }
}

/// Two accesses of the same kind to one address, in different native calls of one thread, with no relevant access of
/// the other kind in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    pub first: StackId,
    pub second: StackId,
    pub kind: PairKind,
    pub touched: Touched,
    /// Address of the access, or of a byte in it. `None` if it was not recorded.
    pub address: Option<u64>,
    /// How many bytes of the access were compared: 1 to 8.
    pub bytes: u64,
    /// The second access read or left the same value as the first.
    pub equal: bool,
    /// For stores whose loads were watched too: whether nobody read the first value.
    pub unread: Option<bool>,
}

/// Which Python code makes a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CalledBy {
    /// The innermost frame of the stack.
    #[default]
    Innermost,
    /// The innermost frame of the program's own code, and the callee is part of a package.
    Program,
    /// A library, and the callee is a function of the program.
    Library,
}

impl CalledBy {
    /// The name in recordings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Innermost => "innermost",
            Self::Program => "program",
            Self::Library => "library",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Innermost, Self::Program, Self::Library].into_iter().find(|by| by.name() == name)
    }
}

/// A call made by Python, compared with the last call seen at the same instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeCall {
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    pub stack: StackId,
    /// The callee's name or type if it has one, otherwise the instruction. Comes unmodified from the watched process.
    pub callee: Arc<str>,
    pub called_by: CalledBy,
    pub compared: Compared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// A bit for each argument that differed, starting at the second bit. The first bit stands for the callee.
    Arguments {
        varying: u16,
    },
    Result {
        same: bool,
    },
    /// Not compared: it joins a few arrays into a new one. The sizes of the largest and of all others, in bytes.
    Copied {
        copied: u64,
        added: u64,
    },
    /// Not compared: it is called in a loop, and this is how long that number of turns took, from one result to the next. A
    /// result has this many bytes of data, if that is known.
    Turns {
        count: u32,
        time: Nanos,
        bytes: Option<u64>,
    },
}

/// Where the addresses of accesses come from. Only recordings up to 2026-11-28 have the
/// processor's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampler {
    /// Decoded from the instructions around a clock sample.
    #[default]
    Decoded,
    /// Intel's precise samples of loads and stores (PEBS).
    Pebs,
    /// AMD's instruction samples (IBS).
    Ibs,
}

impl Sampler {
    /// The name in JSON, recordings and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Decoded => "decoded",
            Self::Pebs => "pebs",
            Self::Ibs => "ibs",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Decoded, Self::Pebs, Self::Ibs].into_iter().find(|sampler| sampler.name() == name)
    }
}

/// Counts of watchpoints and of the samples that led to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watchpoints {
    pub sampler: Sampler,
    /// Samples in native code called by Python.
    pub samples: u64,
    /// Samples whose address could not be decoded, or is of no interest.
    pub undecoded: u64,
    pub armed: u64,
    pub traps: u64,
    /// Watchpoints that were not hit in time, or not often enough.
    pub timed_out: u64,
    /// Watchpoints that were unavailable because a debugger or another tool holds them.
    pub taken: u64,
    /// Samples that got no watchpoint because there were too many traps.
    pub storms: u64,
}
