//! The key by which two probes of one function call find each other.

use crate::shared;

/// A call that has not returned: the probe at the function's end builds the same key as the one at its beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The kernel's tgid in the upper half, its pid in the lower.
    pub thread: u64,
    /// The address of the return address.
    pub stack: u64,
}

shared!(Call, 16);
