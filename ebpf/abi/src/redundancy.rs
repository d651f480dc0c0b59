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
/// Stands in the place of the number of words in samples of which only the native frames are told.
pub const PASSED_OVER: u32 = u32::MAX;
/// The operands of an instruction that are looked at.
pub const OPERANDS: usize = 8;

/// `REDUNDANCY_REGISTERS`: the registers of the `CPU_SAMPLE` with the same thread and time, which was taken in native
/// code that Python called; or those of a sample of the processor's, which has an address and no `CPU_SAMPLE`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    pub header: Header,
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: by their numbers in instructions.
    pub general: [u64; 16],
    pub ip: u64,
    pub flags: u64,
    /// What the instruction there accessed, where the processor told it; 0 of samples of the clock.
    pub address: u64,
    /// Where the thread's own data is: the base of FS.
    pub thread_pointer: u64,
    /// The innermost Python frame.
    pub frame: u64,
    /// How many of `native` there are.
    pub natives: u32,
    /// How many of `stack` could be read; [`PASSED_OVER`] where it was not looked into, nor at the operands.
    pub words: u32,
    /// The innermost Python frame, as `stack::Frame` has it.
    pub code: u64,
    pub detail: u64,
    /// Where the first operand of its instruction lies; 0 where that is not known.
    pub operands_at: u64,
    /// Words as `stack::native_word` has them, leaf first.
    pub native: [u64; NATIVE],
    /// From the stack pointer on.
    pub stack: [u64; STACK],
    /// Of the instruction's operands the first ones.
    pub operands: [Operand; OPERANDS],
}

shared!(Registers, 40 + 16 * 8 + 9 * 8 + NATIVE * 8 + STACK * 8 + OPERANDS * 24);

/// A value that an instruction works on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operand {
    /// The object; 0 for none.
    pub object: u64,
    /// Its type.
    pub class: u64,
    /// Stands for what it is. 0 where that is not known.
    pub print: u64,
}

shared!(Operand, 24);

/// Names an instruction in the map `REDUNDANCY_SPOTS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpotKey {
    pub pid: u32,
    pub padding: u32,
    /// As `stack::Frame` has it.
    pub code: u64,
    pub detail: u64,
}

shared!(SpotKey, 24);

/// Where an instruction's operands are.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// In the frame: points to what `start` counts from; `process::NONE` where that is the frame.
    pub pointer: u32,
    /// Of the first operand, in bytes.
    pub start: u32,
    pub count: u32,
    pub padding: u32,
}

shared!(Spot, 16);

/// Names a type in the map `REDUNDANCY_CLASSES`, whose values are of [`class`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassKey {
    pub pid: u32,
    pub padding: u32,
    pub address: u64,
}

shared!(ClassKey, 16);

/// What an object of a type is told by.
pub mod class {
    /// Nothing that can be read.
    pub const UNKNOWN: u64 = 0;
    /// Where it is.
    pub const ADDRESS: u64 = 1;
    /// Some bytes of it: bits 8-15 where they begin, 16-23 how many there are.
    pub const BYTES: u64 = 2;
    /// An `int`, whose word behind the header has its sign and how many digits there are (until 3.11).
    pub const INT: u64 = 3;
    /// The same with the number shifted to the left by three (3.12 and newer).
    pub const INT_TAGGED: u64 = 4;
    /// A NumPy array.
    pub const ARRAY: u64 = 5;

    pub const fn bytes(start: u8, length: u8) -> u64 {
        BYTES | (start as u64) << 8 | (length as u64) << 16
    }
}

/// Of large arrays other parts are looked at from time to time: prints of the same object are equal only within one such
/// time, some four seconds.
pub const fn period(time: u64) -> u64 {
    time >> 32
}

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
    /// For where an instruction's result goes: the instruction, as `cpython::instruction` tells it; what is read is the result.
    /// Else 0.
    pub instruction: u64,
}

shared!(Watch, 56);

impl Watch {
    /// Whether it has seen all that it is to see.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.traps >= self.traps_max || self.calls >= self.calls_max
    }
}

/// `REDUNDANCY_TRAP`: the header's thread has accessed what is watched.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    pub header: Header,
    /// Of the watchpoint.
    pub id: u64,
    /// Of the instruction after the one that accessed.
    pub ip: u64,
    /// What was read; of a result its print.
    pub value: u64,
    /// Of a result its type.
    pub class: u64,
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

shared!(Trap, 96);
