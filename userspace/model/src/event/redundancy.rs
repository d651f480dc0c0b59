//! Events of the family `redundancy`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Nanos, ProcessRef, StackId, Tid};

/// What lies at an address. Names are as the watched process has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Touched {
    /// A Python object, with its type's name where it could be read.
    Metadata(Option<Arc<str>>),
    /// The data of an array: `float64 32x256`.
    Array(Arc<str>),
    /// A file's own data.
    Static,
    /// A buffer that nothing is known of.
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

    /// What else is known.
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

/// A sample in native code that Python called, and the memory that it was about to access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    pub stack: StackId,
    /// The samples that it stands for.
    pub weight: u32,
    /// `None` where that is not known.
    pub touched: Option<Touched>,
    pub stores: bool,
    /// The array that the instruction of Python's that it was in takes a single element of: the type of its elements, and its shape.
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

/// Two accesses of one kind to one address, in different native calls of one thread, with none of the other kind between
/// them that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    pub first: StackId,
    pub second: StackId,
    pub kind: PairKind,
    pub touched: Touched,
    /// Of the access, or of a byte of it. `None` where it was not recorded.
    pub address: Option<u64>,
    /// Of the access.
    pub bytes: u64,
    /// The second found or left the value of the first.
    pub equal: bool,
    /// Of stores whose loads were watched, too: nobody read the first.
    pub unread: Option<bool>,
}

/// A native call that Python made, compared with the last one that was seen at the same instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeCall {
    pub at: Nanos,
    pub process: ProcessRef,
    pub tid: Tid,
    pub stack: StackId,
    /// The function, by the name or the type that it has, or the instruction. As the watched process has it.
    pub callee: Arc<str>,
    pub compared: Compared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// A bit for each argument that was another, from the second bit on; the first is for what is called.
    Arguments {
        varying: u16,
    },
    Result {
        same: bool,
    },
}

/// Where addresses of accesses come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampler {
    /// From the instructions behind a sample of the clock.
    #[default]
    Decoded,
    /// From Intel's precise samples of loads and stores.
    Pebs,
    /// From AMD's samples of instructions.
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

/// What the watchpoints came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watchpoints {
    pub sampler: Sampler,
    /// Samples in native code that Python called.
    pub samples: u64,
    /// Of these, those whose address could not be told, or is of no interest.
    pub undecoded: u64,
    pub armed: u64,
    pub traps: u64,
    /// Nobody came to them in their time, or not often enough.
    pub timed_out: u64,
    /// Those that were not to be had: a debugger has them, or another tool.
    pub taken: u64,
    /// Samples that got none because there were too many traps.
    pub storms: u64,
}
