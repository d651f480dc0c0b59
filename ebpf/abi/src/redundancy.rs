//! The family `redundancy`: where threads access memory, and what hardware watchpoints see there.
//!
//! Its records have a ring of their own, which one thread of user space reads at once: the sooner a watchpoint is set,
//! the more it sees.

use crate::record::Header;
use crate::shared;

/// Bounds the native frames that are sent with the registers. Outer frames are left out.
pub const NATIVE: usize = 16;
/// Bounds the words of the C stack that are sent with the registers.
pub const STACK: usize = 64;
/// [`Registers::words`] of a sample that has native frames, but neither stack nor operands.
pub const NOT_DECODED: u32 = u32::MAX;
/// Bounds the callers of an instruction that tell its calls apart.
pub const CALLERS: usize = 6;
/// Bounds the operands of an instruction. Later operands are ignored.
pub const OPERANDS: usize = 8;

/// `REDUNDANCY_REGISTERS`: the registers of the `CPU_SAMPLE` with the same thread and time, which was taken in native
/// code that Python called. Some are taken in the interpreter's loop; these have neither stack nor operands.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    pub header: Header,
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: in the order of their numbers in instructions.
    pub general: [u64; 16],
    pub ip: u64,
    pub flags: u64,
    /// The base of FS, where the thread's own data lies.
    pub thread_pointer: u64,
    /// The address of the innermost Python frame.
    pub frame: u64,
    /// The number of frames in `native`.
    pub natives: u32,
    /// The number of words of `stack` that could be read, or [`NOT_DECODED`].
    pub words: u32,
    /// The innermost Python frame, as in `stack::Frame`.
    pub code: u64,
    pub detail: u64,
    /// A hash of the frames that called it, at most [`CALLERS`].
    pub path: u64,
    /// Identifies the frame that called it, and the instruction of that frame.
    pub caller: u64,
    /// The address of the first operand of its instruction; 0 if unknown.
    pub operands_at: u64,
    /// Words as `stack::native_word` makes them, leaf first.
    pub native: [u64; NATIVE],
    /// The words from the stack pointer on.
    pub stack: [u64; STACK],
    /// The first operands of the instruction.
    pub operands: [Operand; OPERANDS],
    /// The frames that called it, innermost first; zeros behind the last.
    pub callers: [Caller; CALLERS],
    /// Sizes in bytes. If an operand is a list or tuple of two to eight arrays: the largest array, and the sum of the others.
    /// If there are two operands, each a `str` or `bytes`: the left and the right one. Otherwise 0.
    pub sizes: [u64; 2],
    /// The innermost of the callers whose instruction is a [`Spot`] with `waits`.
    pub waiting: Waiting,
}

shared!(Registers, 40 + 16 * 8 + 12 * 8 + NATIVE * 8 + STACK * 8 + OPERANDS * 24 + CALLERS * 32 + 24 + OPERANDS * 24);

/// The operands of an instruction that waits for what it called.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The address of its frame; 0 if no caller is such a spot.
    pub frame: u64,
    /// As in [`Registers`].
    pub caller: u64,
    pub operands_at: u64,
    pub operands: [Operand; OPERANDS],
}

shared!(Waiting, 24 + OPERANDS * 24);

/// A Python frame that waits for what it called.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The address of the frame.
    pub frame: u64,
    /// The instruction that it is at, as `cpython::instruction` returns it.
    pub instruction: u64,
    /// As in `stack::Frame`.
    pub code: u64,
    pub detail: u64,
}

shared!(Caller, 32);

/// An operand of a bytecode instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operand {
    /// The object; 0 for none.
    pub object: u64,
    /// The address of its type.
    pub class: u64,
    /// A hash of the object's value; 0 if unknown.
    pub print: u64,
}

shared!(Operand, 24);

/// The key of the map `REDUNDANCY_SPOTS`: an instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpotKey {
    pub pid: u32,
    pub padding: u32,
    /// As in `stack::Frame`.
    pub code: u64,
    pub detail: u64,
}

shared!(SpotKey, 24);

/// Where the operands of an instruction are.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The offset in the frame of a pointer that `start` is relative to; `process::NONE` if `start` is relative to the
    /// frame.
    pub pointer: u32,
    /// The offset of the first operand, in bytes.
    pub start: u32,
    pub count: u32,
    /// 1 if its operands are wanted while it waits for what it called, else 0.
    pub waits: u32,
}

shared!(Spot, 16);

/// The key of the map `REDUNDANCY_CLASSES`: a type. The values are of [`class`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassKey {
    pub pid: u32,
    pub padding: u32,
    pub address: u64,
}

shared!(ClassKey, 16);

/// How objects of a type are told apart.
pub mod class {
    /// They cannot be.
    pub const UNKNOWN: u64 = 0;
    /// By their address.
    pub const ADDRESS: u64 = 1;
    /// By some of their bytes. Bits 8-15 have the offset of the first, bits 16-23 their number.
    pub const BYTES: u64 = 2;
    /// By the value of an `int`: the word behind the header has the sign and the number of digits (up to 3.11).
    pub const INT: u64 = 3;
    /// The same, with the number of digits shifted left by three (3.12 and newer).
    pub const INT_TAGGED: u64 = 4;
    /// By the shape and some of the data of a NumPy array.
    pub const ARRAY: u64 = 5;
    /// By the length, in the word behind the header, and some of the data. Bits 8-15 have the offset of the data. Bits
    /// 16-23 have the position of the bit in `PyASCIIObject.state` that must be set, or [`ANY`].
    pub const DATA: u64 = 6;
    /// By some of the items that are in the object. Bits 8-15 have the offset of the first, bits 16-23 their number; 0 if
    /// the word behind the header has it.
    pub const ITEMS: u64 = 7;
    /// By some of the items of a list.
    pub const LIST: u64 = 8;

    pub const ANY: u8 = 0xff;

    pub const fn bytes(start: u8, length: u8) -> u64 {
        BYTES | (start as u64) << 8 | (length as u64) << 16
    }

    pub const fn data(start: u8, bit: u8) -> u64 {
        DATA | (start as u64) << 8 | (bit as u64) << 16
    }

    pub const fn items(start: u8, count: u8) -> u64 {
        ITEMS | (start as u64) << 8 | (count as u64) << 16
    }
}

/// The number of the period of about four seconds that `time` lies in. The parts of a large array that are hashed
/// change with it, so hashes of the same object are comparable only within one period.
pub const fn period(time: u64) -> u64 {
    time >> 32
}

/// The key of the map `REDUNDANCY_WATCHES`: a watchpoint.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchKey {
    pub tid: u32,
    pub padding: u32,
    /// The address of the first byte that is watched.
    pub address: u64,
}

shared!(WatchKey, 16);

/// The value of `REDUNDANCY_WATCHES`: a watchpoint that is set.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Never reused.
    pub id: u64,
    /// What is read at each trap: up to eight bytes.
    pub read_address: u64,
    pub read_length: u32,
    /// The watchpoint is removed after this many traps, or at the first trap in this many calls.
    pub traps_max: u32,
    pub calls_max: u32,
    /// The traps and calls so far.
    pub traps: u32,
    pub calls: u32,
    /// The number of the last trap whose stack was taken.
    pub stack: u32,
    /// When the program of the last trap ended.
    pub ended: u64,
    /// Nanoseconds from the end of one trap's program to the start of the next one's: the sum, and the minimum. If
    /// successive instructions access the memory, the minimum is hardly more than what a trap costs without its
    /// program.
    pub between: u64,
    pub between_least: u64,
    /// The key of the call that trapped last; 0 before the first.
    pub call: u64,
    /// If the watchpoint is on the place of an instruction's result: the instruction, as `cpython::instruction` returns
    /// it, and what is read is the result. Else 0.
    pub instruction: u64,
    /// With an instruction: [`Registers::caller`] of the call whose result is awaited; 0 to time successive results,
    /// of any caller.
    pub caller: u64,
}

shared!(Watch, 88);

impl Watch {
    /// Whether the time from one result to the next is wanted.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.instruction != 0 && self.caller == 0
    }

    /// Whether the watchpoint has seen all that it should.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.traps >= self.traps_max || self.calls >= self.calls_max
    }
}

/// `REDUNDANCY_TRAP`: the header's thread has accessed watched memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    pub header: Header,
    /// The id of the watchpoint.
    pub id: u64,
    /// The address of the instruction after the one that accessed it.
    pub ip: u64,
    /// What was read; for a result, the hash of its value.
    pub value: u64,
    /// For a result, the address of its type and its own.
    pub class: u64,
    pub object: u64,
    /// The key of the native call (`common/call_site.rs`).
    pub call: u64,
    /// As in [`Watch`].
    pub between: u64,
    pub between_least: u64,
    /// The number of the trap, from 1 on.
    pub number: u32,
    /// The number of the first trap of this call, whose stack was taken.
    pub stack: u32,
    /// 1 if this was the last trap, else 0.
    pub last: u32,
    /// 1 if the value could be read, else 0.
    pub read: u32,
}

shared!(Trap, 120);
