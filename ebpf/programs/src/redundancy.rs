//! The family `redundancy`: registers of samples in native code that Python called, and traps of watchpoints.

mod prints;

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, bpf_perf_event_data},
    helpers::{
        bpf_get_current_pid_tgid, bpf_ktime_get_ns,
        generated::{bpf_get_prandom_u32, bpf_probe_read_user},
    },
    macros::{map, perf_event},
    maps::{HashMap, PerCpuArray, RingBuf},
    programs::PerfEventContext,
};
use pyobs_abi::{
    control,
    process::{Layout, Process},
    record::{self, Loss},
    redundancy::{NATIVE, PASSED_OVER, Registers, STACK, Trap, Watch, WatchKey},
    stack::{flags, loop_count},
};

use crate::{
    common::{
        cpython::{Top, innermost, instruction, top_frame},
        maps::{LAYOUTS, PROCESSES, control, count_loss},
        memory::user,
        registers, ring,
        task::thread_pointer,
        walk::{SLOT_TASK, Walk},
    },
    cpu,
};

/// Registers and traps. User space sets the size.
#[map]
static REDUNDANCY_RING: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// The watchpoints that are set, which user space writes before it sets them.
#[map]
static REDUNDANCY_WATCHES: HashMap<WatchKey, Watch> = HashMap::with_max_entries(4096, 0);

/// The words of a frame that are looked at: from its beginning, or for frames whose variables lie far behind from its
/// instruction on.
const FRAME_WORDS: usize = 32;
const LONG_WORDS: usize = 56;

#[map]
static REDUNDANCY_FRAME: PerCpuArray<[u64; LONG_WORDS]> = PerCpuArray::with_max_entries(1, 0);

/// What `cpu_sample` does, and then the registers.
#[perf_event]
pub fn redundancy_sample(context: PerfEventContext) -> u32 {
    cpu::sample(&context, |walk, _| send_registers(&context, walk, 0))
}

/// A sample of the processor's, of an access. Of instructions without one (AMD's) there is no address.
#[perf_event]
pub fn redundancy_access(context: PerfEventContext) -> u32 {
    let data: *const bpf_perf_event_data = context.as_ptr().cast();
    // SAFETY: the context of a perf event program is a bpf_perf_event_data; the verifier checks each access.
    let address = unsafe { (&raw const (*data).addr).read_volatile() };
    if address == 0 {
        return 0;
    }
    cpu::look(&context, |walk| send_registers(&context, walk, address))
}

#[inline(always)]
fn send_registers(context: &PerfEventContext, walk: &Walk, address: u64) {
    let sample = &walk.sample;
    if sample.flags & flags::KERNEL_MODE != 0 || sample.frames == 0 || sample.native_frames < 2 {
        return;
    }
    // The interpreter's own accesses are of no interest.
    if loop_count(walk.words[0]).is_some() {
        return;
    }
    let Some(mut entry) = REDUNDANCY_RING.reserve::<Registers>(0) else { return count_loss(Loss::RingFull) };
    // SAFETY: the record is ours until it is sent, and all of it that is read is written; the context of a perf event program is
    // a bpf_perf_event_data, of which the verifier checks each access.
    unsafe {
        let record = entry.as_mut_ptr();
        let regs = &raw const (*context.as_ptr().cast::<bpf_perf_event_data>()).regs;
        (*record).header = sample.header;
        (*record).header.kind = record::REDUNDANCY_REGISTERS;
        (*record).general = [
            (&raw const (*regs).rax).read_volatile(),
            (&raw const (*regs).rcx).read_volatile(),
            (&raw const (*regs).rdx).read_volatile(),
            (&raw const (*regs).rbx).read_volatile(),
            (&raw const (*regs).rsp).read_volatile(),
            (&raw const (*regs).rbp).read_volatile(),
            (&raw const (*regs).rsi).read_volatile(),
            (&raw const (*regs).rdi).read_volatile(),
            (&raw const (*regs).r8).read_volatile(),
            (&raw const (*regs).r9).read_volatile(),
            (&raw const (*regs).r10).read_volatile(),
            (&raw const (*regs).r11).read_volatile(),
            (&raw const (*regs).r12).read_volatile(),
            (&raw const (*regs).r13).read_volatile(),
            (&raw const (*regs).r14).read_volatile(),
            (&raw const (*regs).r15).read_volatile(),
        ];
        (*record).ip = (&raw const (*regs).rip).read_volatile();
        (*record).flags = (&raw const (*regs).eflags).read_volatile();
        (*record).address = address;
        (*record).thread_pointer = thread_pointer();
        (*record).frame = innermost(&walk.layout, walk.top);
        (*record).natives = sample.native_frames.min(NATIVE as u32);
        for index in 0..NATIVE {
            (*record).native[index] = walk.words[index];
        }
        if is_passed_over() {
            (*record).words = PASSED_OVER;
            return entry.submit(BPF_RB_NO_WAKEUP.into());
        }
        let (stack, bytes) = ((&raw mut (*record).stack).cast::<c_void>(), (STACK * 8) as u32);
        let sp = (*record).general[4] as *const c_void;
        let failed = bpf_probe_read_user(stack, bytes, sp) != 0;
        (*record).words = if failed { 0 } else { STACK as u32 };
        let innermost = walk.innermost();
        ((*record).code, (*record).detail) = (innermost.address, innermost.detail);
        prints::operands(record);
    }
    entry.submit(BPF_RB_FORCE_WAKEUP.into());
}

/// At random, for what is watched may come and go with the samples.
#[inline(always)]
fn is_passed_over() -> bool {
    let every = control(control::LOOK_EVERY);
    // SAFETY: the helper has no preconditions.
    every > 1 && u64::from(unsafe { bpf_get_prandom_u32() }) % every != 0
}

/// A watchpoint was hit. It comes between two instructions of user space, with interrupts off: nobody else walks in this
/// slot meanwhile. Not by `#[perf_event]`, which returns 0 whatever the function does.
#[unsafe(no_mangle)]
#[unsafe(link_section = "perf_event")]
pub extern "C" fn redundancy_trap(context: *mut c_void) -> u32 {
    u32::from(trap(&PerfEventContext::new(context.cast())).is_none())
}

/// `None` when it was the last that this watchpoint is to see, or nobody knows it: 1 has the kernel take it off, before the
/// thread goes on.
#[inline(always)]
fn trap(context: &PerfEventContext) -> Option<()> {
    let both = bpf_get_current_pid_tgid();
    let data: *const bpf_perf_event_data = context.as_ptr().cast();
    // SAFETY: the context of a perf event program is a bpf_perf_event_data; the verifier checks each access.
    let (address, here) = unsafe {
        let regs = &raw const (*data).regs;
        let ip = (&raw const (*regs).rip).read_volatile();
        let sp = (&raw const (*regs).rsp).read_volatile();
        let bp = (&raw const (*regs).rbp).read_volatile();
        ((&raw const (*data).addr).read_volatile(), registers::Registers::running(ip, sp, bp))
    };
    let key = WatchKey { tid: both as u32, padding: 0, address };
    let watch = REDUNDANCY_WATCHES.get_ptr_mut(key)?;
    // SAFETY: only the thread that is watched, which is here, writes it while it is set.
    let watch = unsafe { &mut *watch };
    if watch.is_over() {
        return None;
    }
    // SAFETY: a torn value is an address that fails its checks.
    let process = unsafe { PROCESSES.get((both >> 32) as u32) };
    let Some((process, layout)) = process.and_then(|process| Some((process, LAYOUTS.get(process.layout)?))) else {
        // The event ends with this trap: user space has to see it.
        watch.calls = watch.calls_max;
        return None;
    };
    watch.traps += 1;
    let seen = if watch.instruction != 0 { result(process, layout, watch) } else { memory(process, layout, watch) };
    let Some(seen) = seen else { return Some(()) };
    if seen.is_new {
        watch.calls += 1;
        watch.stack = watch.traps;
        stack(process, &here, watch);
    }
    let is_last = watch.is_over();
    let rest = (!is_last).then_some(());
    let Some(mut entry) = REDUNDANCY_RING.reserve::<Trap>(0) else {
        count_loss(Loss::RingFull);
        return rest;
    };
    // SAFETY: the record is ours until it is sent, and all of it is written.
    unsafe {
        let trap = entry.as_mut_ptr();
        (*trap).header = ring::header(record::REDUNDANCY_TRAP);
        ((*trap).id, (*trap).ip) = (watch.id, here.ip);
        ((*trap).value, (*trap).class, (*trap).call) = (seen.value, seen.class, watch.call);
        ((*trap).number, (*trap).stack) = (watch.traps, watch.stack);
        ((*trap).last, (*trap).read) = (u32::from(is_last), u32::from(seen.read));
    }
    let wake = if is_last { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP };
    entry.submit(wake.into());
    rest
}

/// What a trap came upon.
struct Seen {
    value: u64,
    class: u64,
    read: bool,
    /// It is the first of its call, whose stack is taken.
    is_new: bool,
}

/// An access of memory.
#[inline(always)]
fn memory(process: &Process, layout: &Layout, watch: &mut Watch) -> Option<Seen> {
    let mut value = 0u64;
    let length = black_box(watch.read_length);
    if length == 0 || length > 8 {
        return None;
    }
    // SAFETY: the value holds eight bytes; the helper checks the source.
    let read = unsafe { bpf_probe_read_user((&raw mut value).cast(), length, watch.read_address as *const c_void) };
    let call = call_here(process, layout);
    let is_new = call != watch.call || watch.calls == 0;
    watch.call = call;
    Some(Seen { value, class: 0, read: read == 0, is_new })
}

/// The interpreter has put a value where the result of an instruction goes: its result, if it is at that instruction. Of what
/// else comes there only the last is told, for user space to know that it is over.
#[inline(always)]
fn result(process: &Process, layout: &Layout, watch: &Watch) -> Option<Seen> {
    let at = match top_frame(process, layout, 0) {
        Top::Frame { frame, .. } => instruction(layout, frame),
        _ => 0,
    };
    if at == watch.instruction {
        let pid = (bpf_get_current_pid_tgid() >> 32) as u32;
        // SAFETY: the helper has no preconditions.
        let operand = prints::operand(pid, watch.read_address, unsafe { bpf_ktime_get_ns() });
        if operand.object != 0 {
            return Some(Seen { value: operand.print, class: operand.class, read: true, is_new: true });
        }
    }
    (watch.traps >= watch.traps_max).then_some(Seen { value: 0, class: 0, read: false, is_new: false })
}

#[inline(always)]
fn stack(process: &Process, here: &registers::Registers, watch: &Watch) {
    let number = Walk::number(SLOT_TASK);
    let Some(walk) = Walk::begin(number, SLOT_TASK) else { return };
    walk.sample.header = ring::header(record::REDUNDANCY_STACK);
    walk.sample.detail = [watch.id, watch.traps.into()];
    walk.start(process, here);
    Walk::run(number);
    walk.send();
}

/// Names the native call that the thread is in: no bytecode can have run in between where it is the same. Words of
/// variables are not looked into, only compared.
#[inline(always)]
fn call_here(process: &Process, layout: &Layout) -> u64 {
    let Top::Frame { frame: top, .. } = top_frame(process, layout, 0) else { return 1 };
    let frame = innermost(layout, top);
    let own = words_of(layout, frame, 1);
    let previous: u64 = user(frame.wrapping_add(layout.frame_previous.into())).unwrap_or(0);
    if previous == 0 { own } else { words_of(layout, previous, own) }
}

#[inline(always)]
fn words_of(layout: &Layout, frame: u64, sum: u64) -> u64 {
    let is_long = layout.lasti_unit != 0;
    let start = if is_long { frame.wrapping_add(u64::from(layout.frame_instruction) & !7) } else { frame };
    let count = if is_long { LONG_WORDS } else { FRAME_WORDS };
    let Some(words) = REDUNDANCY_FRAME.get_ptr_mut(0) else { return sum };
    // SAFETY: the pointer is into this CPU's slot, which only this program uses, and it is not entered twice; the helper
    // checks the source.
    unsafe {
        let bytes = black_box((count * 8) as u32);
        if bytes > (LONG_WORDS * 8) as u32 || bpf_probe_read_user(words.cast(), bytes, start as *const c_void) != 0 {
            return mix(sum, frame);
        }
        let mut sum = mix(sum, frame);
        for index in 0..LONG_WORDS {
            if index >= count {
                break;
            }
            sum = mix(sum, (*words)[index]);
        }
        sum
    }
}

#[inline(always)]
fn mix(sum: u64, word: u64) -> u64 {
    // 2^64 by the golden ratio, as multiplicative hashing has it.
    (sum.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
