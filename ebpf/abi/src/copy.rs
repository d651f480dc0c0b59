//! Copies of stack memory beside the walker's result, for tests that unwind the same stack by other means.

use crate::record::Header;
use crate::shared;

pub const PAGE_SIZE: usize = 4096;
/// Bounds the pages of one stack. What lies further up is not copied, and the test's unwinder stops there.
pub const PAGES_MAX: u32 = 512;
/// How far below the stack pointer a copy begins. At the end of a function, unwind rules can refer to registers that
/// were popped already.
pub const BELOW: u64 = 512;

/// `STACK_COPY`: one page of the stack of the preceding sample, which has the same thread and time.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackCopy {
    pub header: Header,
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// 1 if the thread is at the instruction before `ip`, else 0.
    pub after: u64,
    /// The address of the page.
    pub address: u64,
    pub bytes: [u8; PAGE_SIZE],
}

shared!(StackCopy, 80 + PAGE_SIZE);
