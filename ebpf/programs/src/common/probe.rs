//! What programs of uprobes share: arguments and results, the key of a call, and stacks.
//!
//! These programs can be preempted, and then another can run on the same CPU. So the walk state is marked with the
//! thread that uses it, and a walk that finds another mark at its end is thrown away.

use core::hint::black_box;

use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    helpers::{bpf_get_current_pid_tgid, generated::bpf_get_attach_cookie},
    macros::map,
    maps::{PerCpuArray, ProgramArray},
    programs::ProbeContext,
};
use pyobs_abi::{probe::Call, process::Process, record::Loss};

use super::{
    maps::count_loss,
    registers::Registers,
    ring,
    walk::{SLOT_PROBE, Walk},
};

/// No thread walks.
const FREE: u64 = 0;
/// Two threads have walked with one state.
const SPOILT: u64 = u64::MAX;

/// The thread that uses the CPU's walk state for probes.
#[map]
static PROBE_WALKER: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Always empty.
#[map]
static NOWHERE: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Keeps the program of a uprobe on the stack of its thread. Every such program calls it first.
///
/// From Linux 6.13 on, x86-64 puts BPF frames of 64 bytes and more on a stack that belongs to the program and the CPU
/// (`bpf_enable_priv_stack` in <https://github.com/torvalds/linux/blob/v6.13/kernel/bpf/verifier.c>, commit a857a5c5c4ee
/// and following). That relies on a program not being entered again on a CPU where it already runs. Programs of uprobes
/// can be preempted and nothing keeps a second thread out, so two threads overwrite each other's variables, and the
/// kernel reads through garbage ("BUG: unable to handle page fault", seen on Debian's 6.18 and 7.3). A program with a
/// tail call never gets such a stack, even if the call is never reached.
#[inline(always)]
pub fn stay_on_the_threads_stack(context: &ProbeContext) {
    // The compiler cannot tell that this is false. The verifier can, and removes the call.
    if black_box(false) {
        // SAFETY: the map is empty, and nothing is held that an end of the program would leak.
        unsafe { NOWHERE.tail_call(context, 0) };
    }
}

/// Sends a record of this kind with the stack of the current thread.
#[inline(always)]
pub fn send_stack(context: &ProbeContext, process: &Process, kind: u32, detail: [u64; 2]) {
    let registers = registers(context);
    // SAFETY: as `registers` says.
    let here = unsafe { Registers::running((*registers).rip, (*registers).rsp, (*registers).rbp) };
    let Some(walker) = PROBE_WALKER.get_ptr_mut(0) else { return };
    let own = bpf_get_current_pid_tgid();
    // SAFETY: the pointer is into this CPU's slot; the mark shows if another thread came in between.
    unsafe {
        let mark = walker.read_volatile();
        if mark != FREE && mark != SPOILT {
            return count_loss(Loss::WalkTaken);
        }
        walker.write_volatile(own);
    }
    let number = Walk::number(SLOT_PROBE);
    let Some(walk) = Walk::begin(number, SLOT_PROBE) else { return };
    walk.sample.header = ring::header(kind);
    walk.sample.detail = detail;
    walk.start(process, &here);
    Walk::run(number);
    // SAFETY: as above.
    unsafe {
        let mark = walker.read_volatile();
        if mark == own {
            walk.send();
            walker.write_volatile(FREE);
        } else {
            walker.write_volatile(if mark == SPOILT { FREE } else { SPOILT });
            count_loss(Loss::WalkTaken);
        }
    }
}

/// Returns the registers at the probe. The context of a uprobe's program is a `pt_regs`, and the verifier checks each
/// access.
#[inline(always)]
pub fn registers(context: &ProbeContext) -> *const pt_regs {
    context.as_ptr().cast_const().cast()
}

/// Reads a register by one load: the compiler must not merge it with loads from a map's value, because the verifier
/// takes an instruction for one kind of pointer only.
#[inline(always)]
fn word(at: *const u64) -> u64 {
    // SAFETY: callers pass the address of a field of the registers.
    unsafe { at.read_volatile() }
}

/// Returns the first six arguments, at the beginning of a function.
#[inline(always)]
pub fn arguments(context: &ProbeContext) -> [u64; 6] {
    let registers = registers(context);
    // SAFETY: only addresses of fields are taken.
    unsafe {
        [
            word(&raw const (*registers).rdi),
            word(&raw const (*registers).rsi),
            word(&raw const (*registers).rdx),
            word(&raw const (*registers).rcx),
            word(&raw const (*registers).r8),
            word(&raw const (*registers).r9),
        ]
    }
}

/// Returns the result, at the end of a function.
#[inline(always)]
pub fn result(context: &ProbeContext) -> u64 {
    // SAFETY: only the field's address is taken.
    word(unsafe { &raw const (*registers(context)).rax })
}

/// Returns the number that user space attached the probe with.
#[inline(always)]
pub fn cookie(context: &ProbeContext) -> u64 {
    // SAFETY: the helper takes the context of a program that is attached to a perf event.
    unsafe { bpf_get_attach_cookie(context.as_ptr()) }
}

/// Returns the key of the call, at the first or the last instruction of a function, where the return address is on top
/// of the stack.
#[inline(always)]
pub fn call(context: &ProbeContext) -> Call {
    // SAFETY: only the field's address is taken.
    let stack = word(unsafe { &raw const (*registers(context)).rsp });
    Call { thread: bpf_get_current_pid_tgid(), stack }
}
