//! The GIL of an interpreter, as its own memory has it: `struct _gil_runtime_state`.
//!
//! - 3.12: <https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_gil.h>

use pyobs_abi::process::{Layout, NONE, Process};

use super::memory::user;

/// Returns the address of the GIL's state for a thread state, or 0 if it is unknown.
#[inline(always)]
pub fn address(process: &Process, layout: &Layout, state: u64) -> u64 {
    if process.gil != 0 || layout.interpreter_gil == NONE {
        return process.gil;
    }
    let Some(interpreter) = user::<u64>(state.wrapping_add(layout.thread_interpreter.into())) else { return 0 };
    user(interpreter.wrapping_add(layout.interpreter_gil.into())).unwrap_or(0)
}

/// Returns the thread state that holds the GIL at this address, or `None` if none does.
#[inline(always)]
pub fn holder_at(layout: &Layout, gil: u64) -> Option<u64> {
    if gil == 0 || layout.gil_condition_size == 0 {
        return None;
    }
    let at = gil.wrapping_add(offset(layout.gil_holder));
    let (holder, locked) = if layout.gil_locked == layout.gil_holder.wrapping_add(8) {
        // Neighbours, as in 3.7 to 3.13. One read costs the same whatever its size.
        let [holder, locked]: [u64; 2] = user(at)?;
        (holder, locked as u32 as i32)
    } else {
        (user(at)?, user(gil.wrapping_add(offset(layout.gil_locked)))?)
    };
    (locked > 0 && holder != 0).then_some(holder)
}

#[inline(always)]
pub fn holder(process: &Process, layout: &Layout, state: u64) -> Option<u64> {
    holder_at(layout, address(process, layout, state))
}

/// Returns the start and the size of the range of addresses whose futexes the waiters for the GIL sleep on.
#[inline(always)]
pub fn awaited(layout: &Layout, gil: u64) -> (u64, u32) {
    (gil.wrapping_add(offset(layout.gil_condition)), layout.gil_condition_size)
}

/// Sign-extends an offset, which is negative if the parts are variables of their own (3.6).
#[inline(always)]
fn offset(field: u32) -> u64 {
    i64::from(field as i32) as u64
}
