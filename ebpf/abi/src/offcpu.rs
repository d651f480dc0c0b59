//! The families `offcpu` and `gil`: a thread went to sleep, and was woken.

use crate::record::{COMM_LEN, Header};
use crate::shared;

/// `Sample::detail[0]` of an `OFFCPU_SLEEP`, and [`Slot::detail`]: the lower half is the number of the system call
/// ([`NO_CALL`] outside of one, as for a page that has to be read), and the upper half has these flags. `detail[1]` of the
/// sample is [`Slot::born`].
pub mod detail {
    /// The system call's first argument is 0: select() of nothing is a sleep.
    pub const FIRST_ARGUMENT_ZERO: u64 = 1 << 32;
    /// It waits for the GIL.
    pub const GIL: u64 = 1 << 33;
}

pub const NO_CALL: u32 = u32::MAX;

/// The chance of a sleep whose stack is always taken. Chances are in units of 2^-32.
pub const ALWAYS: u32 = u32::MAX;

/// `OFFCPU_WAKE`: the sums of one [`Slot`]. The header's pid and tid are the sleeper's, its time is that of the last wake-up.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    pub header: Header,
    /// When the sleep that just ended began, if its stack was taken; else 0.
    pub since: u64,
    /// [`Slot::born`], [`Slot::detail`], [`Slot::total`] and [`Slot::count`].
    pub born: u64,
    pub detail: u64,
    pub total: u64,
    pub count: u32,
    /// The chance that the sleep that just ended had of having its stack taken.
    pub chance: u32,
    /// [`Slot::longest`].
    pub longest: u64,
    /// Who ended the sleep; 0 if the kernel did, as for a timer.
    pub waker_pid: u32,
    pub waker_tid: u32,
    pub waker_comm: [u8; COMM_LEN],
}

shared!(Wake, 112);

/// Slots of a thread; a power of two.
pub const SLOTS: usize = 8;

/// The sleeps of a thread that are alike as far as its registers tell: the same system call with the same first argument at
/// the same depth of the stack, or waits for the GIL. The sums only grow, so that a record that is lost loses nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The chance of the next sleep.
    pub chance: u32,
    /// Stacks taken since `born`.
    pub taken: u32,
    /// Nanoseconds slept since `born`.
    pub total: u64,
    /// The longest sleep since the last `OFFCPU_WAKE` of this slot.
    pub longest: u64,
    /// When the slot was taken, which names it: no other slot of the thread has the same.
    pub born: u64,
    pub detail: u64,
    /// Sleeps since `born`.
    pub count: u32,
    /// Their length, as a moving average in nanoseconds that stops at [`u32::MAX`].
    pub mean: u32,
    /// When it was last used, in units of 2^20 ns.
    pub used: u32,
    /// When `chance` was last reckoned, in units of 2^10 ns.
    pub reckoned: u32,
    /// `count` in the last `OFFCPU_WAKE`.
    pub told: u32,
    pub padding: u32,
}

shared!(Slot, 64);

/// The value of the array `SLEEPS`: a thread, at the index `tid % SLEEPERS`.
///
/// The array's elements begin at cache lines. An ordinary sleep touches the first line when it begins and when it ends, the
/// second when it begins, and that of its slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sleeper {
    pub tid: u32,
    pub pid: u32,
    /// When it went to sleep; 0 while it is awake.
    pub since: u64,
    /// The kernel's tick (jiffies) in which it was woken; 0 before.
    pub woken: u64,
    /// Up to which tick `is_watched` needs no look at the table of processes.
    pub checked_until: u64,
    pub is_watched: u16,
    /// The slot of the present sleep, or of the last.
    pub slot: u16,
    /// The chance that the present sleep had, if its stack was taken; else 0.
    pub fresh: u32,
    /// The state of a generator of random numbers.
    pub random: u32,
    /// Sleeps on a futex that is not known to be the GIL's.
    pub tries: u32,
    /// The range of addresses that waiters for the GIL sleep on.
    pub gil_start: u64,
    pub gil_size: u32,
    /// When a slot was last given to another key, in units of 2^20 ns.
    pub evicted: u32,
    /// For each slot a hash of what its sleeps have in common; 0 for a free slot.
    pub keys: [u32; SLOTS],
    /// The GIL that the thread waits for; 0 if it is not known.
    pub gil: u64,
    pub waker_pid: u32,
    pub waker_tid: u32,
    pub waker_comm: [u8; COMM_LEN],
    pub slots: [Slot; SLOTS],
}

shared!(Sleeper, 640);

/// Elements of the array `SLEEPS`; a power of two. Tids are given out one after the other, so that two live threads
/// seldom share an element.
pub const SLEEPERS: u32 = 32_768;
