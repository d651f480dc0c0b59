//! A stack as the kernel side sends it: words, leaf first.

use crate::record::Header;
use crate::shared;

/// Bounds the Python frames of one stack. A deeper stack is truncated at the root's side.
pub const FRAMES_MAX: usize = 1024;
/// Bounds the native frames of one stack. Up to CPython 3.10 each Python frame has some of its own: four on 3.8.
pub const NATIVE_MAX: usize = 5120;
/// Bounds the kernel frames of one stack.
pub const KERNEL_MAX: usize = 64;

/// What a record with a stack begins with. In the ring it is followed by `kernel_frames` addresses, `native_frames`
/// words (see [`native_address`]) and `frames` [`Frame`]s, all leaf first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub header: Header,
    /// What the sample stands for: CPU time in nanoseconds (`CPU_SAMPLE`), or memory in bytes (`HEAP_TOUCHED`). Else 0.
    pub weight: u64,
    /// Bits of [`flags`].
    pub flags: u32,
    /// How the walk of the Python frames ended: one of [`walk`].
    pub walk: u32,
    /// How the walk of the native frames ended: one of [`native`].
    pub native: u32,
    pub kernel_frames: u32,
    pub native_frames: u32,
    pub frames: u32,
    /// Defined by the family.
    pub detail: [u64; 2],
    /// Generators and coroutines that run: of each run of them that call each other, the outermost. The innermost run
    /// comes first. If there are more runs, the last entry is the outermost of them all. From 3.11 on, the addresses of
    /// their frames; before, those of the objects.
    pub generators: [u64; GENERATORS],
    /// For each of them, the number of its Python frame, from 0 for the innermost.
    pub generator_frames: [u16; GENERATORS],
    /// When the present turn of the thread's event loop began: the bits of an `f64`, in seconds on the kernel's clock. 0 if
    /// that is unknown.
    pub turn: u64,
}

shared!(Sample, 136);

/// Runs of generators' frames that a record has. A power of two.
pub const GENERATORS: usize = 4;

pub mod flags {
    /// The sample was taken in kernel mode.
    pub const KERNEL_MODE: u32 = 1;
    /// The Python frames could not be joined with the native frames.
    pub const UNJOINED: u32 = 1 << 1;
    /// The thread held the GIL.
    pub const HOLDS_GIL: u32 = 1 << 2;
}

/// How the walk of the Python frames ended.
pub mod walk {
    /// The thread has no Python frames.
    pub const NO_PYTHON: u32 = 0;
    pub const COMPLETE: u32 = 1;
    pub const TRUNCATED: u32 = 2;
    pub const THREAD_STATE_UNREADABLE: u32 = 3;
    pub const FRAME_UNREADABLE: u32 = 4;
    /// A frame without a code object.
    pub const FRAME_INVALID: u32 = 5;
}

/// How the walk of the native frames ended.
pub mod native {
    /// They were not walked.
    pub const NONE: u32 = 0;
    pub const COMPLETE: u32 = 1;
    pub const TRUNCATED: u32 = 2;
    /// The last frame lies in no known mapping.
    pub const NO_MAPPING: u32 = 3;
    /// The last frame's file has no table.
    pub const NO_TABLE: u32 = 4;
    /// The last frame's file has a table that says nothing of it.
    pub const NO_RULE: u32 = 5;
    pub const UNSUPPORTED: u32 = 6;
    pub const UNREADABLE: u32 = 7;
    /// The next frame does not lie further up the stack.
    pub const INVALID: u32 = 8;
}

const ADDRESS_BITS: u32 = 48;
/// Marks the frames of the interpreter's loop.
const LOOP: u64 = 1 << 63;
/// The count of a loop's frame whose own Python frames are not known.
pub const COUNT_UNKNOWN: u32 = 0x7fff;

/// The word of a native frame: the address of the instruction that runs or, in a caller, of the last byte of the call.
#[inline(always)]
pub const fn native_word(address: u64) -> u64 {
    address & ((1 << ADDRESS_BITS) - 1)
}

/// The word of a frame of the interpreter's loop, with the number of its own Python frames.
#[inline(always)]
pub const fn loop_word(address: u64, count: u32) -> u64 {
    LOOP | ((count as u64 & 0x7fff) << ADDRESS_BITS) | native_word(address)
}

pub const fn native_address(word: u64) -> u64 {
    native_word(word)
}

/// For a frame of the interpreter's loop, the number of its Python frames.
pub const fn loop_count(word: u64) -> Option<u32> {
    if word & LOOP == 0 { None } else { Some((word >> ADDRESS_BITS) as u32 & 0x7fff) }
}

/// A Python frame.
///
/// `detail`: bits 0-31 have the check word of the code object (0: it could not be read), bits 32-61 the signed offset
/// of the instruction in the bytecode, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The address of the code object.
    pub address: u64,
    pub detail: u64,
}

shared!(Frame, 16);

const OFFSET_BITS: u32 = 30;
/// Stands for an offset that does not fit. No bytecode is that long.
const OFFSET_UNKNOWN: i32 = -(1 << (OFFSET_BITS - 1));

impl Frame {
    #[inline(always)]
    pub const fn python(code: u64, check: u32, offset: i64) -> Self {
        let limit = 1 << (OFFSET_BITS - 1);
        let offset = if offset >= limit || offset <= -limit { OFFSET_UNKNOWN as i64 } else { offset };
        let bits = (offset as u64) & ((1 << OFFSET_BITS) - 1);
        Self { address: code, detail: (bits << 32) | check as u64 }
    }

    pub const fn check(self) -> u32 {
        self.detail as u32
    }

    /// Returns the offset from the first instruction in bytes, which is negative before that one has run, or `None` if
    /// it did not fit.
    pub const fn offset(self) -> Option<i32> {
        let bits = ((self.detail >> 32) as u32) << (32 - OFFSET_BITS);
        let offset = (bits as i32) >> (32 - OFFSET_BITS);
        if offset == OFFSET_UNKNOWN { None } else { Some(offset) }
    }
}
