//! The family `nrt`: reference-counted memory of code that Numba compiled.

use crate::record::Header;
use crate::shared;

/// `NRT_DEATH`: the header's thread is about to free a MemInfo.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Death {
    pub header: Header,
    /// The address of the MemInfo.
    pub address: u64,
}

shared!(Death, 48);

/// The offset of the data's address in a MemInfo, and behind it the size. Reference count, destructor and its argument
/// come first, a word each: `struct MemInfo` in
/// <https://github.com/numba/numba/blob/0.60.0/numba/core/runtime/nrt.cpp>.
pub const DATA: u64 = 24;

const SIZE_BITS: u32 = 48;

/// The second word of a birth's detail. Its lower bits have the size of the data. Its upper bits have the distance from
/// the MemInfo to the data, or 0 if the data is not close behind the MemInfo.
#[inline(always)]
pub const fn extent(address: u64, data: u64, size: u64) -> u64 {
    let distance = data.wrapping_sub(address);
    let distance = if distance >> (64 - SIZE_BITS) == 0 { distance } else { 0 };
    if size >> SIZE_BITS == 0 { distance << SIZE_BITS | size } else { (1 << SIZE_BITS) - 1 }
}

/// Returns the address of the data, or 0 if it is not close behind the MemInfo, and its size.
pub const fn data(address: u64, extent: u64) -> (u64, u64) {
    let distance = extent >> SIZE_BITS;
    let data = if distance == 0 { 0 } else { address.wrapping_add(distance) };
    (data, extent & ((1 << SIZE_BITS) - 1))
}
