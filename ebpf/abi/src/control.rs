//! Indexes into the array `CONTROL`: what user space turns while the programs run.

/// Of the samples of each CPU, every how-many-th is taken; 0 and 1 stand for all.
pub const KEEP_EVERY: u32 = 0;
/// Which families are on: the bits below.
pub const FAMILIES: u32 = 1;
/// Of each thread's sleeps one is taken for every so many nanoseconds.
pub const SLEEP_PERIOD: u32 = 2;
/// User space is called for a stack that may be new to it only when it was not called for so many nanoseconds.
pub const CALL_GAP: u32 = 3;
pub const COUNT: u32 = 4;

pub const FAMILY_OFFCPU: u64 = 1;
pub const FAMILY_GIL: u64 = 1 << 1;
pub const FAMILY_SHM: u64 = 1 << 2;
pub const FAMILY_ARENA: u64 = 1 << 3;
