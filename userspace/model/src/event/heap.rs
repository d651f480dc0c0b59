//! The private memory of a process: which code makes it grow, and what is given back.

use crate::{ProcessRef, StackId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapChange {
    /// The process has grown by so many bytes of anonymous memory since its last such event. The page at this address
    /// represents them, and the stack touched it first.
    Touched {
        address: u64,
        bytes: u64,
        /// All anonymous memory that the process had then.
        anonymous: u64,
        stack: StackId,
    },
    /// A block of addresses was mapped for one purpose. What is touched in it belongs to this stack.
    Mapped { address: u64, bytes: u64, stack: StackId },
    /// What was touched in this range before has been given back.
    Freed { address: u64, bytes: u64 },
    /// The memory in this range is now elsewhere.
    Moved { address: u64, bytes: u64, to: u64 },
    /// The process is a fork of another one and begins with a copy of its memory.
    Inherited { parent: ProcessRef },
    /// The resident memory of the process, by kind.
    Counted { anonymous: u64, files: u64, shared: u64 },
}
