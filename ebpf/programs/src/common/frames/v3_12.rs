//! CPython 3.12: as 3.11, but a shim in the C frame marks the end of its run instead of a flag.
//!
//! ```text
//!  PyThreadState     C stack                             frames, on a stack of their own
//!    cframe ───────▶ ┌ C frame of the loop ───┐
//!                    │ _PyCFrame              │          _PyInterpreterFrame
//!                    │   current_frame ───────┼────────▶   previous ───▶ … ───┐
//!                    │   previous ──┐         │                               │
//!                    │ shim         │         │                               │
//!                    │   owner = 3  │     ◀───┼───────────────────────────────┘
//!                    │   previous ──┼─────────┼──────┐
//!                    └──────────────┼─────────┘      │
//!                    ┌ C frame ─────▼─────────┐      ▼
//!                    │ _PyCFrame              │          _PyInterpreterFrame
//!                    │   current_frame ───────┼────────▶   previous ───▶ … ───┐
//!                    │ shim               ◀───┼───────────────────────────────┘
//!                    │   previous ──▶ NULL    │
//!                    └────────────────────────┘
//! ```
//!
//! - `_PyInterpreterFrame`: <https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_frame.h>
//! - `_PyCFrame`: <https://github.com/python/cpython/blob/v3.12.0/Include/cpython/pystate.h>
//! - the shim, `entry_frame`: <https://github.com/python/cpython/blob/v3.12.0/Python/ceval.c>

use pyobs_abi::{process::entry, stack::walk};

use super::{Step, v3_13};
use crate::common::walk::Walk;

/// From this `owner` on, a frame is not a Python frame but the entry from C into the interpreter:
/// `FRAME_OWNED_BY_CSTACK` in 3.12 and 3.13, `FRAME_OWNED_BY_INTERPRETER` and above from 3.14 on.
const OWNER_NOT_PYTHON: u64 = 3;

/// A `_PyCFrame` without a frame is one that is not filled in yet: there is a shim at least.
pub const NO_FRAME: Step = Step::Drop(walk::FRAME_INVALID);

/// Whether the present frame is a shim, in 3.12 and newer. A frame inside a C frame of the loop is one even if its
/// `owner` is not set yet: Python frames have memory of their own.
#[inline(always)]
pub fn is_shim(walk: &Walk) -> bool {
    if walk.layout.entry < entry::SHIM_AND_CFRAME {
        return false;
    }
    if walk.field(walk.layout.frame_owner) & 0xff >= OWNER_NOT_PYTHON {
        return true;
    }
    walk.eval_at(walk.eval).is_some_and(|eval| walk.frame >= eval.start && walk.frame < eval.end)
}

/// The step from a shim, in 3.12 and newer.
#[inline(always)]
pub fn shim(walk: &mut Walk, previous: u64) -> Step {
    let Some(eval) = walk.eval_at(walk.eval) else { return Step::To(previous) };
    if walk.frame >= eval.start && walk.frame < eval.end {
        return Step::EndOfChain(previous);
    }
    if walk.anchored {
        // The `_PyCFrame` of this C frame led into the chain of another.
        return Step::Drop(walk::FRAME_INVALID);
    }
    v3_13::shim_elsewhere(walk, eval, previous)
}
