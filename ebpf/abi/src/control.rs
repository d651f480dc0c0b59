//! Indexes into the array `CONTROL`: the settings that user space changes while the programs run.

/// The probability that a CPU keeps a sample, in units of 2^-32; 0 keeps all.
pub const KEEP: u32 = 0;
/// The families that are on: bits of `FAMILY_*` below.
pub const FAMILIES: u32 = 1;
/// Similar sleeps of a thread give about one stack per this many nanoseconds of sleep, and fewer after the first 64
/// stacks. If the sleeps are longer than this on average, each of them gives one.
pub const SLEEP_PERIOD: u32 = 2;
/// Nanoseconds between two wake-ups of user space for code that it may not know. Stacks in between wait for the next.
pub const WAKE_GAP: u32 = 3;
/// One in this many transfers is reported singly; 0 and 1 stand for all. The others only enter the totals.
pub const REPORT_EVERY: u32 = 4;
/// The time until which calls of progress are counted, in nanoseconds of `CLOCK_MONOTONIC`.
pub const PROGRESS_UNTIL: u32 = 5;
/// Whose executable mappings are reported: one of [`mappings_of`].
pub const REPORT_MAPPINGS: u32 = 6;
/// Which transfers are only counted when they are submitted: one of [`counted`].
pub const COUNTED: u32 = 7;
/// Stacks of sleeps that each CPU takes in a second, on average. Beyond that, stacks are drawn with a lower
/// probability.
pub const SLEEP_STACKS: u32 = 8;
/// One in this many samples of the family `redundancy`, chosen at random, carries its stack and operands; 0 and 1 stand
/// for all.
pub const DECODE_EVERY: u32 = 9;
/// Nanoseconds of a jiffy.
pub const TICK: u32 = 10;
/// Nanoseconds between two samples of a CPU.
pub const PERIOD: u32 = 11;
/// The time since which the CPUs sample with this period, in nanoseconds of `CLOCK_MONOTONIC`.
pub const TICKS_SINCE: u32 = 12;
/// Nanoseconds that the first sample with this period stands for.
pub const FIRST_TICK: u32 = 13;
/// The families that learn of mappings at the kernel's tracepoints of mappings, not at system calls: bits of `FAMILY_*`.
pub const AT_MAPPINGS: u32 = 14;
/// The steps of growth at which the family `heap` takes samples, and the time between two, are this many times as large;
/// 0 and 1 stand for the smallest.
pub const HEAP_STEPS: u32 = 15;
pub const COUNT: u32 = 16;

/// The values of [`REPORT_MAPPINGS`].
pub mod mappings_of {
    /// Nobody's: perf's side-band records report them, or no one needs them.
    pub const NONE: u64 = 0;
    pub const WATCHED: u64 = 1;
    pub const ALL: u64 = 2;
}

/// The values of [`COUNTED`].
pub mod counted {
    /// None. Each transfer is followed to its end.
    pub const NONE: u64 = 0;
    /// Those that begin from now on.
    pub const NEW: u64 = 1;
    /// All. No transfer that was followed is under way any more.
    pub const ALL: u64 = 2;
    /// UCXX transfers that were registered while all transfers were only counted, so their registration is unknown.
    pub const UNREGISTERED: u64 = 3;
}

pub const FAMILY_OFFCPU: u64 = 1;
pub const FAMILY_GIL: u64 = 1 << 1;
pub const FAMILY_SHM: u64 = 1 << 2;
pub const FAMILY_ARENA: u64 = 1 << 3;
pub const FAMILY_HEAP: u64 = 1 << 4;
