//! The records and map values that the kernel side and user space share, one file per family.
//!
//! Types are `#[repr(C)]` with explicit padding, and their sizes are asserted at compile time. They hold integers
//! instead of enums and bools, so any bytes are a valid value.
#![no_std]

pub mod arena;
pub mod calls;
pub mod code;
pub mod control;
pub mod copy;
pub mod dump;
pub mod eval;
pub mod hash;
pub mod heap;
pub mod nrt;
pub mod offcpu;
pub mod probe;
pub mod process;
pub mod record;
pub mod redundancy;
pub mod shm;
pub mod stack;
pub mod ucx;
pub mod unwind;

/// A type whose bytes can be copied out of the kernel, and read back from any bytes.
///
/// # Safety
/// The type is `repr(C)`, holds only integers, and has no padding.
pub unsafe trait Shared: Copy {}

/// Marks a type as [`Shared`], checks its size on both sides, and lets user space put it into a map.
macro_rules! shared {
    ($type:ty, $size:expr) => {
        const _: () = assert!(core::mem::size_of::<$type>() == $size);
        // SAFETY: `repr(C)` and only integers; the asserted size is the sum of the fields' sizes, so there is no
        // padding.
        unsafe impl $crate::Shared for $type {}
        // SAFETY: as above.
        #[cfg(feature = "user")]
        unsafe impl aya::Pod for $type {}
    };
}
pub(crate) use shared;
