//! The family `cpu`: a sample of what a CPU was doing.

use crate::record::Header;
use crate::shared;

/// The sample hit kernel mode.
pub const KERNEL_MODE: u32 = 1;

/// How the walk of the Python frames ended.
pub mod walk {
    /// The thread has no Python frames.
    pub const NO_PYTHON: u32 = 0;
    pub const COMPLETE: u32 = 1;
    pub const TRUNCATED: u32 = 2;
    pub const THREAD_STATE_UNREADABLE: u32 = 3;
    pub const FRAME_UNREADABLE: u32 = 4;
    /// A frame without a code object.
    pub const FRAME_INVALID: u32 = 5;
}

/// Followed in the ring by `kernel_frames` addresses, then by `frames` [`crate::stack::Frame`]s; both leaf first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSample {
    pub header: Header,
    /// Where user space was, or would go on.
    pub user_pc: u64,
    pub flags: u32,
    /// One of [`walk`].
    pub walk: u32,
    pub kernel_frames: u32,
    pub frames: u32,
}

shared!(CpuSample, 64);
