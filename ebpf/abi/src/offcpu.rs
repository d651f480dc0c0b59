//! The families `offcpu` and `gil`: a thread went to sleep, and was woken.

use crate::record::{COMM_LEN, Header};
use crate::shared;

/// Of `Sample::detail[0]` in an `OFFCPU_SLEEP`: the number of the system call in the lower half ([`NO_CALL`] where it is
/// none, as for a page that has to be read), these above. `detail[1]` is the number of the thread's [`Place`].
pub mod detail {
    /// The system call's first argument is 0: select() of nothing is a sleep.
    pub const FIRST_ARGUMENT_ZERO: u64 = 1 << 32;
    /// It waits for the GIL.
    pub const GIL: u64 = 1 << 33;
}

pub const NO_CALL: u32 = u32::MAX;

/// `OFFCPU_WAKE`: what a thread has slept at one [`Place`] since it was told of last. The header's pid and tid are the
/// sleeper's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// Its time is that of the last wake-up.
    pub header: Header,
    /// When the last sleep began; 0 where it was told of before.
    pub since: u64,
    /// [`Place::stack`].
    pub stack: u64,
    /// [`Place::total`] and [`Place::count`].
    pub total: u64,
    pub count: u32,
    pub padding: u32,
    /// Who ended the last sleep; 0 for the kernel's own doing, such as a timer.
    pub waker_pid: u32,
    pub waker_tid: u32,
    pub waker_comm: [u8; COMM_LEN],
}

shared!(Wake, 96);

/// Places whose sleeps a thread keeps apart; a power of two.
pub const PLACES: usize = 8;

/// Where in its program a thread sleeps: the system call, its first argument, and the innermost Python frame's instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// A hash of these; 0 for none.
    pub key: u32,
    /// Sleeps that have not been told of, and how long they were in nanoseconds. Those that were passed over count as the one
    /// that was looked at after them.
    pub count: u32,
    pub total: u64,
    /// The time of the `OFFCPU_SLEEP` with the stack that they are told with.
    pub stack: u64,
}

/// The value of the array `SLEEPS`: a thread, in the element that its tid stands for.
///
/// What is written at each sleep that is passed over lies a cache line away from what is looked at by who wakes the thread,
/// of this element and of the next one: else the line would go from CPU to CPU at each switch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sleeper {
    /// How many of its next sleeps are passed over, how many were since one was looked at, and how many had been when the
    /// present one was. None are while [`SLEEP_GAP`](crate::control::SLEEP_GAP) is 0.
    pub left: u32,
    pub passed: u32,
    pub missed: u32,
    pub padding: u32,
    /// When the sleep that was looked at last began, and in which of the kernel's ticks (jiffies), and when it ended.
    pub looked: u64,
    pub looked_tick: u64,
    pub ended: u64,
    pub places: [Place; PLACES],
    pub tid: u32,
    pub pid: u32,
    /// When it went to sleep; 0 while it does not.
    pub since: u64,
    /// When it was woken; 0 while it was not.
    pub woken: u64,
    /// Which of its places it sleeps at, or slept at last.
    pub place: u32,
    /// Not 0 when the stack was taken for the present sleep, whose end is told at once then.
    pub fresh: u32,
    /// Up to when its stacks have been paid for: each costs `SLEEP_PERIOD` of the thread's time.
    pub paid: u64,
    pub waker_pid: u32,
    pub waker_tid: u32,
    pub waker_comm: [u8; COMM_LEN],
    pub apart: [u64; 3],
}

shared!(Sleeper, 320);

/// Elements of the array `SLEEPS`; a power of two. Tids are given out one after the other, so that two live threads
/// seldom share a place.
pub const SLEEPERS: u32 = 32_768;
