//! The family `eval`: calls of Python functions, at the places in the interpreter's code where they begin and end.
//!
//! These are uprobes. They run in the process that calls, where updating a hash map is safe. They can be preempted, so
//! what they keep is on the stack, and what they count is counted atomically.

use aya_ebpf::{
    bindings::{BPF_NOEXIST, pt_regs},
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::{map, uprobe},
    maps::{Array, HashMap, LruHashMap, Queue},
    programs::ProbeContext,
};
use pyobs_abi::{
    eval::{Calls, Cookie, Function, Open, Place, condition, source, state, verdict},
    process::{Layout, NONE, PYTHON, Process},
};

use crate::common::{
    checks::{Part, check_anew},
    cpython::{Top, top_frame},
    frames::{LOWEST_OBJECT, TAG_BITS},
    maps::{LAYOUTS, process},
    memory::{atomic_add, user},
    probe,
};

const FUNCTIONS_MAX: u32 = 16_384;
const OPEN_MAX: u32 = 32_768;
/// `X86_EFLAGS_ZF`: <https://github.com/torvalds/linux/blob/v6.1/arch/x86/include/uapi/asm/processor-flags.h>
const ZERO_FLAG: u64 = 1 << 6;

/// Totals by function.
#[map]
static EVAL_CALLS: HashMap<Function, Calls> = HashMap::with_max_entries(FUNCTIONS_MAX, 0);

/// Functions that are new in `EVAL_CALLS`, for user space to name.
#[map]
static EVAL_NEW: Queue<Function> = Queue::with_max_entries(FUNCTIONS_MAX, 0);

/// Calls that have not returned. An LRU map, so that a call whose return is not seen is evicted in the end.
#[map]
static EVAL_OPEN: LruHashMap<Place, Open> = LruHashMap::with_max_entries(OPEN_MAX, 0);

#[map]
static EVAL_STATE: Array<u64> = Array::with_max_entries(state::COUNT, 0);

/// A Python function begins, or a generator or coroutine resumes.
#[uprobe]
pub fn eval_call_enter(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    let hit = Hit::of(&context);
    if hit.charge() && hit.counts() {
        let _ = enter(&hit);
    }
    0
}

/// A Python function returns, yields or is left by an exception.
#[uprobe]
pub fn eval_call_exit(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    let hit = Hit::of(&context);
    if hit.charge() && hit.counts() {
        let _ = exit(&hit);
    }
    0
}

struct Hit {
    cookie: Cookie,
    registers: *const pt_regs,
    pid: u32,
    tid: u32,
}

impl Hit {
    #[inline(always)]
    fn of(context: &ProbeContext) -> Self {
        let both = bpf_get_current_pid_tgid();
        Self {
            cookie: Cookie(probe::cookie(context)),
            registers: probe::registers(context),
            pid: (both >> 32) as u32,
            tid: both as u32,
        }
    }

    /// Adds its cost to the window's. False if no window is open, or the budget is spent.
    #[inline(always)]
    fn charge(&self) -> bool {
        add(state::HITS, 1);
        add(state::SPENT, self.cookie.cost());
        let limit = get(state::LIMIT);
        if get(state::SPENT) <= limit {
            return true;
        }
        if limit != 0
            && let Some(closed) = EVAL_STATE.get_ptr_mut(state::CLOSED)
        {
            // SAFETY: the pointer is to an element of the array; if two threads come at once, either time is right.
            unsafe {
                if *closed == 0 {
                    *closed = bpf_ktime_get_ns();
                }
            }
        }
        false
    }

    #[inline(always)]
    fn counts(&self) -> bool {
        // SAFETY: the context of a uprobe's program is a pt_regs; the verifier checks each access.
        let (flags, third) = unsafe { ((*self.registers).eflags, (*self.registers).rdx) };
        match self.cookie.condition() {
            condition::ZERO => flags & ZERO_FLAG != 0,
            condition::NOT_ZERO => flags & ZERO_FLAG == 0,
            condition::THROWING => third as u32 != 0,
            _ => true,
        }
    }

    /// Returns the Python frame that begins or ends here, or 0.
    #[inline(always)]
    fn frame(&self, process: &Process, layout: &Layout) -> u64 {
        // SAFETY: as in `counts`.
        let (first, second, pc) = unsafe { ((*self.registers).rdi, (*self.registers).rsi, (*self.registers).rip) };
        match self.cookie.source() {
            source::FIRST => first,
            source::SECOND => second,
            source::THREAD => match top_frame(process, layout, pc) {
                Top::Frame { frame, .. } if layout.cframe_frame != NONE => {
                    user(frame.wrapping_add(layout.cframe_frame.into())).unwrap_or(0)
                }
                Top::Frame { frame, .. } => frame,
                Top::Nothing | Top::Unreadable => {
                    add(state::THREAD_UNREADABLE, 1);
                    0
                }
            },
            _ => 0,
        }
    }

    #[inline(always)]
    fn place(&self, frame: u64) -> Place {
        let address = if self.cookie.by_stack() {
            // SAFETY: as in `counts`.
            unsafe { (*self.registers).rsp }.wrapping_add(self.cookie.distance())
        } else {
            frame
        };
        Place { tid: self.tid, pid: self.pid, address }
    }
}

#[inline(always)]
fn enter(hit: &Hit) -> Option<()> {
    let process = process(hit.pid)?;
    if process.flags & PYTHON == 0 {
        return None;
    }
    let layout = LAYOUTS.get(process.layout)?;
    let frame = hit.frame(process, layout);
    if frame == 0 {
        return None;
    }
    let code = user::<u64>(frame.wrapping_add(layout.frame_code.into())).unwrap_or(0) & !TAG_BITS;
    if code < LOWEST_OBJECT {
        add(state::FRAME_UNREADABLE, 1);
        return None;
    }
    // Not the walker's buffer, which another program on this CPU could use if this one is preempted.
    let mut part = Part::default();
    let Some(check) = check_anew(&mut part, layout, code) else {
        add(state::CODE_UNREADABLE, 1);
        return None;
    };
    let function = Function { pid: hit.pid, check, code };
    if !count(&function)? {
        return None;
    }
    let place = hit.place(frame);
    let window = get(state::WINDOW) as u32;
    // SAFETY: the value is copied.
    if let Some(before) = unsafe { EVAL_OPEN.get(place) }
        && before.window == window
    {
        add(state::RETURN_UNSEEN, 1);
    }
    // SAFETY: the helper has no preconditions.
    let started = unsafe { bpf_ktime_get_ns() };
    let open = Open { started, code, check: function.check, window };
    EVAL_OPEN.insert(place, open, 0).ok()
}

/// Counts a call. Returns whether to time it.
#[inline(always)]
fn count(function: &Function) -> Option<bool> {
    if let Some(calls) = EVAL_CALLS.get_ptr_mut(function) {
        // SAFETY: the pointer is to an element of the map, which lives on until this program has ended.
        return Some(unsafe { add_call(calls) });
    }
    let calls = Calls { verdict: verdict::COUNTED, count: 1, timed: 0, total: 0, max: 0 };
    if EVAL_CALLS.insert(function, calls, BPF_NOEXIST.into()).is_ok() {
        // The queue is as large as the map, so it has room for every function of the map.
        let _ = EVAL_NEW.push(function, 0);
        return Some(true);
    }
    // Another thread has inserted it meanwhile, or the map is full.
    match EVAL_CALLS.get_ptr_mut(function) {
        // SAFETY: as above.
        Some(calls) => Some(unsafe { add_call(calls) }),
        None => {
            add(state::TABLE_FULL, 1);
            None
        }
    }
}

/// # Safety
/// `calls` must point to an element of the map.
#[inline(always)]
unsafe fn add_call(calls: *mut Calls) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if (*calls).verdict == verdict::IGNORED {
            return false;
        }
        atomic_add(&raw mut (*calls).count, 1);
    }
    true
}

#[inline(always)]
fn exit(hit: &Hit) -> Option<()> {
    let process = process(hit.pid)?;
    let layout = LAYOUTS.get(process.layout)?;
    let place = hit.place(hit.frame(process, layout));
    // SAFETY: the value is copied before it is removed.
    let open = *unsafe { EVAL_OPEN.get(place) }?;
    let _ = EVAL_OPEN.remove(place);
    if open.window != get(state::WINDOW) as u32 {
        return None;
    }
    let calls = EVAL_CALLS.get_ptr_mut(Function { pid: hit.pid, check: open.check, code: open.code })?;
    // SAFETY: the helper has no preconditions.
    let elapsed = unsafe { bpf_ktime_get_ns() }.wrapping_sub(open.started);
    // SAFETY: the pointer is to an element of the map. If two calls end at once, which can happen without a GIL, the
    // shorter may overwrite the longer as the longest.
    unsafe {
        atomic_add(&raw mut (*calls).timed, 1);
        atomic_add(&raw mut (*calls).total, elapsed);
        if elapsed > (*calls).max {
            (*calls).max = elapsed;
        }
    }
    Some(())
}

#[inline(always)]
fn get(index: u32) -> u64 {
    EVAL_STATE.get(index).copied().unwrap_or(0)
}

#[inline(always)]
fn add(index: u32, value: u64) {
    if let Some(number) = EVAL_STATE.get_ptr_mut(index) {
        // SAFETY: the pointer is to an element of the array.
        unsafe { atomic_add(number, value) };
    }
}
