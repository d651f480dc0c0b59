//! The family `nrt`: memory that code compiled by Numba counts references of.

use crate::record::Header;
use crate::shared;

/// `NRT_DEATH`: the header's thread is going to free a MemInfo.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Death {
    pub header: Header,
    /// Of the MemInfo.
    pub address: u64,
}

shared!(Death, 48);

/// Where a MemInfo has the size of its data: behind reference count, destructor, its argument and the data's address, a word
/// each (numba/core/runtime/nrt.cpp, `struct MemInfo`).
pub const SIZE: u64 = 32;
