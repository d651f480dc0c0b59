//! The GIL of an interpreter, as its own memory has it: `struct _gil_runtime_state` (Include/internal/pycore_gil.h).

use pyobs_abi::process::{Layout, NONE, Process};

use super::memory::user;

/// Where the GIL's state is for a thread state; 0 where that is not known.
#[inline(always)]
pub fn address(process: &Process, layout: &Layout, state: u64) -> u64 {
    if process.gil != 0 || layout.interpreter_gil == NONE {
        return process.gil;
    }
    let Some(interpreter) = user::<u64>(state.wrapping_add(layout.thread_interpreter.into())) else { return 0 };
    user(interpreter.wrapping_add(layout.interpreter_gil.into())).unwrap_or(0)
}

/// The thread state that holds the GIL at this address; `None` where no one does.
#[inline(always)]
pub fn holder_at(layout: &Layout, gil: u64) -> Option<u64> {
    if gil == 0 || layout.gil_condition_size == 0 {
        return None;
    }
    let at = gil.wrapping_add(offset(layout.gil_holder));
    let (holder, locked) = if layout.gil_locked == layout.gil_holder.wrapping_add(8) {
        // As in 3.7 to 3.13; a read costs the same whatever its size.
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

/// The range of addresses whose futexes the waiters for the GIL sleep on: its beginning and its size.
#[inline(always)]
pub fn awaited(layout: &Layout, gil: u64) -> (u64, u32) {
    (gil.wrapping_add(offset(layout.gil_condition)), layout.gil_condition_size)
}

/// Offsets may be negative, where the parts are variables of their own (3.6).
#[inline(always)]
fn offset(field: u32) -> u64 {
    i64::from(field as i32) as u64
}
