//! Stacks as they lie in memory, beside what the walker makes of them: for tests, which unwind them by other means.

use crate::record::Header;
use crate::shared;

pub const PAGE_SIZE: usize = 4096;
/// Pages of one stack at the most.
pub const PAGES_MAX: u32 = 512;
/// How far below the stack pointer the copy begins at the latest: rules for the end of a function say of registers that
/// they lie there when they have been taken off the stack already.
pub const BELOW: u64 = 512;

/// `STACK_COPY`: a page of the stack of the sample before it, which has the same thread and time.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackCopy {
    pub header: Header,
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// 1 where the instruction before `ip` is what the thread is at, else 0.
    pub after: u64,
    /// Of the page.
    pub address: u64,
    pub bytes: [u8; PAGE_SIZE],
}

shared!(StackCopy, 80 + PAGE_SIZE);
