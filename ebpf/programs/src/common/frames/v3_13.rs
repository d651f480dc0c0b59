//! CPython 3.13 and newer: the thread state points to the innermost frame, and only the shims tell the runs apart.
//!
//! ```text
//!  PyThreadState                                         frames, on a stack of their own
//!    current_frame ────────────────────────────────────▶ _PyInterpreterFrame
//!                    C stack                               previous ───▶ … ───┐
//!                    ┌ C frame of the loop ───┐                               │
//!                    │ shim               ◀───┼───────────────────────────────┘
//!                    │   previous ────────────┼────────▶ _PyInterpreterFrame
//!                    └────────────────────────┘            previous ───▶ … ───┐
//!                    ┌ C frame ───────────────┐                               │
//!                    │ shim               ◀───┼───────────────────────────────┘
//!                    │   previous ───▶ NULL, from 3.14 on the base frame of the thread
//!                    └────────────────────────┘
//!
//!  free-threaded builds, from 3.14 on: a copy of the bytecode for each thread
//!  _PyInterpreterFrame       PyCodeObject
//!    f_executable ────────▶    co_tlbc ──▶ { size, entries[tlbc_index] ──▶ bytecode }
//!    tlbc_index
//! ```
//!
//! - 3.13: <https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_frame.h>
//! - 3.14: <https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_interpframe_structs.h>
//! - copies of bytecode: `_PyCode_GetTLBCFast` in
//!   <https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_code.h>

use pyobs_abi::process::NONE;

use super::Step;
use crate::common::{
    memory::user,
    walk::{Eval, Walk},
};

/// The low bits that mark a `_PyStackRef`, from 3.14 on. Objects are aligned to 16 bytes, so these bits of a plain
/// pointer are 0.
pub const TAG_BITS: u64 = 7;

/// The step from a shim that is not in the present C frame.
#[inline(always)]
pub fn shim_elsewhere(walk: &mut Walk, eval: Eval, previous: u64) -> Step {
    if walk.frame >= eval.end {
        // The present C frame is being entered or left and has no Python frame. The shim is that of a C frame further
        // out.
        walk.set_count(walk.eval, 0);
        walk.eval += 1;
        // The same frame again is no cycle.
        walk.mark = 0;
        return Step::To(walk.frame);
    }
    // The base frame of the thread, which is in no C frame.
    Step::To(previous)
}

/// Returns the address of the bytecode that the present frame runs, or 0 if it cannot be read; no offset from 0 fits.
#[inline(always)]
pub fn bytecode(walk: &Walk, code: u64) -> u64 {
    if walk.layout.frame_copy == NONE {
        return code.wrapping_add(walk.layout.code_start.into());
    }
    let index = walk.field(walk.layout.frame_copy) as u32;
    let Some(copies) = user::<u64>(code.wrapping_add(walk.layout.code_copies.into())) else { return 0 };
    user(copies.wrapping_add(8 + 8 * u64::from(index))).unwrap_or(0)
}
