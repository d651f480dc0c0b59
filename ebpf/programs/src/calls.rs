//! System calls, for all families that have to do with some: [`shm`], [`arena`], and new [`code`].
//!
//! One pair of programs sees every call of the machine; a second would cost each as much again. The kernel's tracepoints of
//! single calls (`syscalls:sys_enter_close`) would cost the others next to nothing, and each takes 40 to 80 ms to be let go
//! (kernel/trace/trace_event_perf.c, perf_trace_event_unreg, one at a time): with the two dozen of these families pyobs would
//! end two seconds late.

use aya_ebpf::{bindings::pt_regs, macros::btf_tracepoint, programs::BtfTracePointContext};
use pyobs_abi::{
    control::{FAMILY_ARENA, FAMILY_SHM},
    record, stack,
};

use crate::{
    arena, code,
    common::{
        maps::is_on,
        registers::Registers,
        ring,
        walk::{SLOT_TASK, Walk},
    },
    shm::{self, watched},
};

/// System calls (arch/x86/entry/syscalls/syscall_64.tbl).
pub mod number {
    pub const OPEN: u32 = 2;
    pub const CLOSE: u32 = 3;
    pub const MMAP: u32 = 9;
    pub const MPROTECT: u32 = 10;
    pub const MUNMAP: u32 = 11;
    pub const IOCTL: u32 = 16;
    pub const MREMAP: u32 = 25;
    pub const DUP: u32 = 32;
    pub const DUP2: u32 = 33;
    pub const SENDMSG: u32 = 46;
    pub const RECVMSG: u32 = 47;
    pub const FCNTL: u32 = 72;
    pub const FTRUNCATE: u32 = 77;
    pub const CREAT: u32 = 85;
    pub const UNLINK: u32 = 87;
    pub const OPENAT: u32 = 257;
    pub const UNLINKAT: u32 = 263;
    pub const FALLOCATE: u32 = 285;
    pub const DUP3: u32 = 292;
    pub const MEMFD_CREATE: u32 = 319;
    pub const PKEY_MPROTECT: u32 = 329;
    pub const CLOSE_RANGE: u32 = 436;
    pub const OPENAT2: u32 = 437;
    pub const PIDFD_GETFD: u32 = 438;
}

/// Of mmap(2) and mprotect(2), in their third argument.
const PROT_EXEC: u64 = 4;

/// The system call that the current thread is in.
pub struct Call(*const pt_regs);

impl Call {
    /// Of `sys_enter` and `sys_exit`, whose first argument are the registers at the top of the task's kernel stack.
    #[inline(always)]
    fn of(context: &BtfTracePointContext) -> Self {
        Self(context.arg(0))
    }

    #[inline(always)]
    fn word(&self, at: impl Fn(*const pt_regs) -> *const u64) -> u64 {
        // SAFETY: the verifier knows the registers' type and checks each access. Volatile, as in `Registers::saved`.
        unsafe { at(self.0).read_volatile() }
    }

    #[inline(always)]
    fn number(&self) -> u32 {
        // SAFETY: only the field's address is taken.
        self.word(|saved| unsafe { &raw const (*saved).orig_rax }) as u32
    }

    #[inline(always)]
    pub fn first(&self) -> u64 {
        // SAFETY: as above, and below.
        self.word(|saved| unsafe { &raw const (*saved).rdi })
    }

    #[inline(always)]
    pub fn second(&self) -> u64 {
        // SAFETY: as above.
        self.word(|saved| unsafe { &raw const (*saved).rsi })
    }

    #[inline(always)]
    pub fn third(&self) -> u64 {
        // SAFETY: as above.
        self.word(|saved| unsafe { &raw const (*saved).rdx })
    }

    #[inline(always)]
    pub fn fourth(&self) -> u64 {
        // SAFETY: as above.
        self.word(|saved| unsafe { &raw const (*saved).r10 })
    }

    #[inline(always)]
    pub fn fifth(&self) -> u64 {
        // SAFETY: as above.
        self.word(|saved| unsafe { &raw const (*saved).r8 })
    }

    #[inline(always)]
    pub fn sixth(&self) -> u64 {
        // SAFETY: as above.
        self.word(|saved| unsafe { &raw const (*saved).r9 })
    }
}

/// `sys_enter(struct pt_regs *regs, long id)`
#[btf_tracepoint(function = "sys_enter")]
pub fn calls_begin(context: BtfTracePointContext) -> i32 {
    let number = context.arg::<u64>(1) as u32;
    if !shm::begins_with(number) {
        return 0;
    }
    let call = Call::of(&context);
    if number == number::MUNMAP && is_on(FAMILY_ARENA) {
        arena::unmapped(&call);
    }
    shm::begins(number, &call);
    0
}

/// `sys_exit(struct pt_regs *regs, long ret)`
#[btf_tracepoint(function = "sys_exit")]
pub fn calls_end(context: BtfTracePointContext) -> i32 {
    let result = context.arg::<i64>(1);
    let call = Call::of(&context);
    let number = call.number();
    if result < 0 {
        return 0;
    }
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
    0
}

/// Sends where a segment was made, or an arena, if it was in a watched process. User space should look at once: a program
/// that only makes a segment may end in a moment, and its names with it.
#[inline(always)]
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
