//! What `pyobs dump` reads from the kernel.

use crate::shared;

/// A thread of the machine.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    /// Bits of [`flags`].
    pub flags: u32,
    pub padding: u32,
    /// The registers of its user space when it last entered the kernel.
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
}

shared!(Thread, 40);

pub mod flags {
    /// It is at the instruction before `ip`, because it is in a system call.
    pub const AFTER: u32 = 1;
    /// Its control group has used up its CPU limit.
    pub const THROTTLED: u32 = 1 << 1;
}
