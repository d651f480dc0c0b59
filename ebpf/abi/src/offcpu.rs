//! The families `offcpu` and `gil`: a thread went to sleep, and was woken.

use crate::record::{COMM_LEN, Header};
use crate::shared;

/// `Sample::detail[0]` of an `OFFCPU_SLEEP`, and [`Slot::detail`]. The lower half is the number of the system call, or
/// [`NO_CALL`] outside of one, as for a page fault. The upper half has these flags. `Sample::detail[1]` is
/// [`Slot::born`].
pub mod detail {
    /// The first argument of the system call is 0. This tells a sleep by select() from one that waits for something.
    pub const FIRST_ARGUMENT_ZERO: u64 = 1 << 32;
    /// The thread waits for the GIL.
    pub const GIL: u64 = 1 << 33;
    /// The thread is not asleep: its control group has used up its CPU limit. The lower half is [`NO_CALL`](super::NO_CALL).
    pub const THROTTLED: u64 = 1 << 34;
}

pub const NO_CALL: u32 = u32::MAX;

/// The probability of a sleep whose stack is always taken. Probabilities are in units of 2^-32.
pub const ALWAYS: u32 = u32::MAX;

/// `OFFCPU_WAKE`: the sums of one [`Slot`]. The header has the pid and tid of the sleeper, and the time of its last
/// wake-up.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    pub header: Header,
    /// When the last sleep began, if its stack was taken; else 0.
    pub since: u64,
    /// [`Slot::born`], [`Slot::detail`], [`Slot::total`] and [`Slot::count`].
    pub born: u64,
    pub detail: u64,
    pub total: u64,
    pub count: u32,
    /// The probability with which the stack of the last sleep was taken.
    pub chance: u32,
    /// [`Slot::longest`].
    pub longest: u64,
    /// The thread that ended the sleep; 0 if the kernel did, as for a timer.
    pub waker_pid: u32,
    pub waker_tid: u32,
    pub waker_comm: [u8; COMM_LEN],
}

shared!(Wake, 112);

/// Slots of a thread; a power of two. If a thread has more kinds of sleep, the oldest slot is reused.
pub const SLOTS: usize = 8;

/// The sleeps of a thread that its registers do not tell apart: the same system call with the same first argument at
/// the same stack depth, or waits for the GIL. The sums only grow, so the next record makes up for one that is lost.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The probability that the next sleep's stack is taken.
    pub chance: u32,
    /// Stacks taken since `born`.
    pub taken: u32,
    /// Nanoseconds slept since `born`.
    pub total: u64,
    /// The longest sleep since the last `OFFCPU_WAKE` of this slot.
    pub longest: u64,
    /// When the slot was taken. No other slot of the thread has the same time, so it identifies the slot.
    pub born: u64,
    pub detail: u64,
    /// Sleeps since `born`.
    pub count: u32,
    /// The moving average of their length, in nanoseconds, which saturates at [`u32::MAX`].
    pub mean: u32,
    /// When the slot was last used, in units of 2^20 ns.
    pub used: u32,
    /// When `chance` was last computed, in units of 2^10 ns.
    pub chance_set: u32,
    /// `count` in the last `OFFCPU_WAKE`.
    pub reported: u32,
    pub padding: u32,
}

shared!(Slot, 64);

/// The value of the array `SLEEPS`: a thread, at the index `tid % SLEEPERS`.
///
/// The elements begin at cache lines. An ordinary sleep touches the first line at its beginning and end, the second
/// line at its beginning, and the line of its slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sleeper {
    pub tid: u32,
    pub pid: u32,
    /// When the thread went to sleep; 0 while it is awake.
    pub since: u64,
    /// The jiffy in which it was woken; 0 before.
    pub woken: u64,
    /// The jiffy up to which `is_watched` is valid. After that the table of processes is asked again.
    pub checked_until: u64,
    pub is_watched: u16,
    /// The slot of the present sleep, or of the last.
    pub slot: u16,
    /// The probability with which the stack of the present sleep was taken; 0 if it was not taken.
    pub fresh: u32,
    /// The state of a random number generator.
    pub random: u32,
    /// Sleeps on futexes that are not known to be the GIL's.
    pub tries: u32,
    /// The range of addresses that waiters for the GIL sleep on.
    pub gil_start: u64,
    pub gil_size: u32,
    /// When a slot was last given to another key, in units of 2^20 ns.
    pub evicted: u32,
    /// For each slot, a hash of what its sleeps have in common; 0 for a free slot.
    pub keys: [u32; SLOTS],
    /// The GIL that the thread waits for; 0 if unknown.
    pub gil: u64,
    pub waker_pid: u32,
    pub waker_tid: u32,
    pub waker_comm: [u8; COMM_LEN],
    pub slots: [Slot; SLOTS],
}

shared!(Sleeper, 640);

/// Elements of the array `SLEEPS`; a power of two. Tids are handed out in order, so two live threads rarely share an
/// element. If they do, one of them loses its sleeps, which is counted.
pub const SLEEPERS: u32 = 32_768;
