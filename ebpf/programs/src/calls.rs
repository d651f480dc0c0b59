//! The programs at system calls, for all families that need some: [`shm`], [`arena`], [`heap`], and [`code`] for new
//! executable code.
//!
//! Any program at a system call makes the kernel take a slower path into and out of every system call of the machine.
//! So they are attached only when a family needs them; [`crate::mappings`] has what does without.
//!
//! The kernel has a tracepoint for the beginning and the end of each system call. With these, only the calls listed in
//! `pyobs_abi::calls` run a program. If user space cannot attach to them, it attaches to those of all calls, and the
//! programs select by number.
//!
//! Stack: the kernel adds up the frames along each chain of subprograms and callbacks, each rounded up (to 32 bytes on
//! Linux 6.1, to 16 on 6.12), and refuses more than 512 bytes (`check_max_stack_depth` in
//! <https://github.com/torvalds/linux/blob/v6.1/kernel/bpf/verifier.c>). So these two programs only dispatch, and each
//! system call has a subprogram of its own. Inlined, the records and walks of all calls would share one frame.

use aya_ebpf::{
    EbpfContext,
    macros::{btf_tracepoint, tracepoint},
    programs::{BtfTracePointContext, TracePointContext},
};
use pyobs_abi::{
    calls::number,
    control::{AT_MAPPINGS, FAMILIES, FAMILY_ARENA, FAMILY_HEAP, FAMILY_SHM},
    heap::BLOCK_MIN,
    record, stack,
};

use crate::{
    arena, code,
    common::{
        maps::{control, watched},
        registers::Registers,
        ring::{self, Route},
        system_call::Call,
        walk::{SLOT_TASK, Walk},
    },
    heap, shm,
};

/// A bit of the third argument of mmap(2) and mprotect(2).
const PROT_EXEC: u64 = 4;

/// The context at the tracepoints of single calls: `struct syscall_tp_t` in
/// <https://github.com/torvalds/linux/blob/v6.1/kernel/trace/trace_syscalls.c>.
#[repr(C)]
struct Traced {
    common: u64,
    number: u32,
    padding: u32,
    /// At the end of a call, its result.
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
    if !shm::handles_begin(number) {
        return;
    }
    let call = Call::current();
    if number == number::MUNMAP {
        let families = families_here();
        if families & FAMILY_ARENA != 0 {
            arena::report_unmapped(&call);
        }
        if families & FAMILY_HEAP != 0 {
            heap::report_unmapped(&call);
        }
    }
    shm::begin_call(number, &call);
}

#[inline(always)]
fn end(number: u32, result: i64) {
    if result < 0 {
        return;
    }
    let call = Call::current();
    match number {
        number::MMAP if call.third() & PROT_EXEC != 0 => code::report_mmap(&call),
        number::MPROTECT | number::PKEY_MPROTECT if call.third() & PROT_EXEC != 0 => {
            code::report_mprotect(call.first())
        }
        _ => {}
    }
    let families = families_here();
    if number == number::MMAP {
        mapped(&call, result as u64, families);
        return;
    }
    if number == number::MREMAP && families & FAMILY_HEAP != 0 && result as u64 != call.first() {
        moved(&call, result as u64);
    }
    if families & FAMILY_SHM != 0
        && let Some(key) = shm::end_call(number, &call, result as u64)
    {
        send_birth(record::SHM_BIRTH, [key.ino, key.dev.into()]);
    }
}

/// The families that are on and have their mappings reported at system calls.
#[inline(always)]
fn families_here() -> u64 {
    control(FAMILIES) & !control(AT_MAPPINGS)
}

/// The current process maps memory at this address with mmap(2), for these families.
#[inline(always)]
pub fn mapped(call: &Call, start: u64, families: u64) {
    if families & FAMILY_ARENA != 0 && arena::is_arena(call) {
        send_birth(record::ARENA_BIRTH, [start, call.second()]);
    } else if families & FAMILY_HEAP != 0 && heap::is_block(call) {
        send_birth(record::HEAP_MAPPED, [start, call.second()]);
    } else if families & FAMILY_SHM != 0
        && let Some(key) = shm::mapped(call, start)
    {
        send_birth(record::SHM_BIRTH, [key.ino, key.dev.into()]);
    }
}

/// The current process moves memory to this address with mremap(2).
#[inline(always)]
pub fn moved(call: &Call, to: u64) {
    heap::report_moved(call, to);
    if call.third() >= BLOCK_MIN {
        send_birth(record::HEAP_MAPPED, [to, call.third()]);
    }
}

/// Sends the stack of a watched process that made a segment, an arena or a block. Segments and arenas wake user space: a
/// program that only makes a segment may exit at once, and then its functions can no longer be named. Not inlined, to
/// keep the caller's frame small.
#[inline(never)]
fn send_birth(kind: u32, detail: [u64; 2]) {
    let Some(process) = watched() else { return };
    let registers = Registers::saved();
    let number = Walk::number(SLOT_TASK);
    let Some(walk) = Walk::begin(number, SLOT_TASK) else { return };
    walk.sample.flags |= stack::flags::KERNEL_MODE;
    walk.sample.header = ring::header(kind);
    walk.sample.detail = detail;
    walk.start(process, &registers);
    Walk::run(number);
    if kind == record::HEAP_MAPPED {
        walk.send();
    } else {
        ring::send(walk.record(), Route::urgent());
    }
}
