//! The family `redundancy`: where threads access memory, and what hardware watchpoints see there.
//!
//! Its records go into a ring of their own, which a thread of user space reads that does nothing else: a watchpoint is
//! worth the more the sooner it is set.

use crate::record::Header;
use crate::shared;

/// The native frames of a sample that are told with its registers.
pub const NATIVE: usize = 16;
/// The words of its C stack.
pub const STACK: usize = 64;

/// `REDUNDANCY_REGISTERS`: the registers of the `CPU_SAMPLE` with the same thread and time, which was taken in native
/// code that Python called.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    pub header: Header,
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: by their numbers in instructions.
    pub general: [u64; 16],
    pub ip: u64,
    pub flags: u64,
    /// Where the thread's own data is: the base of FS.
    pub thread_pointer: u64,
    /// The innermost Python frame.
    pub frame: u64,
    /// How many of `native` there are.
    pub natives: u32,
    /// How many of `stack` could be read.
    pub words: u32,
    /// Words as `stack::native_word` has them, leaf first.
    pub native: [u64; NATIVE],
    /// From the stack pointer on.
    pub stack: [u64; STACK],
}

shared!(Registers, 40 + 16 * 8 + 5 * 8 + NATIVE * 8 + STACK * 8);

/// Names a watchpoint in the map `REDUNDANCY_WATCHES`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchKey {
    pub tid: u32,
    pub padding: u32,
    /// The first byte that is watched.
    pub address: u64,
}

shared!(WatchKey, 16);

/// A watchpoint that is set.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// No other has or had it.
    pub id: u64,
    /// What is read at each trap: up to eight bytes.
    pub read_address: u64,
    pub read_length: u32,
    /// After so many traps, or with the first trap in so many calls, it is done.
    pub traps_max: u32,
    pub calls_max: u32,
    /// So far.
    pub traps: u32,
    pub calls: u32,
    /// The number of the trap whose stack was taken last.
    pub stack: u32,
    /// Names the call that trapped last; 0 before the first.
    pub call: u64,
}

shared!(Watch, 48);

/// `REDUNDANCY_TRAP`: the header's thread has accessed what is watched.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    pub header: Header,
    /// Of the watchpoint.
    pub id: u64,
    /// Of the instruction after the one that accessed.
    pub ip: u64,
    /// What was read.
    pub value: u64,
    /// Names the native call: the Python frame, where it is, its variables, and its caller's.
    pub call: u64,
    /// From 1 on.
    pub number: u32,
    /// The number of the trap that was the first of this call, whose stack was taken.
    pub stack: u32,
    /// 1 where it was the last, else 0.
    pub last: u32,
    /// 1 where the value could be read, else 0.
    pub read: u32,
}

shared!(Trap, 88);
