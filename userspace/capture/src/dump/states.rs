//! The thread states of an interpreter, and which thread runs each.

use pyobs_abi::process::NONE;

use crate::cpython::attached::{Attached, Attachment};
use crate::cpython::offsets::Layout;
use crate::memory::Memory;

/// Bounds the interpreters of a process, and the thread states of each.
const INTERPRETERS_MAX: usize = 256;
const STATES_MAX: usize = 16_384;

/// A `PyThreadState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub address: u64,
    pub interpreter: u64,
    /// `pthread_self()` of the thread that made it.
    pub thread: u64,
    /// The kernel's id of that thread, in its own pid namespace; 0 if unknown.
    pub tid: u32,
}

/// Lists a process's thread states, newest interpreter first. `pthread_tid` is where glibc's `struct pthread` has the tid;
/// 0 if unknown.
pub fn all(memory: &impl Memory, python: &Attached, pthread_tid: u32) -> Option<Vec<State>> {
    let layout = &python.layout;
    let mut interpreter = memory.read_u64(python.interpreters?).ok()?;
    let mut states = Vec::new();
    for _ in 0..INTERPRETERS_MAX {
        if interpreter == 0 {
            break;
        }
        let at = |field: u32| interpreter.wrapping_add(field.into());
        let mut address = memory.read_u64(at(layout.interpreter.threads_head)).ok()?;
        while address != 0 && states.len() < STATES_MAX {
            let at = |field: u32| address.wrapping_add(field.into());
            let thread = memory.read_u64(at(layout.thread_state.thread_id)).ok()?;
            states.push(State { address, interpreter, thread, tid: tid(memory, layout, pthread_tid, address, thread) });
            address = memory.read_u64(at(layout.thread_state.next)).ok()?;
        }
        interpreter = memory.read_u64(at(layout.interpreter.next)).ok()?;
    }
    Some(states)
}

/// Prefers the tid in glibc's `struct pthread`: after fork, the thread state may still have the parent's.
fn tid(memory: &impl Memory, layout: &Layout, pthread_tid: u32, state: u64, thread: u64) -> u32 {
    if pthread_tid != 0
        && let Ok(tid) = memory.read_u32(thread.wrapping_add(pthread_tid.into()))
    {
        return tid;
    }
    let Some(native) = layout.thread_state.native_thread_id else { return 0 };
    memory.read_u64(state.wrapping_add(native.into())).map_or(0, |tid| tid as u32)
}

/// The GIL of an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gil {
    /// The address range of the futexes that waiters sleep on: start and size.
    pub awaited: (u64, u64),
    /// The thread state that holds it.
    pub holder: Option<u64>,
}

impl Gil {
    /// Reads the state of an interpreter's GIL. Returns `None` in free-threaded builds, and if the layout is unknown. The
    /// kernel side reads the same fields in `ebpf/programs/src/common/gil.rs`.
    pub fn of(memory: &impl Memory, attachment: &Attachment, interpreter: u64) -> Option<Self> {
        let (process, layout) = (&attachment.process, &attachment.layout);
        if layout.gil_condition_size == 0 {
            return None;
        }
        let gil = match process.gil {
            0 if layout.interpreter_gil == NONE => return None,
            0 => memory.read_u64(interpreter.wrapping_add(layout.interpreter_gil.into())).ok()?,
            gil => gil,
        };
        // Sign-extended: offsets are negative if the parts are variables of their own (3.6).
        let at = |field: u32| gil.wrapping_add(i64::from(field as i32) as u64);
        let locked = memory.read_u32(at(layout.gil_locked)).ok()? as i32;
        let holder = memory.read_u64(at(layout.gil_holder)).ok()?;
        Some(Self {
            awaited: (at(layout.gil_condition), layout.gil_condition_size.into()),
            holder: (locked > 0 && holder != 0).then_some(holder),
        })
    }

    pub fn is_awaited_at(&self, address: u64) -> bool {
        address.wrapping_sub(self.awaited.0) < self.awaited.1
    }
}
