//! The family `nrt`: MemInfos of Numba's runtime, at the ends of the functions that make them and at the beginning of the one
//! that frees them.

use aya_ebpf::{EbpfContext, bindings::pt_regs, macros::uprobe, programs::ProbeContext};
use pyobs_abi::{
    nrt::{DATA, Death, extent},
    record,
};

use crate::common::{maps::watched, memory::user, probe, ring};

/// A function that makes a MemInfo is going to return it.
#[uprobe]
pub fn nrt_birth(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    let Some(process) = watched() else { return 0 };
    let registers: *const pt_regs = context.as_ptr().cast();
    // SAFETY: the context of a uprobe's program is a pt_regs; the verifier checks each access.
    let address = unsafe { (*registers).rax };
    if address == 0 {
        return 0;
    }
    let [data, size] = user::<[u64; 2]>(address.wrapping_add(DATA)).unwrap_or([0; 2]);
    let detail = [address, extent(address, data, size)];
    probe::send_stack(&context, process, record::NRT_BIRTH, detail);
    0
}

/// A MemInfo, the function's argument, is going to be freed.
#[uprobe]
pub fn nrt_death(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
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
