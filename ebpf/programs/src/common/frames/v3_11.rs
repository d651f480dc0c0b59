//! CPython 3.11: a C frame of the interpreter's loop runs a chain of frames, and has a `_PyCFrame` that points to the
//! innermost.
//!
//! ```text
//!  PyThreadState     C stack                             frames, on a stack of their own
//!    cframe ───────▶ ┌ C frame of the loop ───┐
//!                    │ _PyCFrame              │          _PyInterpreterFrame
//!                    │   current_frame ───────┼────────▶   is_entry = 0
//!                    │   previous ──┐         │            previous ───┐
//!                    └──────────────┼─────────┘                        ▼
//!                                   │                    _PyInterpreterFrame
//!                                   │                      is_entry = 1      the run ends here
//!                                   │                      previous ───┐
//!                    ┌ C frame ─────▼─────────┐                        ▼
//!                    │ _PyCFrame              │          _PyInterpreterFrame
//!                    │   current_frame ───────┼────────▶   is_entry = 1
//!                    │   previous ──┐         │            previous ───▶ NULL
//!                    └──────────────┼─────────┘
//!  PyThreadState                    ▼
//!    root_cframe ◀──────────────────┘
//! ```
//!
//! The loop publishes its `_PyCFrame` before it fills it in. A sample taken in between finds there what an earlier call
//! left on the C stack, so a chain is believed only if it agrees with its neighbours.
//!
//! - `_PyInterpreterFrame`: <https://github.com/python/cpython/blob/v3.11.0/Include/internal/pycore_frame.h>
//! - `_PyCFrame`: <https://github.com/python/cpython/blob/v3.11.0/Include/cpython/pystate.h>

use pyobs_abi::process::entry;

use super::Step;
use crate::common::walk::Walk;

/// A C frame that is about to return has no frame any more.
pub const NO_FRAME: Step = Step::EndOfChain(0);

/// Whether the present frame is the first that its C frame ran.
#[inline(always)]
pub fn is_entry(walk: &Walk) -> bool {
    walk.anchored && walk.layout.entry == entry::FLAG && walk.field(walk.layout.frame_owner) & 0xff != 0
}

/// Whether the chain of the C frame inside the present one was not a chain, because it does not lead to `frame`, the
/// innermost of the present one. Nothing follows a chain that ends in NULL: the next C frame runs another interpreter.
#[inline(always)]
pub fn contradicts_previous(walk: &Walk, frame: u64) -> bool {
    let leads_on = walk.expected == 0 || walk.expected == frame;
    walk.layout.entry == entry::FLAG && walk.eval != walk.first_eval && !leads_on
}

/// Whether the innermost C frame, which is being entered or left, cannot have this chain, because it ends in NULL. Only
/// the first C frame of an interpreter has such a chain, and its `_PyCFrame` points to the one in the thread state.
#[inline(always)]
pub fn ends_too_soon(walk: &Walk) -> bool {
    if walk.layout.entry != entry::FLAG || walk.eval != walk.first_eval || walk.eval + 1 >= walk.evals {
        return false;
    }
    let Some(eval) = walk.eval_at(walk.eval) else { return false };
    if eval.word != 0 {
        return false;
    }
    let cframe = walk.cframe(eval.end.wrapping_sub(walk.distance));
    cframe.is_none_or(|[_, outer]| !walk.is_in_thread_state(outer))
}
