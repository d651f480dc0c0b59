//! The family `cpu`: at each tick of a CPU, the stack of the thread that runs there.

use aya_ebpf::{
    EbpfContext, bindings::bpf_perf_event_data, helpers::generated::bpf_get_stack, macros::perf_event,
    programs::PerfEventContext,
};
use pyobs_abi::{
    process::{Process, SAMPLED},
    record::{self, Loss},
    stack::{KERNEL_MAX, flags},
};

use crate::common::{
    maps::{count_loss, pid, process, tick_weight},
    registers::Registers,
    ring,
    walk::{SLOT_INTERRUPT, Walk},
};

#[perf_event]
pub fn cpu_sample(context: PerfEventContext) -> u32 {
    sample(&context, |_, _| ())
}

/// Walks the thread and sends its stack, then calls `then`.
#[inline(always)]
pub fn sample(context: &PerfEventContext, then: impl Fn(&Walk, &Registers)) -> u32 {
    let Some((number, walk, process)) = begin() else { return 0 };
    let registers = registers(context, walk);
    if walk.sample.flags & flags::KERNEL_MODE != 0 {
        kernel_stack(context, walk);
    }
    walk.start(process, &registers);
    Walk::run(number);
    walk.send();
    then(walk, &registers);
    0
}

/// The walk of the thread that runs on this CPU, and its process; `None` if it is not sampled.
#[inline(always)]
fn begin() -> Option<(u32, &'static mut Walk, &'static Process)> {
    let tgid = pid();
    if tgid == 0 {
        return None; // the idle thread
    }
    let process = process(tgid)?;
    if process.flags & SAMPLED == 0 {
        return None;
    }
    let weight = tick_weight()?;
    let number = Walk::number(SLOT_INTERRUPT);
    let walk = Walk::begin(number, SLOT_INTERRUPT)?;
    walk.sample.header = ring::header(record::CPU_SAMPLE);
    walk.sample.weight = weight;
    Some((number, walk, process))
}

/// Returns the registers of user space: the interrupted ones if the thread was in user mode, else those saved at kernel
/// entry.
#[inline(always)]
fn registers(context: &PerfEventContext, walk: &mut Walk) -> Registers {
    let data: *const bpf_perf_event_data = context.as_ptr().cast();
    // SAFETY: the context of a perf event program is a bpf_perf_event_data; the verifier checks each access.
    unsafe {
        if (*data).regs.cs & 3 == 3 {
            return Registers::running((*data).regs.rip, (*data).regs.rsp, (*data).regs.rbp);
        }
    }
    walk.sample.flags |= flags::KERNEL_MODE;
    Registers::saved()
}

#[inline(always)]
fn kernel_stack(context: &PerfEventContext, walk: &mut Walk) {
    let bytes = (KERNEL_MAX * 8) as u32;
    // SAFETY: the buffer holds KERNEL_MAX words.
    let length = unsafe { bpf_get_stack(context.as_ptr(), walk.words.as_mut_ptr().cast(), bytes, 0) };
    if length < 0 {
        count_loss(Loss::KernelStack);
        return;
    }
    walk.sample.kernel_frames = (length as u32 / 8).min(KERNEL_MAX as u32);
}
