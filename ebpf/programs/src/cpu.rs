//! The family `cpu`: on each tick of a CPU, the stack of the thread that runs there.

use aya_ebpf::{
    EbpfContext,
    bindings::{bpf_perf_event_data, pt_regs},
    helpers::{
        bpf_get_current_pid_tgid, bpf_get_current_task_btf,
        generated::{bpf_get_stack, bpf_task_pt_regs},
    },
    macros::perf_event,
    programs::PerfEventContext,
};
use pyobs_abi::{
    cpu::{KERNEL_MODE, walk},
    process::{PYTHON, Process, SAMPLED},
    record::{self, loss},
    stack::KERNEL_MAX,
};

use crate::common::{
    cpython::{Top, top_frame},
    maps::{LAYOUTS, PROCESSES, count_loss, tick_is_kept},
    ring,
    walk::Walk,
};

#[perf_event]
pub fn cpu_sample(context: PerfEventContext) -> u32 {
    sample(&context, Walk::run)
}

/// For kernels without `bpf_loop`.
#[perf_event]
pub fn cpu_sample_bounded(context: PerfEventContext) -> u32 {
    sample(&context, Walk::run_bounded)
}

#[inline(always)]
fn sample(context: &PerfEventContext, run: impl Fn(&mut Walk)) -> u32 {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    if tgid == 0 {
        return 0; // the idle thread
    }
    // SAFETY: the value is read while other CPUs may update it: a torn one is an address that fails its checks.
    let Some(process) = (unsafe { PROCESSES.get(tgid) }) else { return 0 };
    if process.flags & SAMPLED == 0 {
        return 0;
    }
    if !tick_is_kept() {
        return 0;
    }
    let Some(walk) = Walk::mine() else { return 0 };
    walk.sample.header = ring::header(record::CPU_SAMPLE);
    walk.sample.walk = walk::NO_PYTHON;
    walk.sample.frames = 0;
    walk.sample.kernel_frames = 0;
    registers(context, walk);
    if walk.sample.flags & KERNEL_MODE != 0 {
        kernel_stack(context, walk);
    }
    if process.flags & PYTHON != 0 {
        python(process, walk, run);
    }
    ring::send(walk.record());
    0
}

/// Where the thread was: the interrupted registers when that was in user mode, else those saved at kernel entry.
#[inline(always)]
fn registers(context: &PerfEventContext, walk: &mut Walk) {
    let data: *const bpf_perf_event_data = context.as_ptr().cast();
    // SAFETY: the context of a perf event program is a bpf_perf_event_data; the verifier checks each access.
    unsafe {
        if (*data).regs.cs & 3 == 3 {
            walk.sample.flags = 0;
            walk.sample.user_pc = (*data).regs.rip;
        } else {
            let saved = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const pt_regs;
            walk.sample.flags = KERNEL_MODE;
            walk.sample.user_pc = (*saved).rip;
        }
    }
}

#[inline(always)]
fn kernel_stack(context: &PerfEventContext, walk: &mut Walk) {
    let bytes = (KERNEL_MAX * 8) as u32;
    // SAFETY: the buffer holds KERNEL_MAX words.
    let length = unsafe { bpf_get_stack(context.as_ptr(), walk.words.as_mut_ptr().cast(), bytes, 0) };
    if length < 0 {
        count_loss(loss::KERNEL_STACK);
        return;
    }
    walk.sample.kernel_frames = (length as u32 / 8).min(KERNEL_MAX as u32);
}

#[inline(always)]
fn python(process: &Process, walk: &mut Walk, run: impl Fn(&mut Walk)) {
    let Some(layout) = LAYOUTS.get(process.layout) else { return };
    let pc = if walk.sample.flags & KERNEL_MODE == 0 { walk.sample.user_pc } else { 0 };
    match top_frame(process, layout, pc) {
        Top::Nothing => {}
        Top::Unreadable => walk.sample.walk = walk::THREAD_STATE_UNREADABLE,
        Top::Frame(frame) => {
            walk.start(layout, frame);
            run(walk);
        }
    }
}
