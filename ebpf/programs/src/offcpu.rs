//! The families `offcpu` and `gil`: where threads sleep, for how long, and who wakes them.
//!
//! A stack has to be taken when a thread goes to sleep, before it is known for how long. A thread's sleeps are told apart by
//! their place in the program: the lengths of all that happen at one place are summed up exactly, and told with the stack
//! that was taken there last, each time that they reach `SLEEP_PERIOD`. The first stack of a place costs the thread
//! `SLEEP_PERIOD` of its time, each other the CPU `REFRESH` times as much, of which both have some credit: where less is
//! slept, the stack of every sleep is taken. Where even that is more than `--budget` allows, some sleeps of threads that sleep
//! often are passed over (`SLEEP_GAP`).

use core::hint::black_box;

use aya_ebpf::{
    EbpfContext,
    helpers::{
        bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_ktime_get_ns,
        generated::{bpf_get_prandom_u32, bpf_get_stack},
    },
    macros::{map, raw_tracepoint},
    maps::{Array, PerCpuArray},
    programs::RawTracePointContext,
};
use pyobs_abi::{
    control::{self, FAMILY_GIL, FAMILY_OFFCPU},
    offcpu::{NO_CALL, PLACES, Place, SLEEPERS, Sleeper, Wake, detail},
    process::{NONE, PYTHON, Process, SAMPLED},
    record::{self, COMM_LEN, loss},
    stack::{KERNEL_MAX, flags},
};

use crate::common::{
    cpython::{Top, frames_of, instruction, top_frame},
    gil,
    maps::{INTERRUPT_END, INTERRUPT_START, LAYOUTS, PROCESSES, control, count_loss, is_on},
    memory::user,
    registers::Registers,
    ring,
    task::Task,
    walk::{SLOT_TASK, Walk},
};

/// futex(2).
const FUTEX: u32 = 202;
/// Frames of who wakes a thread that are looked at: a timer's interrupt has some ten above it.
const WAKING_FRAMES: usize = 32;
/// Kernel frames that are our own doing: the program, and what runs it.
const OWN_FRAMES: u64 = 2;
/// `TASK_DEAD` of `__state` (include/linux/sched.h).
const DEAD: u32 = 0x80;
/// Stacks that may be owed for.
const CREDIT: u64 = 64;
/// How much more a stack costs the CPU that takes it for a place that has one already.
const REFRESH: u64 = 10;
/// As many sleeps are passed over on the average, at the most.
const PASSED_MAX: u64 = 100;
/// For so many times `SLEEP_GAP`, at the most, and they count for no more than so many times the time that there was.
const GAPS_MAX: u64 = 4;
/// A sleeper that has not come back for so long has ended without being seen.
const STALE: u64 = 3_600_000_000_000;

/// Plain stores by the CPU that a thread is leaving, wakes on, or is woken from.
#[map]
static SLEEPS: Array<Sleeper> = Array::with_max_entries(SLEEPERS, 0);

/// Up to when each CPU has paid for stacks.
#[map]
static PAID: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// The stack of who wakes a thread.
#[map]
static WAKING: PerCpuArray<[u64; WAKING_FRAMES]> = PerCpuArray::with_max_entries(1, 0);

#[inline(always)]
fn sleeper(tid: u32) -> Option<&'static mut Sleeper> {
    // SAFETY: the pointer is to an element of the array; others may write it at the same time, and what is torn is one
    // sleep's length.
    SLEEPS.get_ptr_mut(tid % SLEEPERS).map(|sleeper| unsafe { &mut *sleeper })
}

/// `sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next, …)`
#[raw_tracepoint(tracepoint = "sched_switch")]
pub fn offcpu_switch(context: RawTracePointContext) -> i32 {
    switch(&context, Walk::run)
}

/// For kernels without `bpf_loop`.
#[raw_tracepoint(tracepoint = "sched_switch")]
pub fn offcpu_switch_bounded(context: RawTracePointContext) -> i32 {
    switch(&context, Walk::run_bounded)
}

#[inline(always)]
fn switch(context: &RawTracePointContext, run: impl Fn(u32)) -> i32 {
    if !is_on(FAMILY_OFFCPU | FAMILY_GIL) {
        return 0;
    }
    wakes(context);
    let preempted = context.arg::<u64>(0) as u8 != 0;
    if !preempted {
        sleeps(context, run);
    }
    0
}

/// The thread that the CPU turns to was asleep until now.
#[inline(always)]
fn wakes(context: &RawTracePointContext) {
    let Some(tid) = Task(context.arg(2)).pid() else { return };
    let Some(sleeper) = sleeper(tid) else { return };
    if tid == 0 || sleeper.tid != tid || sleeper.since == 0 {
        return;
    }
    // SAFETY: the helper has no preconditions.
    awake(sleeper, unsafe { bpf_ktime_get_ns() });
}

/// A sleep ended at this time.
#[inline(always)]
fn awake(sleeper: &mut Sleeper, now: u64) {
    let since = sleeper.since;
    let (slept, count) = (slept(sleeper, now), sleeper.missed.wrapping_add(1));
    (sleeper.since, sleeper.ended) = (0, now);
    let number = sleeper.place as usize;
    let place = place(sleeper, number);
    place.total = place.total.wrapping_add(slept);
    place.count = place.count.wrapping_add(count);
    let is_much = place.total >= control(control::SLEEP_PERIOD);
    if sleeper.fresh != 0 || is_much {
        tell(sleeper, number, since, now);
    }
}

/// How long the present sleep has been, and those passed over before it: each as long as it, which is right on the average where
/// sleeps are of different lengths. Not where a rare one is that long, so that there is a bound.
#[inline(always)]
fn slept(sleeper: &Sleeper, now: u64) -> u64 {
    let length = now.saturating_sub(sleeper.since);
    let missed = length.wrapping_mul(sleeper.missed.into());
    length + missed.min(sleeper.since.saturating_sub(sleeper.ended).wrapping_mul(GAPS_MAX))
}

#[inline(always)]
fn place(sleeper: &mut Sleeper, number: usize) -> &mut Place {
    // Hidden from the compiler, which would know the mask to be needless; the verifier does not.
    &mut sleeper.places[black_box(number) & (PLACES - 1)]
}

/// Where the place with this key is kept: its own element, or one that is free, or another's whose turn it is to go.
#[inline(always)]
fn slot(sleeper: &mut Sleeper, key: u32) -> usize {
    let home = key as usize % PLACES;
    let mut free = home;
    for probe in (0..PLACES).rev() {
        let number = home ^ probe;
        match place(sleeper, number).key {
            known if known == key => return number,
            0 => free = number,
            _ => {}
        }
    }
    free
}

/// Tells what was slept at a place since it was told of last.
#[inline(always)]
fn tell(sleeper: &mut Sleeper, number: usize, since: u64, now: u64) {
    let (pid, tid) = (sleeper.pid, sleeper.tid);
    let (waker_pid, waker_tid, waker_comm) = (sleeper.waker_pid, sleeper.waker_tid, sleeper.waker_comm);
    let place = place(sleeper, number);
    if place.count == 0 {
        return;
    }
    let mut header = ring::header(record::OFFCPU_WAKE);
    (header.time, header.pid, header.tid) = (now, pid, tid);
    let (stack, total, count) = (place.stack, place.total, place.count);
    (place.total, place.count) = (0, 0);
    let wake = Wake { header, since, stack, total, count, padding: 0, waker_pid, waker_tid, waker_comm };
    // SAFETY: plain integers without padding (pyobs-abi asserts it).
    ring::send(unsafe { core::slice::from_raw_parts((&raw const wake).cast(), size_of::<Wake>()) });
}

/// A thread is at its end: what it has slept is told.
#[inline(always)]
pub fn thread_ends(tid: u32, now: u64) {
    let Some(sleeper) = sleeper(tid) else { return };
    if sleeper.tid != tid {
        return;
    }
    (sleeper.waker_pid, sleeper.waker_tid) = (0, 0);
    for number in 0..PLACES {
        tell(sleeper, number, 0, now);
    }
    (sleeper.tid, sleeper.since) = (0, 0);
}

/// The thread that the CPU turns away from goes to sleep.
#[inline(always)]
fn sleeps(context: &RawTracePointContext, run: impl Fn(u32)) {
    let both = bpf_get_current_pid_tgid();
    let (pid, tid) = ((both >> 32) as u32, both as u32);
    // SAFETY: the value is read while others may update it: a torn one is an address that fails its checks.
    let Some(process) = (unsafe { PROCESSES.get(pid) }) else { return };
    if process.flags & SAMPLED == 0 || Task(context.arg(1)).state().is_none_or(|state| state == 0 || state & DEAD != 0)
    {
        return;
    }
    let Some(sleeper) = sleeper(tid) else { return };
    // SAFETY: the helper has no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    if sleeper.left != 0 && sleeper.since == 0 && sleeper.tid == tid {
        // A thread that sleeps no longer as often as it did is looked at again.
        if now.saturating_sub(sleeper.looked) < control(control::SLEEP_GAP).wrapping_mul(GAPS_MAX) {
            sleeper.left -= 1;
            sleeper.passed += 1;
            return;
        }
    }
    if sleeper.tid != tid || sleeper.pid != pid {
        if sleeper.since != 0 && now.saturating_sub(sleeper.since) < STALE {
            count_loss(loss::SLEEPER);
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
    sleeper.left = passes(sleeper, now);
    (sleeper.missed, sleeper.passed, sleeper.looked) = (sleeper.passed, 0, now);
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
    run(slot);
    walk.send();
    if let Some(holder) = holder {
        hold(process, holder, now, slot, run);
    }
}

/// How many sleeps to pass over after the one that begins now, so that on the average one is looked at for every `SLEEP_GAP`.
/// By chance: else they could all be the same of those that take turns.
#[inline(always)]
fn passes(sleeper: &Sleeper, now: u64) -> u32 {
    let (gap, elapsed) = (control(control::SLEEP_GAP), now.saturating_sub(sleeper.looked));
    if gap == 0 || elapsed == 0 {
        return 0;
    }
    let many = (gap.wrapping_mul(u64::from(sleeper.passed) + 1) / elapsed).min(PASSED_MAX) as u32;
    // SAFETY: the helper has no preconditions.
    let chance = unsafe { bpf_get_prandom_u32() };
    chance % (2 * many + 1)
}

/// Whether the CPU has time for another stack of a place that has one.
#[inline(always)]
fn refreshes(now: u64) -> bool {
    let price = control(control::SLEEP_PERIOD).wrapping_mul(REFRESH);
    // SAFETY: the value of this CPU; the tracepoint cannot be hit again within itself.
    PAID.get_ptr_mut(0).is_some_and(|paid| pays(unsafe { &mut *paid }, price, now))
}

/// Whether who has paid up to some time can pay for a stack.
#[inline(always)]
fn pays(until: &mut u64, price: u64, now: u64) -> bool {
    let paid = (*until).max(now) + price;
    // At the end of its credit there is a stack for each `price`, and chance decides for which sleep: else it would be the
    // one that comes after a long one.
    // SAFETY: the helper has no preconditions.
    let is_lucky = || unsafe { bpf_get_prandom_u32() } & 1 == 0;
    let owed = paid - now;
    if owed > CREDIT * price || (owed > CREDIT / 2 * price && !is_lucky()) {
        return false;
    }
    *until = paid;
    true
}

/// Stafford's variant 13 of the finalizer of MurmurHash3, folded. Never 0.
#[inline(always)]
fn key(call: u32, argument: u64, instruction: u64) -> u32 {
    let mut hash = argument ^ instruction.rotate_left(21) ^ (u64::from(call) << 52);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 32)) as u32 | 8
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
fn hold(process: &Process, state: u64, stack: u64, number: u32, run: impl Fn(u32)) {
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
    run(number);
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
#[raw_tracepoint(tracepoint = "sched_waking")]
pub fn offcpu_waking(context: RawTracePointContext) -> i32 {
    if !is_on(FAMILY_OFFCPU | FAMILY_GIL) {
        return 0;
    }
    let Some(tid) = Task(context.arg(0)).pid() else { return 0 };
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
fn in_interrupt(context: &RawTracePointContext) -> bool {
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
