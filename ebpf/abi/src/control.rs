//! Indexes into the array `CONTROL`: what user space turns while the programs run.

/// Of the samples of each CPU, every how-many-th is taken; 0 and 1 stand for all.
pub const KEEP_EVERY: u32 = 0;
pub const COUNT: u32 = 1;
