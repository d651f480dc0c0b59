//! The private memory of a process: which code makes it grow, and what is given back.

use crate::{ProcessRef, StackId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapChange {
    /// The process has grown by `bytes` of anonymous memory since its last `Touched`. The page at `address` represents them.
    /// `stack` was the first to touch it.
    Touched {
        address: u64,
        bytes: u64,
        /// The anonymous memory of the process at that moment.
        anonymous: u64,
        stack: StackId,
    },
    /// `stack` mapped a block for one purpose. Memory touched in the block belongs to that stack.
    Mapped { address: u64, bytes: u64, stack: StackId },
    /// The range was released: pages sampled in it before this event no longer count.
    Freed { address: u64, bytes: u64 },
    /// mremap(2) moved the range to another address.
    Moved { address: u64, bytes: u64, to: u64 },
    /// The process is a fork of another one and begins with a copy of its memory.
    Inherited { parent: ProcessRef },
    /// The resident memory of the process, by kind.
    Counted { anonymous: u64, files: u64, shared: u64 },
}
