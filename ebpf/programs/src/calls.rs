//! System calls, for all families that have to do with some: [`shm`], [`arena`], and new [`code`].
//!
//! The kernel has a tracepoint for the beginning and the end of each call by its name: with these, others than the two dozen of
//! `pyobs_abi::calls` run no program. Where user space cannot attach to them it takes those of all calls, and the programs
//! find out which it is.
//!
//! Stack: the kernel adds up the frames along each chain of subprograms and callbacks, rounds each up (to 32 bytes on Linux 6.1, to
//! 16 on 6.12), and refuses more than 512 bytes (kernel/bpf/verifier.c, check_max_stack_depth). So these two programs only
//! dispatch, and each system call has a subprogram of its own: inlined, the records and walks of all of them would share one frame.

use aya_ebpf::{
    EbpfContext,
    macros::{btf_tracepoint, tracepoint},
    programs::{BtfTracePointContext, TracePointContext},
};
use pyobs_abi::{
    calls::number,
    control::{FAMILY_ARENA, FAMILY_SHM},
    record, stack,
};

use crate::{
    arena, code,
    common::{
        maps::{is_on, watched},
        registers::Registers,
        ring,
        system_call::Call,
        walk::{SLOT_TASK, Walk},
    },
    shm,
};

/// Of mmap(2) and mprotect(2), in their third argument.
const PROT_EXEC: u64 = 4;

/// What programs at the tracepoints of single calls are given: `struct syscall_tp_t` (kernel/trace/trace_syscalls.c).
#[repr(C)]
struct Traced {
    common: u64,
    number: u32,
    padding: u32,
    /// At a call's end, what it returns.
    result: i64,
}

impl Traced {
    #[inline(always)]
    fn of(context: &TracePointContext) -> *const Self {
        context.as_ptr().cast_const().cast()
    }
}

/// `syscalls:sys_enter_*`
#[tracepoint]
pub fn calls_begin(context: TracePointContext) -> u32 {
    // SAFETY: the verifier checks the access, as those below.
    begin(unsafe { (&raw const (*Traced::of(&context)).number).read_volatile() });
    0
}

/// `syscalls:sys_exit_*`
#[tracepoint]
pub fn calls_end(context: TracePointContext) -> u32 {
    let traced = Traced::of(&context);
    // SAFETY: as above.
    let (number, result) =
        unsafe { ((&raw const (*traced).number).read_volatile(), (&raw const (*traced).result).read_volatile()) };
    end(number, result);
    0
}

/// `sys_enter(struct pt_regs *regs, long id)`
#[btf_tracepoint(function = "sys_enter")]
pub fn calls_begin_all(context: BtfTracePointContext) -> i32 {
    begin(context.arg::<u64>(1) as u32);
    0
}

/// `sys_exit(struct pt_regs *regs, long ret)`
#[btf_tracepoint(function = "sys_exit")]
pub fn calls_end_all(context: BtfTracePointContext) -> i32 {
    end(Call::current().number(), context.arg(1));
    0
}

#[inline(always)]
fn begin(number: u32) {
    if !shm::begins_with(number) {
        return;
    }
    let call = Call::current();
    if number == number::MUNMAP && is_on(FAMILY_ARENA) {
        arena::unmapped(&call);
    }
    shm::begins(number, &call);
}

#[inline(always)]
fn end(number: u32, result: i64) {
    if result < 0 {
        return;
    }
    let call = Call::current();
    match number {
        number::MMAP if call.third() & PROT_EXEC != 0 => code::mapped(&call),
        number::MPROTECT | number::PKEY_MPROTECT if call.third() & PROT_EXEC != 0 => code::allowed(call.first()),
        _ => {}
    }
    if number == number::MMAP && is_on(FAMILY_ARENA) && arena::is_one(&call) {
        birth(record::ARENA_BIRTH, [result as u64, call.second()]);
    } else if is_on(FAMILY_SHM)
        && let Some(key) = shm::ended(number, &call, result as u64)
    {
        birth(record::SHM_BIRTH, [key.ino, key.dev.into()]);
    }
}

/// Sends where a segment was made, or an arena, if it was in a watched process. User space should look at once: a program
/// that only makes a segment may end in a moment, and its names with it. Not inlined, to keep the caller's frame small.
#[inline(never)]
fn birth(kind: u32, detail: [u64; 2]) {
    let Some(process) = watched() else { return };
    let registers = Registers::saved();
    let number = Walk::number(SLOT_TASK);
    let Some(walk) = Walk::begin(number, SLOT_TASK) else { return };
    walk.sample.flags |= stack::flags::KERNEL_MODE;
    walk.sample.header = ring::header(kind);
    walk.sample.detail = detail;
    walk.start(process, &registers);
    Walk::run(number);
    ring::send_now(walk.record());
}
