//! A stack as the kernel side sends it: words, leaf first.

use crate::shared;

/// Frames of one stack that are walked at the most; deeper ones are cut on the root's side.
pub const FRAMES_MAX: usize = 512;
/// Kernel frames that are taken at the most.
pub const KERNEL_MAX: usize = 64;

pub const PYTHON: u64 = 0;
pub const NATIVE: u64 = 1;

/// One frame of the user stack.
///
/// `detail` of a Python frame: bits 0-31 the check word of the code object (0: it could not be read), 32-61 the signed
/// offset of the instruction in the bytecode, in bytes, 62-63 the kind.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Of the code object (Python) or the instruction (native).
    pub address: u64,
    pub detail: u64,
}

shared!(Frame, 16);

const OFFSET_BITS: u32 = 30;
/// Stands for offsets that do not fit: no bytecode is that long.
const OFFSET_UNKNOWN: i32 = -(1 << (OFFSET_BITS - 1));

impl Frame {
    #[inline(always)]
    pub const fn python(code: u64, check: u32, offset: i64) -> Self {
        let limit = 1 << (OFFSET_BITS - 1);
        let offset = if offset >= limit || offset <= -limit { OFFSET_UNKNOWN as i64 } else { offset };
        let bits = (offset as u64) & ((1 << OFFSET_BITS) - 1);
        Self { address: code, detail: (PYTHON << 62) | (bits << 32) | check as u64 }
    }

    pub const fn kind(self) -> u64 {
        self.detail >> 62
    }

    pub const fn check(self) -> u32 {
        self.detail as u32
    }

    /// Bytes from the first instruction; negative before the first one ran. `None` when it did not fit.
    pub const fn offset(self) -> Option<i32> {
        let bits = ((self.detail >> 32) as u32) << (32 - OFFSET_BITS);
        let offset = (bits as i32) >> (32 - OFFSET_BITS);
        if offset == OFFSET_UNKNOWN { None } else { Some(offset) }
    }
}
