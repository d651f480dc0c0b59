//! Indexes into the array `CONTROL`: what user space turns while the programs run.

/// The probability that a CPU's sample is kept, in units of 2^-32; 0 keeps all.
pub const KEEP: u32 = 0;
/// Which families are on: the bits below.
pub const FAMILIES: u32 = 1;
/// Nanoseconds of sleep per stack, for sleeps of a thread that are alike. A longer sleep always has its stack taken.
pub const SLEEP_PERIOD: u32 = 2;
/// User space is called for a stack that may be new to it only when it was not called for so many nanoseconds.
pub const CALL_GAP: u32 = 3;
/// Of transfers, every how-many-th is told of singly; 0 and 1 stand for all.
pub const TELL_EVERY: u32 = 4;
/// Calls of progress are counted until then, in nanoseconds of `CLOCK_MONOTONIC`.
pub const PROGRESS_UNTIL: u32 = 5;
/// Of whom executable mappings are told: one of [`tells`].
pub const TELLS_MAPPINGS: u32 = 6;
/// Which transfers are counted when they are submitted, and nothing else is done about them: one of [`counted`].
pub const COUNTED: u32 = 7;
/// Stacks of sleeps that each CPU takes in a second, in the long run.
pub const SLEEP_STACKS: u32 = 8;
/// Of the samples whose registers are told, one in so many, chosen at random, is looked at; 0 and 1 stand for all.
pub const LOOK_EVERY: u32 = 9;
/// Nanoseconds of one of the kernel's ticks (jiffies).
pub const TICK: u32 = 10;
/// Nanoseconds between two ticks of a CPU.
pub const PERIOD: u32 = 11;
/// When the CPUs began to tick with this period, in nanoseconds of `CLOCK_MONOTONIC`.
pub const TICKS_SINCE: u32 = 12;
/// Nanoseconds that the first of these ticks stands for.
pub const FIRST_TICK: u32 = 13;
pub const COUNT: u32 = 14;

/// The values of [`TELLS_MAPPINGS`].
pub mod tells {
    /// Of nobody; perf's side-band records do, or nothing needs to.
    pub const NONE: u64 = 0;
    pub const WATCHED: u64 = 1;
    pub const EVERYBODY: u64 = 2;
}

/// The values of [`COUNTED`].
pub mod counted {
    /// None: all are followed to their ends.
    pub const NONE: u64 = 0;
    /// Those that begin from now on.
    pub const NEW: u64 = 1;
    /// All: nothing that was followed is under way.
    pub const ALL: u64 = 2;
    /// Those of UCXX that were not seen to be registered: they were, while all were counted.
    pub const UNREGISTERED: u64 = 3;
}

pub const FAMILY_OFFCPU: u64 = 1;
pub const FAMILY_GIL: u64 = 1 << 1;
pub const FAMILY_SHM: u64 = 1 << 2;
pub const FAMILY_ARENA: u64 = 1 << 3;
