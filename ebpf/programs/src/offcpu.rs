//! The families `offcpu` and `gil`: where threads sleep, for how long, and who wakes them.
//!
//! A stack has to be taken when a thread goes to sleep, before it is known for how long. A thread's sleeps are told apart by
//! their place in the program: the lengths of all that happen at one place are summed up exactly, and told with the stack
//! that was taken there last, each time that they reach `SLEEP_PERIOD`. The first stack of a place costs the thread
//! `SLEEP_PERIOD` of its time, each other the CPU `REFRESH` times as much, of which both have some credit: where less is
//! slept, the stack of every sleep is taken. Where even that is more than `--budget` allows, some sleeps of threads that sleep
//! often are passed over (`SLEEP_GAP`).

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
    offcpu::{NO_CALL, Place, Sleeper, detail},
    process::{NONE, PYTHON, Process, SAMPLED},
    record::{self, COMM_LEN, loss},
    stack::{KERNEL_MAX, flags},
};

use crate::common::{
    cpython::{Top, frames_of, instruction, top_frame},
    gil,
    maps::{INTERRUPT_END, INTERRUPT_START, LAYOUTS, PROCESSES, control, count_loss, is_on},
    memory::user,
    messages,
    registers::Registers,
    ring,
    task::TypedTask,
    walk::{SLOT_TASK, Walk},
};
use sleeper::{awake, key, looks_at, passes_over, pays, place, refreshes, sleeper, slept, slot, tell};

/// futex(2).
const FUTEX: u32 = 202;
/// Frames of who wakes a thread that are looked at: a timer's interrupt has some ten above it.
const WAKING_FRAMES: usize = 32;
/// Kernel frames that are our own doing: the program, and what runs it.
const OWN_FRAMES: u64 = 2;
/// `TASK_DEAD` of `__state` (include/linux/sched.h).
const DEAD: u32 = 0x80;
/// A sleeper that has not come back for so long has ended without being seen.
const STALE: u64 = 3_600_000_000_000;

/// The stack of who wakes a thread.
#[map]
static WAKING: PerCpuArray<[u64; WAKING_FRAMES]> = PerCpuArray::with_max_entries(1, 0);

/// `sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next, …)`
#[btf_tracepoint(function = "sched_switch")]
pub fn offcpu_switch(context: BtfTracePointContext) -> i32 {
    if !is_on(FAMILY_OFFCPU | FAMILY_GIL) {
        return 0;
    }
    wakes(&context);
    let preempted = context.arg::<u64>(0) as u8 != 0;
    if !preempted {
        sleeps(&context);
    }
    0
}

/// The thread that the CPU turns to was asleep until now.
#[inline(always)]
fn wakes(context: &BtfTracePointContext) {
    let tid = TypedTask::argument(context, 2).pid();
    let Some(sleeper) = sleeper(tid) else { return };
    if tid == 0 || sleeper.tid != tid || sleeper.since == 0 {
        return;
    }
    // SAFETY: the helper has no preconditions.
    awake(sleeper, unsafe { bpf_ktime_get_ns() });
}

/// The thread that the CPU turns away from goes to sleep.
#[inline(always)]
fn sleeps(context: &BtfTracePointContext) {
    let task = TypedTask::argument(context, 1);
    let (pid, tid, state) = (task.tgid(), task.pid(), task.state());
    if state == 0 || state & DEAD != 0 {
        return;
    }
    let Some(sleeper) = sleeper(tid) else { return };
    // Before all that costs more: of some programs that is nearly every switch.
    if passes_over(sleeper, pid, tid) {
        return;
    }
    // SAFETY: the value is read while others may update it: a torn one is an address that fails its checks.
    let Some(process) = (unsafe { PROCESSES.get(pid) }) else { return };
    if process.flags & SAMPLED == 0 {
        return;
    }
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    if sleeper.tid != tid || sleeper.pid != pid {
        if sleeper.since != 0 && now.saturating_sub(sleeper.since) < STALE {
            count_loss(loss::SLEEPER);
            if messages::are_on() {
                messages::displaced(sleeper.tid, tid);
            }
        }
        *sleeper = Sleeper { tid, pid, ..Sleeper::default() };
    } else if sleeper.since != 0 && sleeper.woken > sleeper.since {
        // Some switches are not told of, one in a thousand here: this thread has slept and run since. It was woken, if
        // not running, at this time.
        awake(sleeper, sleeper.woken);
    }
    let registers = Registers::saved();
    let Python { awaited, instruction, state } = python(process, &registers);
    if awaited == 0 && !is_on(FAMILY_OFFCPU) {
        sleeper.since = 0;
        return;
    }
    (sleeper.waker_pid, sleeper.waker_tid, sleeper.woken) = (0, 0, 0);
    sleeper.since = now;
    looks_at(sleeper, now);
    let argument = if awaited != 0 { awaited } else { registers.argument };
    let key = key(registers.call, argument, instruction);
    let number = slot(sleeper, key);
    sleeper.place = number as u32;
    let is_known = place(sleeper, number).key == key;
    sleeper.fresh =
        u32::from(if is_known { refreshes(now) } else { pays(&mut sleeper.paid, control(control::SLEEP_PERIOD), now) });
    if sleeper.fresh == 0 {
        return;
    }
    let holder = if awaited == 0 { None } else { holder(process, awaited).filter(|holder| *holder != state) };
    if is_known && awaited != 0 && holder.is_none() {
        // The GIL is on its way from one to another; that says nothing about the sleeps to come.
        sleeper.fresh = 0;
        return;
    }
    tell(sleeper, number, 0, now);
    *place(sleeper, number) = Place { key, count: 0, total: 0, stack: now };

    let slot = Walk::number(SLOT_TASK);
    let Some(walk) = Walk::begin(slot, SLOT_TASK) else { return };
    walk.sample.flags |= flags::KERNEL_MODE;
    walk.sample.header = ring::header(record::OFFCPU_SLEEP);
    walk.sample.header.time = now;
    walk.sample.detail = [u64::from(registers.call), number as u64];
    if registers.call != NO_CALL && registers.argument == 0 {
        walk.sample.detail[0] |= detail::FIRST_ARGUMENT_ZERO;
    }
    if awaited != 0 {
        walk.sample.detail[0] |= detail::GIL;
    }
    let bytes = (KERNEL_MAX * 8) as u32;
    // SAFETY: the buffer holds KERNEL_MAX words.
    let length = unsafe { bpf_get_stack(context.as_ptr(), walk.words.as_mut_ptr().cast(), bytes, OWN_FRAMES) };
    if length > 0 {
        walk.sample.kernel_frames = (length as u32 / 8).min(KERNEL_MAX as u32);
    }
    walk.start(process, &registers);
    Walk::run(slot);
    walk.send();
    if let Some(holder) = holder {
        hold(process, holder, now, slot);
    }
}

#[derive(Clone, Copy, Default)]
struct Python {
    /// The GIL's state, if it is what the thread is about to wait for.
    awaited: u64,
    /// What instruction its innermost Python frame is at; 0 where it waits for the GIL.
    instruction: u64,
    /// Its thread state.
    state: u64,
}

#[inline(always)]
fn python(process: &Process, registers: &Registers) -> Python {
    let none = Python::default();
    if process.flags & PYTHON == 0 {
        return none;
    }
    let Some(layout) = LAYOUTS.get(process.layout) else { return none };
    let Top::Frame { state, frame } = top_frame(process, layout, 0) else { return none };
    if registers.call == FUTEX && layout.gil_condition_size != 0 {
        let gil = gil::address(process, layout, state);
        // A thread may be made to wait for the GIL at any instruction, so which it is says nothing.
        if gil::is_awaited(layout, gil, registers.argument) {
            return Python { awaited: gil, instruction: 0, state };
        }
    }
    Python { awaited: 0, instruction: instruction(layout, frame), state }
}

/// The thread state that holds this GIL.
#[inline(always)]
fn holder(process: &Process, gil: u64) -> Option<u64> {
    gil::holder_at(LAYOUTS.get(process.layout)?, gil)
}

/// What the GIL's holder runs while the current thread waits, whose stack was taken at that time: its frames are in the same
/// memory. It goes on meanwhile, so that a frame may be gone while it is looked at; then the walk ends there.
#[inline(always)]
fn hold(process: &Process, state: u64, stack: u64, number: u32) {
    let Some(layout) = LAYOUTS.get(process.layout) else { return };
    let Top::Frame { frame, .. } = frames_of(layout, state) else { return };
    let mut header = ring::header(record::GIL_HOLDER);
    // The waiter's own tid tells whose holder it is.
    let waiter = header.tid;
    (header.time, header.tid) = (stack, holder_tid(process, layout.thread_native, layout.thread_id, state));
    let Some(walk) = Walk::begin(number, SLOT_TASK) else { return };
    walk.sample.header = header;
    walk.sample.detail = [u64::from(waiter), 0];
    walk.start_at(process, layout, frame);
    Walk::run(number);
    walk.send();
}

/// The kernel's thread id of a thread state: CPython keeps it from 3.11 on, and before pthread_self(), which on glibc is
/// the address of the thread's descriptor.
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

/// `sched_waking(struct task_struct *p)`, in the context of who wakes it.
#[btf_tracepoint(function = "sched_waking")]
pub fn offcpu_waking(context: BtfTracePointContext) -> i32 {
    if !is_on(FAMILY_OFFCPU | FAMILY_GIL) {
        return 0;
    }
    let tid = TypedTask::argument(&context, 0).pid();
    let Some(sleeper) = sleeper(tid) else { return 0 };
    if sleeper.tid != tid || sleeper.since == 0 {
        return 0;
    }
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    sleeper.woken = now;
    let (number, slept) = (sleeper.place as usize, slept(sleeper, now));
    let slept = place(sleeper, number).total.wrapping_add(slept);
    if sleeper.fresh == 0 && slept < control(control::SLEEP_PERIOD) {
        // Nobody will be told of it.
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

/// Whether the current thread is not who acts but was interrupted by who does. True where that cannot be told.
///
/// What interrupts a thread's own code stays on the stack of its system calls; what interrupts the kernel has a stack of its
/// own (arch/x86/include/asm/irq_stack.h), but so has what a system call leaves to softirqs, as a message to the same
/// machine: there the frames tell, which take microseconds.
#[inline(always)]
fn in_interrupt(context: &BtfTracePointContext) -> bool {
    // The context are the tracepoint's arguments, on the stack of who hits it.
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
