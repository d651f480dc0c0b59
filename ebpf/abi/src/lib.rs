//! The records that the kernel side and user space share: one file per family, `#[repr(C)]`, explicit padding, sizes
//! asserted at compile time. Integers instead of enums and bools, so that any bytes are a valid value.
#![no_std]

pub mod arena;
pub mod calls;
pub mod code;
pub mod control;
pub mod copy;
pub mod eval;
pub mod nrt;
pub mod offcpu;
pub mod process;
pub mod record;
pub mod redundancy;
pub mod shm;
pub mod stack;
pub mod ucx;
pub mod unwind;

/// Lets user space put a shared type into a map, and checks its size on both sides.
macro_rules! shared {
    ($type:ty, $size:expr) => {
        const _: () = assert!(core::mem::size_of::<$type>() == $size);
        // SAFETY: `repr(C)`, only integers, no padding (the size assertion above is the sum of the fields' sizes).
        #[cfg(feature = "user")]
        unsafe impl aya::Pod for $type {}
    };
}
pub(crate) use shared;
