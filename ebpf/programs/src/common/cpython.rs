//! From a thread to its `PyThreadState`, and to its innermost Python frame.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::map, maps::Array};
use pyobs_abi::{
    hash::mix,
    process::{KEY_BARE, Layout, NONE, Process, TLS_DYNAMIC, TLS_STATIC},
};

use super::{maps::PROCESSES, memory::user, task::thread_pointer};

/// The result of looking for a thread's Python frames.
pub enum Top {
    /// The thread has no Python frames now.
    Nothing,
    Unreadable,
    /// The thread state, and the innermost frame or the `_PyCFrame` that points to it.
    Frame {
        state: u64,
        frame: u64,
    },
}

/// The thread that last ran a thread state made by another thread.
#[repr(C)]
#[derive(Clone, Copy)]
struct Runner {
    state: u64,
    tid: u64,
}

const RUNNERS_MAX: u32 = 256;

/// Indexed by a part of the thread state's address. CPUs store without locks, and a torn entry names no thread.
#[map]
static RUNNERS: Array<Runner> = Array::with_max_entries(RUNNERS_MAX, 0);

/// Finds where the frames of the current thread begin. `pc` is where it runs, or 0 if it is in the kernel.
#[inline(always)]
pub fn top_frame(process: &Process, layout: &Layout, pc: u64) -> Top {
    match current_state(process, layout, pc) {
        Some(0) => Top::Nothing,
        Some(state) => frames_of(layout, state),
        None => Top::Unreadable,
    }
}

/// Returns the thread state of the current thread, which runs at `pc` or, if that is 0, is in the kernel. 0 if it has
/// none, `None` if that cannot be read.
#[inline(always)]
pub fn current_state(process: &Process, layout: &Layout, pc: u64) -> Option<u64> {
    match thread_pointer() {
        0 => Some(0),
        thread_pointer => thread_state(process, layout, thread_pointer, pc),
    }
}

/// Returns where the frames of a thread state begin.
#[inline(always)]
pub fn frames_of(layout: &Layout, state: u64) -> Top {
    match user::<u64>(state.wrapping_add(layout.thread_frame.into())) {
        Some(0) => Top::Nothing,
        Some(frame) => Top::Frame { state, frame },
        None => Top::Unreadable,
    }
}

/// Returns the innermost frame of a thread whose frames begin at `top`, or 0 if it cannot be read.
#[inline(always)]
pub fn innermost(layout: &Layout, top: u64) -> u64 {
    if layout.cframe_frame == NONE {
        return top;
    }
    user(top.wrapping_add(layout.cframe_frame.into())).unwrap_or(0)
}

/// Returns a number that identifies the instruction at which a thread is, or 0 if it cannot be read.
#[inline(always)]
pub fn instruction(layout: &Layout, top: u64) -> u64 {
    instruction_of(layout, innermost(layout, top))
}

/// Returns a number that identifies the instruction at which a frame is, or 0 if it cannot be read.
#[inline(always)]
pub fn instruction_of(layout: &Layout, frame: u64) -> u64 {
    let at = frame.wrapping_add(layout.frame_instruction.into());
    if layout.lasti_unit == 0 {
        return user(at).unwrap_or(0);
    }
    let code: u64 = user(frame.wrapping_add(layout.frame_code.into())).unwrap_or(0);
    code.wrapping_add(user::<u32>(at).unwrap_or(0).into())
}

/// Returns a number that identifies the frame that called `frame`, and the instruction at which that is.
#[inline(always)]
pub fn caller(layout: &Layout, frame: u64) -> u64 {
    let previous = previous(layout, frame);
    mix(previous, instruction_of(layout, previous))
}

/// Returns the calling frame. 0 for the outermost frame, or on a failed read.
#[inline(always)]
pub fn previous(layout: &Layout, frame: u64) -> u64 {
    user(frame.wrapping_add(layout.frame_previous.into())).unwrap_or(0)
}

/// Returns the `PyThreadState` of the current thread, or 0 if it has none.
///
/// Up to 3.11 one word has the thread state of the GIL's owner. It is the current thread's, whichever sub-interpreter
/// it belongs to, if its `thread_id` is this thread's pthread_self(), which on glibc is the thread pointer. From 3.12
/// on a thread-local has it (`_Py_tss_tstate` in <https://github.com/python/cpython/blob/v3.12.0/Python/pystate.c>),
/// which is 0 while the thread is outside the GIL. Then the slot of the PyGILState API has the state that the thread
/// came with; from 3.15 on another thread-local has (`_Py_tss_gilstate`).
#[inline(always)]
fn thread_state(process: &Process, layout: &Layout, thread_pointer: u64, pc: u64) -> Option<u64> {
    if process.current != 0
        && let Some(state) = user::<u64>(process.current)
        && state != 0
        && (user::<u64>(state.wrapping_add(layout.thread_id.into())) == Some(thread_pointer)
            || runs(process, layout, thread_pointer, state, pc))
    {
        return Some(state);
    }
    if process.flags & (TLS_STATIC | TLS_DYNAMIC) != 0
        && let address = thread_local(process, thread_pointer)?
        && address != 0
    {
        let state: u64 = user(address)?;
        if state != 0 {
            return Some(state);
        }
        if process.tls_gilstate != 0 {
            return user(address.wrapping_add(i64::from(process.tls_gilstate) as u64));
        }
    }
    if process.key == 0 {
        return Some(0);
    }
    specific(process, thread_pointer)
}

/// Whether the current thread runs a thread state that another thread made, as when a thread of the main interpreter
/// runs a sub-interpreter.
///
/// A thread in the interpreter's loop holds the GIL, so the state of the GIL's owner is its own. From then on the state
/// counts as this thread's until another thread is found to run it. A thread with a state of its own in that
/// interpreter runs no other: in the loop it may be giving the GIL up while another takes it.
#[inline(always)]
fn runs(process: &Process, layout: &Layout, thread_pointer: u64, state: u64, pc: u64) -> bool {
    if process.key != 0
        && let Some(own) = specific(process, thread_pointer)
        && own != 0
    {
        let interpreter = |state: u64| user::<u64>(state.wrapping_add(layout.thread_interpreter.into()));
        if interpreter(own) == interpreter(state) {
            return false;
        }
    }
    let Some(runner) = RUNNERS.get_ptr_mut((state >> 4) as u32 % RUNNERS_MAX) else { return false };
    let tid = bpf_get_current_pid_tgid();
    let [first, second] = process.loops;
    if (pc >= first[0] && pc < first[1]) || (pc >= second[0] && pc < second[1]) {
        // SAFETY: the pointer is to an entry of the array.
        unsafe { *runner = Runner { state, tid } };
        return true;
    }
    // SAFETY: as above.
    unsafe { (*runner).state == state && (*runner).tid == tid }
}

/// Returns the address of the thread-local, or 0 while the thread has none.
///
/// In a module's own block it is found through the dynamic thread vector of the x86-64 psABI. The second word at the
/// thread pointer points to pairs of words, one pair for each module. The first of a pair is the block, or all ones
/// while there is none.
#[inline(always)]
fn thread_local(process: &Process, thread_pointer: u64) -> Option<u64> {
    if process.flags & TLS_STATIC != 0 {
        return Some(thread_pointer.wrapping_add(process.tls_offset as u64));
    }
    if process.tls_distance != 0 {
        return Some(thread_pointer.wrapping_sub(process.tls_distance.into()));
    }
    let vector: u64 = user(thread_pointer + 8)?;
    let block: u64 = user(vector.wrapping_add(process.tls_module.wrapping_mul(16)))?;
    if block == 0 || block == u64::MAX {
        return Some(0);
    }
    let address = block.wrapping_add(process.tls_offset as u64);
    learn_distance(thread_pointer, address);
    Some(address)
}

/// Remembers where the main thread has a thread-local, if that is right below its thread pointer. In other threads,
/// whose blocks lie among what they allocate, this would not prove that it is in the static block.
#[inline(always)]
fn learn_distance(thread_pointer: u64, address: u64) {
    /// More than the static block of a program takes. Allocated memory lies further away.
    const DISTANCE_MAX: u64 = 64 << 10;
    let (both, distance) = (bpf_get_current_pid_tgid(), thread_pointer.wrapping_sub(address));
    let (pid, tid) = ((both >> 32) as u32, both as u32);
    if pid != tid || distance > DISTANCE_MAX {
        return;
    }
    let Some(process) = PROCESSES.get_ptr_mut(pid) else { return };
    // SAFETY: the pointer is to the map's value; another CPU that writes it at the same time writes the same.
    unsafe { (*process).tls_distance = distance as u32 };
}

/// Returns what pthread_getspecific would. glibc keeps an array of pointers to blocks of (sequence, value) pairs in the
/// thread's descriptor:
/// <https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/pthread_getspecific.c;hb=refs/tags/glibc-2.36>. The offsets
/// are those that glibc publishes for debuggers.
#[inline(always)]
fn specific(process: &Process, thread_pointer: u64) -> Option<u64> {
    let key = if process.flags & KEY_BARE != 0 {
        let key: i32 = user(process.key)?;
        if key < 0 {
            return Some(0);
        }
        key as u32
    } else {
        let [initialized, key]: [u32; 2] = user(process.key)?;
        if initialized == 0 {
            return Some(0);
        }
        key
    };
    if process.block_elements == 0 {
        return Some(0);
    }
    let (block, element) = (key / process.block_elements, key % process.block_elements);
    let blocks = thread_pointer.wrapping_add(process.specific.into());
    let start: u64 = user(blocks.wrapping_add(u64::from(block) * 8))?;
    if start == 0 {
        return Some(0);
    }
    let element = u64::from(element) * u64::from(process.element_size) + u64::from(process.element_value);
    user(start.wrapping_add(element))
}
