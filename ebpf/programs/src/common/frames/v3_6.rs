//! CPython 3.6 to 3.10: each frame is an object of its own, and each C frame of the interpreter's loop runs one of
//! them.
//!
//! ```text
//! PyThreadState        PyFrameObject           PyFrameObject
//!   frame ──────────▶    f_back ───────────▶     f_back ──▶ NULL
//!                        f_code ──▶ code         f_code ──▶ code
//!                        f_lasti                 f_lasti
//! ```
//!
//! Nothing marks the end of a run, so user space joins these frames with the C frames one to one.
//!
//! - 3.6: <https://github.com/python/cpython/blob/v3.6.0/Include/frameobject.h>
//! - 3.10: <https://github.com/python/cpython/blob/v3.10.0/Include/cpython/frameobject.h>

/// Returns the offset in the bytecode, in bytes, for an `f_lasti` that counts units of `unit` bytes. Up to 3.9 a unit
/// is a byte, in 3.10 it is an instruction. `f_lasti` is an `int`, and -1 before the first instruction.
#[inline(always)]
pub fn offset(lasti: u64, unit: u32) -> i64 {
    i64::from(lasti as u32 as i32) * i64::from(unit)
}
