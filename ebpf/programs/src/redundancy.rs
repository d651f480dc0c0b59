//! The family `redundancy`: registers of samples in native code that Python called, and traps of watchpoints.

mod prints;

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::{
    EbpfContext,
    bindings::bpf_perf_event_data,
    helpers::{
        bpf_get_current_pid_tgid, bpf_ktime_get_ns,
        generated::{bpf_get_prandom_u32, bpf_probe_read_user},
    },
    macros::{map, perf_event},
    maps::{HashMap, RingBuf},
    programs::PerfEventContext,
};
use pyobs_abi::{
    control,
    hash::mix,
    process::{Layout, Process},
    record::{self, Loss},
    redundancy::{CALLERS, Caller, NATIVE, NOT_DECODED, Operand, Registers, STACK, Trap, Watch, WatchKey},
    stack::{flags, loop_count},
};

use crate::{
    common::{
        call_site::call_site,
        cpython::{Top, caller, innermost, instruction, instruction_of, previous, top_frame},
        frames::TAG_BITS,
        maps::{LAYOUTS, control, pid, process},
        memory::user,
        registers,
        ring::{self, Route, Wake},
        task::thread_pointer,
        walk::{SLOT_TASK, Walk},
    },
    cpu,
};

/// Registers and traps. User space sets the size.
#[map]
static REDUNDANCY_RING: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// One in this many samples in the interpreter's loop is sent, if another Python function called the innermost one.
const LOOPS_EVERY: u64 = 4;

/// The watchpoints that are set. User space writes an entry before it sets the watchpoint.
#[map]
static REDUNDANCY_WATCHES: HashMap<WatchKey, Watch> = HashMap::with_max_entries(4096, 0);

/// Does what `cpu_sample` does, then sends the registers.
#[perf_event]
pub fn redundancy_sample(context: PerfEventContext) -> u32 {
    cpu::sample(&context, |walk, _| send_registers(&context, walk))
}

#[inline(always)]
fn send_registers(context: &PerfEventContext, walk: &Walk) {
    let sample = &walk.sample;
    if sample.flags & flags::KERNEL_MODE != 0 || sample.frames == 0 || sample.native_frames < 2 {
        return;
    }
    // The interpreter's own accesses are of no interest, but a library may call a function of the program in a loop.
    let part = match loop_count(walk.words[0]) {
        Some(_) if sample.frames < 2 || is_left_out(LOOPS_EVERY) => return,
        Some(_) => Part::Frames,
        None if is_left_out(control(control::DECODE_EVERY)) => Part::Natives,
        None => Part::All,
    };
    let is_skipped = matches!(part, Part::Natives);
    let record = ring::in_place(|record: *mut Registers| {
        fill_registers(record, context, walk, part);
        true
    });
    ring::send(record, route(if is_skipped { Wake::Never } else { Wake::Now }));
}

/// How much of a sample is sent besides its registers.
#[derive(Clone, Copy)]
enum Part {
    All,
    /// Only the native frames.
    Natives,
    /// Only these and the Python frames.
    Frames,
}

/// The route of this family's records. Traps and registers have a ring of their own, so that the thread that sets
/// watchpoints does not wait behind other records.
#[inline(always)]
fn route(wake: Wake) -> Route {
    Route { ring: &REDUNDANCY_RING, wake, full: Loss::RingFull }
}

#[inline(always)]
fn fill_registers(record: *mut Registers, context: &PerfEventContext, walk: &Walk, part: Part) {
    let sample = &walk.sample;
    // SAFETY: the record is ours until it is sent, and everything in it that user space reads is written; the context
    // of a perf event program is a bpf_perf_event_data, and the verifier checks each access.
    unsafe {
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
        (*record).thread_pointer = thread_pointer();
        (*record).frame = innermost(&walk.layout, walk.top);
        (*record).natives = sample.native_frames.min(NATIVE as u32);
        for index in 0..NATIVE {
            (*record).native[index] = walk.words[index];
        }
        (*record).words = NOT_DECODED;
        if matches!(part, Part::Natives) {
            return;
        }
        let Some(innermost) = walk.python_frame(0) else { return };
        ((*record).code, (*record).detail) = (innermost.address, innermost.detail);
        (*record).path = path(walk);
        (*record).caller = caller(&walk.layout, (*record).frame);
        fill_callers(record, walk);
        if matches!(part, Part::Frames) {
            return;
        }
        let (stack, bytes) = ((&raw mut (*record).stack).cast::<c_void>(), (STACK * 8) as u32);
        let sp = (*record).general[4] as *const c_void;
        let failed = bpf_probe_read_user(stack, bytes, sp) != 0;
        (*record).words = if failed { 0 } else { STACK as u32 };
        prints::operands(record);
        prints::waiting(record, &walk.layout);
    }
}

/// Follows the frames that called the innermost one. Since 3.12 there are others among them, which run no code and are
/// not in the walk (`FRAME_OWNED_BY_CSTACK` in
/// <https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_frame.h>).
#[inline(always)]
fn fill_callers(record: *mut Registers, walk: &Walk) {
    const STEPS: u32 = 2 * CALLERS as u32;
    // SAFETY: the record is ours until it is sent, and the index is below the array's length.
    unsafe {
        (*record).callers = [Caller::default(); CALLERS];
        let mut frame = (*record).frame;
        // The count lives in a field that is unused until the operands are filled in, because the verifier does not track
        // values there. In a register, it would check each step once per possible count.
        let number = (&raw mut (*record).sizes).cast::<u64>();
        number.write_volatile(0);
        for _ in 0..STEPS {
            let found = number.read_volatile() as usize;
            frame = previous(&walk.layout, frame);
            if frame == 0 || found >= CALLERS {
                break;
            }
            let Some(next) = walk.python_frame(found as u32 + 1) else { break };
            let code: u64 = user(frame.wrapping_add(walk.layout.frame_code.into())).unwrap_or(0);
            if code & !TAG_BITS == next.address {
                let instruction = instruction_of(&walk.layout, frame);
                (*record).callers[found] = Caller { frame, instruction, code: next.address, detail: next.detail };
                number.write_volatile(found as u64 + 1);
            }
        }
    }
}

/// Returns a hash of the Python frames that called the innermost one.
#[inline(always)]
fn path(walk: &Walk) -> u64 {
    let mut sum = 0;
    for index in 1..=CALLERS as u32 {
        let Some(frame) = walk.python_frame(index) else { break };
        sum = mix(mix(sum, frame.address), frame.detail);
    }
    sum
}

/// `false` for one in `every`. Chosen at random, because a fixed stride could beat with the program.
#[inline(always)]
fn is_left_out(every: u64) -> bool {
    // SAFETY: the helper has no preconditions.
    every > 1 && u64::from(unsafe { bpf_get_prandom_u32() }) % every != 0
}

/// A watchpoint was hit. This runs between two instructions of user space with interrupts off, so no one else walks in
/// this slot meanwhile.
///
/// Not declared by `#[perf_event]`, which returns 0 whatever the function does.
#[unsafe(no_mangle)]
#[unsafe(link_section = "perf_event")]
pub extern "C" fn redundancy_trap(context: *mut c_void) -> u32 {
    u32::from(trap(&PerfEventContext::new(context.cast())).is_none())
}

/// `None` if this was the watchpoint's last trap, or the watchpoint is unknown. The program then returns 1, and the
/// kernel removes the watchpoint before the thread goes on.
#[inline(always)]
fn trap(context: &PerfEventContext) -> Option<()> {
    let began = time();
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
    // SAFETY: while the watchpoint is set, only the watched thread, which is this one, writes it.
    let watch = unsafe { &mut *watch };
    if watch.is_over() {
        return None;
    }
    let process = process((both >> 32) as u32);
    let Some((process, layout)) = process.and_then(|process| Some((process, LAYOUTS.get(process.layout)?))) else {
        // The event ends with this trap, and user space has to see that.
        watch.calls = watch.calls_max;
        return None;
    };
    if watch.traps > 0 {
        let between = began.saturating_sub(watch.ended);
        watch.between = watch.between.wrapping_add(between);
        watch.between_least = watch.between_least.min(between);
    }
    watch.traps += 1;
    let seen = if watch.instruction != 0 { result(process, layout, watch) } else { memory(process, layout, watch) };
    let Some(seen) = seen else {
        watch.ended = time();
        return Some(());
    };
    if seen.is_new {
        watch.calls += 1;
        // The time that a walk takes would count as the program's.
        if !watch.is_timed() || watch.calls == 1 {
            watch.stack = watch.traps;
            stack(process, &here, watch);
        }
    }
    let is_last = watch.is_over();
    let record = ring::in_place(|trap: *mut Trap| {
        // SAFETY: the record is ours until it is sent, and all of it is written.
        unsafe {
            (*trap).header = ring::header(record::REDUNDANCY_TRAP);
            ((*trap).between, (*trap).between_least) = (watch.between, watch.between_least);
            ((*trap).id, (*trap).ip) = (watch.id, here.ip);
            ((*trap).value, (*trap).call) = (seen.value, watch.call);
            ((*trap).class, (*trap).object) = (seen.class, seen.object);
            ((*trap).number, (*trap).stack) = (watch.traps, watch.stack);
            ((*trap).last, (*trap).read) = (u32::from(is_last), u32::from(seen.read));
        }
        true
    });
    ring::send(record, route(if is_last { Wake::Now } else { Wake::Never }));
    watch.ended = time();
    (!is_last).then_some(())
}

/// What a trap found.
struct Seen {
    value: u64,
    class: u64,
    object: u64,
    read: bool,
    /// This is the first trap of its call, whose stack is taken.
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
    let call = call_site(process, layout);
    let is_new = call != watch.call || watch.calls == 0;
    watch.call = call;
    Some(Seen { value, class: 0, object: 0, read: read == 0, is_new })
}

/// The interpreter wrote to the place of an instruction's result. If the thread is at that instruction, the value is
/// its result. Other writes are not reported, except the last one that the watchpoint allows, which tells user space
/// that the watchpoint has ended.
#[inline(always)]
fn result(process: &Process, layout: &Layout, watch: &Watch) -> Option<Seen> {
    let top = match top_frame(process, layout, 0) {
        Top::Frame { frame, .. } => frame,
        _ => 0,
    };
    let is_caller = || watch.is_timed() || caller(layout, innermost(layout, top)) == watch.caller;
    if instruction(layout, top) == watch.instruction && is_caller() {
        let operand = prints::operand(pid(), watch.read_address, time());
        if operand.object != 0 {
            let Operand { object, class, print: value } = operand;
            return Some(Seen { value, class, object, read: true, is_new: true });
        }
    }
    (watch.traps >= watch.traps_max).then_some(Seen { value: 0, class: 0, object: 0, read: false, is_new: false })
}

#[inline(always)]
fn time() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
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
