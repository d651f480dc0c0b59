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

/// Where a MemInfo has its data's address and, behind that, size: behind reference count, destructor and its argument, a word
/// each (numba/core/runtime/nrt.cpp, `struct MemInfo`).
pub const DATA: u64 = 24;

const SIZE_BITS: u32 = 48;

/// The second word of a birth's detail: the size of the data, and in the upper bits how far it lies behind the MemInfo, 0
/// where it lies elsewhere.
#[inline(always)]
pub const fn extent(address: u64, data: u64, size: u64) -> u64 {
    let distance = data.wrapping_sub(address);
    let distance = if distance >> (64 - SIZE_BITS) == 0 { distance } else { 0 };
    if size >> SIZE_BITS == 0 { distance << SIZE_BITS | size } else { (1 << SIZE_BITS) - 1 }
}

/// The data's address, 0 where it is not near the MemInfo, and its size.
pub const fn data(address: u64, extent: u64) -> (u64, u64) {
    let distance = extent >> SIZE_BITS;
    let data = if distance == 0 { 0 } else { address.wrapping_add(distance) };
    (data, extent & ((1 << SIZE_BITS) - 1))
}
