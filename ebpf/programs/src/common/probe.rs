//! Stacks of threads that come to a probe.
//!
//! These programs can be preempted: the walk's state says whose it is, and a walk that finds another's mark at its end is
//! thrown away.

use core::hint::black_box;

use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    helpers::bpf_get_current_pid_tgid,
    macros::map,
    maps::{PerCpuArray, ProgramArray},
    programs::ProbeContext,
};
use pyobs_abi::{arena::library::Call, process::Process, record::Loss};

use super::{
    maps::count_loss,
    registers::Registers,
    ring,
    walk::{SLOT_PROBE, Walk},
};

/// Nobody walks.
const FREE: u64 = 0;
/// Two have walked with one state.
const SPOILT: u64 = u64::MAX;

/// Whose the CPU's state for walks in probes is.
#[map]
static PROBE_WALKER: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Always empty.
#[map]
static NOWHERE: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Keeps the program of a uprobe on the stack of its thread. Every such program calls it first.
///
/// From Linux 6.13 on, x86-64 puts BPF frames of 64 bytes and more on a stack that belongs to the program and the CPU
/// (`bpf_enable_priv_stack` in kernel/bpf/verifier.c, a857a5c5c4ee and following). That takes for granted that a program is
/// not entered on a CPU where it already runs. Programs of uprobes can be preempted and nothing keeps a second thread out, so
/// two threads overwrite each other's variables, and the kernel reads through garbage ("BUG: unable to handle page fault",
/// seen on Debian's 6.18 and 7.3). A program with a tail call never gets such a stack, even if the call is never reached.
#[inline(always)]
pub fn stay_on_the_threads_stack(context: &ProbeContext) {
    // The compiler cannot tell that this is false; the verifier can, and takes the call out again.
    if black_box(false) {
        // SAFETY: the map is empty, and nothing is held that an end of the program would leak.
        unsafe { NOWHERE.tail_call(context, 0) };
    }
}

/// Sends a record of this kind with the current thread's stack.
#[inline(always)]
pub fn send_stack(context: &ProbeContext, process: &Process, kind: u32, detail: [u64; 2]) {
    let registers: *const pt_regs = context.as_ptr().cast();
    // SAFETY: the context of a uprobe's program is a pt_regs; the verifier checks each access.
    let here = unsafe { Registers::running((*registers).rip, (*registers).rsp, (*registers).rbp) };
    let Some(walker) = PROBE_WALKER.get_ptr_mut(0) else { return };
    let own = bpf_get_current_pid_tgid();
    // SAFETY: the pointer is into this CPU's slot; who else may come between is what the mark is for.
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

/// The first six arguments of a function that begins.
#[inline(always)]
pub fn arguments(context: &ProbeContext) -> [u64; 6] {
    let registers: *const pt_regs = context.as_ptr().cast();
    let word = |at: *const u64| {
        // SAFETY: the context of a uprobe's program is a pt_regs; the verifier checks each access. Volatile, for the
        // compiler must not merge these loads with those of a map's value.
        unsafe { at.read_volatile() }
    };
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

/// At its first instruction and at its last, a function's return address is on top of the stack.
#[inline(always)]
pub fn call(context: &ProbeContext) -> Call {
    let registers: *const pt_regs = context.as_ptr().cast();
    // SAFETY: as in `arguments`.
    let stack = unsafe { (&raw const (*registers).rsp).read_volatile() };
    Call { thread: bpf_get_current_pid_tgid(), stack }
}
