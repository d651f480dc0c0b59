//! The family `nrt`: MemInfos of Numba's runtime, at the ends of the functions that make them and at the beginning of the one
//! that frees them.
//!
//! These are uprobes, and can be preempted: the walk's state says whose it is, and a walk that finds another's mark at its
//! end is thrown away.

use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    helpers::bpf_get_current_pid_tgid,
    macros::{map, uprobe},
    maps::PerCpuArray,
    programs::ProbeContext,
};
use pyobs_abi::{
    nrt::{Death, SIZE},
    record::{self, loss},
};

use crate::{
    common::{
        maps::count_loss,
        memory::user,
        registers::Registers,
        ring,
        walk::{SLOT_PROBE, Walk},
    },
    shm::watched,
};

/// Nobody walks.
const FREE: u64 = 0;
/// Two have walked with one state.
const SPOILT: u64 = u64::MAX;

/// Whose the CPU's state for walks in probes is.
#[map]
static NRT_WALKER: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// A function that makes a MemInfo is going to return it.
#[uprobe]
pub fn nrt_birth(context: ProbeContext) -> u32 {
    birth(&context, Walk::run)
}

/// For kernels without `bpf_loop`.
#[uprobe]
pub fn nrt_birth_bounded(context: ProbeContext) -> u32 {
    birth(&context, Walk::run_bounded)
}

#[inline(always)]
fn birth(context: &ProbeContext, run: impl Fn(u32)) -> u32 {
    let Some(process) = watched() else { return 0 };
    let registers: *const pt_regs = context.as_ptr().cast();
    // SAFETY: the context of a uprobe's program is a pt_regs; the verifier checks each access.
    let (address, here) =
        unsafe { ((*registers).rax, Registers::running((*registers).rip, (*registers).rsp, (*registers).rbp)) };
    if address == 0 {
        return 0;
    }
    let Some(walker) = NRT_WALKER.get_ptr_mut(0) else { return 0 };
    let own = bpf_get_current_pid_tgid();
    // SAFETY: the pointer is into this CPU's slot; who else may come between is what the mark is for.
    unsafe {
        let mark = walker.read_volatile();
        if mark != FREE && mark != SPOILT {
            count_loss(loss::WALK_TAKEN);
            return 0;
        }
        walker.write_volatile(own);
    }
    let number = Walk::number(SLOT_PROBE);
    let Some(walk) = Walk::begin(number, SLOT_PROBE) else { return 0 };
    walk.sample.header = ring::header(record::NRT_BIRTH);
    walk.sample.detail = [address, user(address.wrapping_add(SIZE)).unwrap_or(0)];
    walk.start(process, &here);
    run(number);
    // SAFETY: as above.
    unsafe {
        let mark = walker.read_volatile();
        if mark == own {
            ring::send(walk.record());
            walker.write_volatile(FREE);
        } else {
            walker.write_volatile(if mark == SPOILT { FREE } else { SPOILT });
            count_loss(loss::WALK_TAKEN);
        }
    }
    0
}

/// A MemInfo, the function's argument, is going to be freed.
#[uprobe]
pub fn nrt_death(context: ProbeContext) -> u32 {
    if watched().is_none() {
        return 0;
    }
    let registers: *const pt_regs = context.as_ptr().cast();
    // SAFETY: as in `birth`.
    let address = unsafe { (*registers).rdi };
    let death = Death { header: ring::header(record::NRT_DEATH), address };
    // SAFETY: plain integers without padding (pyobs-abi asserts it).
    ring::send(unsafe { core::slice::from_raw_parts((&raw const death).cast(), size_of::<Death>()) });
    0
}
