//! The families `offcpu` and `gil`: where threads sleep, for how long, and who wakes them.
//!
//! Every sleep is counted and timed. A thread's sleeps are summed up by what its registers say about them ([`Slot`]),
//! which needs no read of its memory, so totals are exact whatever the budget is. Stacks cost much more, and have to be
//! taken when a sleep begins, before its length is known. So the sleeps whose stack is taken are drawn at random, and
//! the record has the probability (`sleeper.rs`). With it, user space splits the sums over the stacks without bias.
//!
//! [`Slot`]: pyobs_abi::offcpu::Slot

mod sleeper;

pub use sleeper::thread_ends;

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_ktime_get_ns, generated::bpf_get_stack},
    macros::{btf_tracepoint, map},
    maps::PerCpuArray,
    programs::BtfTracePointContext,
};
use pyobs_abi::{
    control::{self, FAMILY_GIL, FAMILY_OFFCPU},
    offcpu::{NO_CALL, Sleeper, detail},
    process::{NONE, PYTHON, Process, SAMPLED},
    record::{self, COMM_LEN, Loss},
    stack::{KERNEL_MAX, flags},
};

use crate::common::{
    cpython::{Top, current_state, frames_of},
    gil,
    maps::{INTERRUPT_END, INTERRUPT_START, LAYOUTS, control, count_loss, pid, process},
    memory::user,
    messages,
    registers::Registers,
    ring,
    typed::TypedTask,
    walk::{SLOT_TASK, Walk},
};
use sleeper::{awake, claim, draw, find, key, make, sleeper, slot, tick};

/// futex(2).
const FUTEX: u32 = 202;
/// Bounds the kernel frames in which an interrupt's entry is looked for: a timer's interrupt has about ten above it.
/// Beyond that, the current thread counts as the waker.
const WAKING_FRAMES: usize = 32;
/// Kernel frames of the program itself and of what runs it, which are left out.
const OWN_FRAMES: u64 = 2;
/// `TASK_DEAD` of `__state`: <https://github.com/torvalds/linux/blob/v6.1/include/linux/sched.h>
const DEAD: u32 = 0x80;
/// A thread that has slept for this many nanoseconds is assumed to have ended unseen, so the reuse of its element does
/// not count as a loss.
const STALE: u64 = 3_600_000_000_000;
/// The result of a lookup in the table of processes is valid for this many jiffies: that a thread is watched, or that
/// it is not.
const WATCHED_TICKS: u64 = 256;
const UNWATCHED_TICKS: u64 = 8;
/// A thread's first sleeps on unknown futexes, up to this many, look for its GIL; after that, one in this many does. A
/// thread may have no thread state yet, or get another one later.
const TRIES: u32 = 64;

/// Scratch space for the stack of the thread that wakes another.
#[map]
static WAKING: PerCpuArray<[u64; WAKING_FRAMES]> = PerCpuArray::with_max_entries(1, 0);

/// `sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next, …)`
#[btf_tracepoint(function = "sched_switch")]
pub fn offcpu_switch(context: BtfTracePointContext) -> i32 {
    let now = wakes(&context);
    sleeps(&context, now);
    0
}

/// The thread that the CPU switches to has woken. Returns the time if it had to be read, else 0.
#[inline(always)]
fn wakes(context: &BtfTracePointContext) -> u64 {
    let tid = TypedTask::argument(context, 2).pid();
    let Some(sleeper) = sleeper(tid) else { return 0 };
    if tid == 0 || sleeper.tid != tid || sleeper.since == 0 {
        return 0;
    }
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    awake(sleeper, now);
    now
}

/// The thread that the CPU switches from goes to sleep, or its control group has used up its CPU limit. Every switch of
/// the machine comes here, so those of unwatched threads leave as soon as possible.
#[inline(always)]
fn sleeps(context: &BtfTracePointContext, now: u64) {
    let task = TypedTask::argument(context, 1);
    let (pid, tid, state) = (task.tgid(), task.pid(), task.state());
    let is_preempted = context.arg::<u64>(0) as u8 != 0;
    let is_runnable = is_preempted || state == 0;
    if is_runnable && !task.is_throttled() || state & DEAD != 0 {
        return;
    }
    let Some(sleeper) = sleeper(tid) else { return };
    if !is_watched(sleeper, pid, tid) {
        return;
    }
    let families = control(control::FAMILIES);
    if families & (FAMILY_OFFCPU | FAMILY_GIL) == 0 {
        return;
    }
    // SAFETY: the helper has no preconditions.
    let now = if now == 0 { unsafe { bpf_ktime_get_ns() } } else { now };
    if sleeper.since != 0 && sleeper.woken != 0 {
        // About one switch in a thousand is not seen: this thread has slept and run since. Its wake-up was in this
        // jiffy.
        let ago = tick().saturating_sub(sleeper.woken).wrapping_mul(control(control::TICK));
        awake(sleeper, now.saturating_sub(ago).max(sleeper.since));
    }
    let registers = Registers::saved();
    let mut detail = u64::from(registers.call);
    if is_runnable {
        detail = u64::from(NO_CALL) | detail::THROTTLED;
    } else if registers.call == FUTEX {
        if !waits_for_gil(sleeper, &registers) {
            sleeper.tries = sleeper.tries.wrapping_add(1);
            if sleeper.tries < TRIES || sleeper.tries.is_multiple_of(TRIES) {
                learn_gil(sleeper, pid);
            }
        }
        if waits_for_gil(sleeper, &registers) {
            detail |= detail::GIL;
        }
    } else if registers.call != NO_CALL && registers.argument == 0 {
        detail |= detail::FIRST_ARGUMENT_ZERO;
    }
    let is_gil = detail & detail::GIL != 0;
    if families & FAMILY_OFFCPU == 0 && !is_gil {
        sleeper.since = 0;
        return;
    }
    // A thread can be made to wait for the GIL or for its control group anywhere, so where it is means nothing.
    let key = if is_gil || is_runnable { key(detail, 0, 0) } else { key(detail, registers.argument, registers.sp) };
    let number = match find(sleeper, key) {
        Some(number) => number,
        None => make(sleeper, key, detail, now),
    };
    sleeper.slot = number as u16;
    (sleeper.since, sleeper.woken) = (now, 0);
    sleeper.fresh = draw(sleeper, number, now);
    if sleeper.fresh != 0 {
        (sleeper.waker_pid, sleeper.waker_tid) = (0, 0);
        let born = slot(sleeper, number).born;
        take_stack(context, sleeper.gil, detail, born, now, &registers);
    }
}

/// Whether the sleeps of a thread are wanted. If so, the thread gets its element.
#[inline(always)]
fn is_watched(sleeper: &mut Sleeper, pid: u32, tid: u32) -> bool {
    let tick = tick();
    let is_own = sleeper.tid == tid && sleeper.pid == pid;
    if is_own && tick < sleeper.checked_until {
        return sleeper.is_watched != 0;
    }
    let is_watched = process(pid).is_some_and(|process| process.flags & SAMPLED != 0);
    if !is_own {
        if !is_watched && sleeper.is_watched != 0 {
            // The element may belong to a watched thread.
            return false;
        }
        if sleeper.since != 0 {
            // SAFETY: the helper has no preconditions.
            let now = unsafe { bpf_ktime_get_ns() };
            if now.saturating_sub(sleeper.since) < STALE {
                count_loss(Loss::Sleeper);
                if messages::are_on() {
                    messages::displaced(sleeper.tid, tid);
                }
            }
        }
        claim(sleeper, pid, tid, is_watched);
    } else if is_watched != (sleeper.is_watched != 0) {
        claim(sleeper, pid, tid, is_watched);
    }
    sleeper.checked_until = tick + if is_watched { WATCHED_TICKS } else { UNWATCHED_TICKS };
    is_watched
}

#[inline(always)]
fn waits_for_gil(sleeper: &Sleeper, registers: &Registers) -> bool {
    registers.argument.wrapping_sub(sleeper.gil_start) < sleeper.gil_size.into()
}

/// Looks for the GIL that the current thread would wait for.
#[inline(always)]
fn learn_gil(sleeper: &mut Sleeper, pid: u32) {
    let Some(process) = process(pid) else { return };
    if process.flags & PYTHON == 0 {
        return;
    }
    let Some(layout) = LAYOUTS.get(process.layout) else { return };
    if layout.gil_condition_size == 0 {
        return;
    }
    let mut gil = process.gil;
    // A thread that C code created waits for the GIL before it has its first frame.
    if gil == 0
        && let Some(state) = current_state(process, layout, 0)
        && state != 0
    {
        gil = gil::address(process, layout, state);
    }
    if gil != 0 {
        sleeper.gil = gil;
        (sleeper.gil_start, sleeper.gil_size) = gil::awaited(layout, gil);
    }
}

/// Sends the stack of the current thread, and that of the GIL's holder if it waits for the GIL.
#[inline(always)]
fn take_stack(context: &BtfTracePointContext, gil: u64, detail: u64, born: u64, now: u64, registers: &Registers) {
    let Some(process) = process(pid()) else { return };
    let is_gil = detail & detail::GIL != 0;
    let holder = if is_gil { holder(process, gil) } else { None };
    let number = Walk::number(SLOT_TASK);
    let Some(walk) = Walk::begin(number, SLOT_TASK) else { return };
    walk.sample.flags |= flags::KERNEL_MODE;
    walk.sample.header = ring::header(record::OFFCPU_SLEEP);
    walk.sample.header.time = now;
    walk.sample.detail = [detail, born];
    let bytes = (KERNEL_MAX * 8) as u32;
    // SAFETY: the buffer holds KERNEL_MAX words.
    let length = unsafe { bpf_get_stack(context.as_ptr(), walk.words.as_mut_ptr().cast(), bytes, OWN_FRAMES) };
    if length > 0 {
        walk.sample.kernel_frames = (length as u32 / 8).min(KERNEL_MAX as u32);
    }
    walk.start(process, registers);
    let own = walk.state;
    Walk::run(number);
    walk.send();
    if let Some(holder) = holder
        && holder != own
    {
        hold(process, holder, now, number);
    }
}

/// Returns the thread state that holds this GIL.
#[inline(always)]
fn holder(process: &Process, gil: u64) -> Option<u64> {
    gil::holder_at(LAYOUTS.get(process.layout)?, gil)
}

/// Sends the Python frames of the GIL's holder while the current thread waits. `stack` is the time at which the stack
/// of the waiter was taken. The holder keeps running, so a frame can be freed while it is read; the walk then ends
/// there.
#[inline(always)]
fn hold(process: &Process, state: u64, stack: u64, number: u32) {
    let Some(layout) = LAYOUTS.get(process.layout) else { return };
    let Top::Frame { frame, .. } = frames_of(layout, state) else { return };
    let mut header = ring::header(record::GIL_HOLDER);
    // The waiter's tid tells whose wait this belongs to.
    let waiter = header.tid;
    (header.time, header.tid) = (stack, holder_tid(process, layout.thread_native, layout.thread_id, state));
    let Some(walk) = Walk::begin(number, SLOT_TASK) else { return };
    walk.sample.header = header;
    walk.sample.detail = [u64::from(waiter), 0];
    walk.start_at(process, layout, frame);
    Walk::run(number);
    walk.send();
}

/// Returns the kernel's thread id of a thread state. CPython keeps it from 3.11 on. Before, it keeps pthread_self(),
/// which on glibc is the address of the thread's descriptor.
#[inline(always)]
fn holder_tid(process: &Process, native: u32, thread_id: u32, state: u64) -> u32 {
    if native != NONE {
        return user::<u64>(state.wrapping_add(native.into())).unwrap_or(0) as u32;
    }
    if process.pthread_tid == 0 {
        return 0;
    }
    let Some(pthread) = user::<u64>(state.wrapping_add(thread_id.into())) else { return 0 };
    user(pthread.wrapping_add(process.pthread_tid.into())).unwrap_or(0)
}

/// `sched_waking(struct task_struct *p)`, in the context of the waker.
#[btf_tracepoint(function = "sched_waking")]
pub fn offcpu_waking(context: BtfTracePointContext) -> i32 {
    let tid = TypedTask::argument(&context, 0).pid();
    let Some(sleeper) = sleeper(tid) else { return 0 };
    // No thread is asleep here while both families are off.
    if sleeper.tid != tid || sleeper.since == 0 {
        return 0;
    }
    sleeper.woken = tick();
    if sleeper.fresh == 0 {
        return 0;
    }
    let both = bpf_get_current_pid_tgid();
    if both as u32 == 0 || in_interrupt(&context) {
        return 0;
    }
    (sleeper.waker_pid, sleeper.waker_tid) = ((both >> 32) as u32, both as u32);
    sleeper.waker_comm = bpf_get_current_comm().unwrap_or([0; COMM_LEN]);
    0
}

/// Whether the waker is an interrupt, not the current thread that it interrupted. True if that is unknown.
///
/// An interrupt of user code runs on the thread's kernel stack, as the thread's system calls do. An interrupt of kernel
/// code runs on a separate stack (<https://github.com/torvalds/linux/blob/v6.1/arch/x86/include/asm/irq_stack.h>). So
/// do the softirqs that a system call raises, for example by sending a message to the same machine. On that stack only
/// the frames distinguish the two, and reading them takes microseconds.
#[inline(always)]
fn in_interrupt(context: &BtfTracePointContext) -> bool {
    // The context is the tracepoint's arguments, on the stack of the thread that hits it.
    if Registers::is_own_stack(context.as_ptr() as u64) {
        return Registers::saved().call == NO_CALL;
    }
    let (start, end) = (INTERRUPT_START.load(), INTERRUPT_END.load());
    if start == 0 {
        return true;
    }
    let Some(stack) = WAKING.get_ptr_mut(0) else { return true };
    let bytes = (WAKING_FRAMES * 8) as u32;
    // SAFETY: the value of this CPU, which holds WAKING_FRAMES words; the tracepoint cannot be hit again within itself.
    let (stack, length) = unsafe {
        let length = bpf_get_stack(context.as_ptr(), stack.cast(), bytes, 0);
        (&*stack, length)
    };
    if length < 0 {
        return true;
    }
    let frames = length as usize / 8;
    for (number, address) in stack.iter().enumerate() {
        if number >= frames {
            break;
        }
        if *address >= start && *address < end {
            return true;
        }
    }
    false
}
