//! The families `offcpu` and `gil`: a thread went to sleep, and was woken.

use crate::record::{COMM_LEN, Header};
use crate::shared;

/// Of `Sample::detail[0]` in an `OFFCPU_SLEEP`: the number of the system call in the lower half ([`NO_CALL`] where it is
/// none, as for a page that has to be read), these above.
pub mod detail {
    /// The system call's first argument is 0: select() of nothing is a sleep.
    pub const FIRST_ARGUMENT_ZERO: u64 = 1 << 32;
    /// It waits for the GIL.
    pub const GIL: u64 = 1 << 33;
}

pub const NO_CALL: u32 = u32::MAX;

/// A weight of 1, in `Sample::detail[1]` and [`Wake::weight`].
pub const WEIGHT_ONE: u64 = 1024;
/// A sleep stands for no more than so many others.
pub const WEIGHT_MAX: u64 = 1024 * WEIGHT_ONE;

/// Kinds of waits whose usual length a thread remembers; the last is the GIL.
pub const CLASSES: usize = 8;
pub const CLASS_GIL: usize = CLASSES - 1;

/// `OFFCPU_WAKE`: a thread whose `OFFCPU_SLEEP` was sent runs again. The header's time is that of the wake-up, its pid
/// and tid are the sleeper's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    pub header: Header,
    /// The time of the `OFFCPU_SLEEP`.
    pub since: u64,
    pub weight: u64,
    /// Who woke it; 0 for the kernel's own doing, such as a timer.
    pub waker_pid: u32,
    pub waker_tid: u32,
    pub waker_comm: [u8; COMM_LEN],
}

shared!(Wake, 80);

/// The value of the array `SLEEPS`: a thread, in the place that its tid stands for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sleeper {
    pub tid: u32,
    pub pid: u32,
    /// When it went to sleep; 0 while it does not.
    pub since: u64,
    /// When it was woken; 0 while it was not.
    pub woken: u64,
    /// What its sleep stands for; 0 when its stack was not taken.
    pub weight: u64,
    pub waker_pid: u32,
    pub waker_tid: u32,
    pub waker_comm: [u8; COMM_LEN],
    pub class: u32,
    pub padding: u32,
    /// How long sleeps of each class usually are, in nanoseconds; 0 for none seen yet.
    pub usual: [u64; CLASSES],
}

shared!(Sleeper, 128);

/// Elements of the array `SLEEPS`; a power of two. Tids are given out one after the other, so that two live threads
/// seldom share a place.
pub const SLEEPERS: u32 = 32_768;
