//! The registers of user space.

use core::hint::black_box;

use aya_ebpf::{
    bindings::pt_regs,
    helpers::{bpf_get_current_task_btf, generated::bpf_task_pt_regs},
};
use pyobs_abi::offcpu::NO_CALL;

/// `THREAD_SIZE` (arch/x86/include/asm/page_64_types.h).
const STACK: u64 = 16 << 10;

/// What unwinding needs.
#[derive(Clone, Copy)]
pub struct Registers {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// The instruction before `ip` is what the thread is at: it is in a system call.
    pub after: bool,
    /// Number and first argument of the system call, if it is in one.
    pub call: u32,
    pub argument: u64,
}

impl Registers {
    /// Those of a thread that runs its own code.
    #[inline(always)]
    pub fn running(ip: u64, sp: u64, bp: u64) -> Self {
        Self { ip, sp, bp, after: false, call: NO_CALL, argument: 0 }
    }

    /// Whether an address is on the kernel stack of the current task, at whose top the registers are.
    #[inline(always)]
    pub fn is_own_stack(address: u64) -> bool {
        // SAFETY: the helper gives an address, which is only compared.
        let top = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64;
        black_box(top).wrapping_sub(black_box(address)) < STACK
    }

    /// Those that the kernel saved when the current thread entered it.
    #[inline(always)]
    pub fn saved() -> Self {
        // SAFETY: the helper gives the registers at the top of the current task's kernel stack; the verifier knows their
        // type and checks each access.
        unsafe {
            let saved = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const pt_regs;
            // Volatile, for the compiler must not merge these loads with those of another kind of pointer: the verifier
            // takes an instruction for one kind only.
            let word = |at: *const u64| at.read_volatile();
            // Entries that are no system call leave all ones there (arch/x86/entry/entry_64.S).
            let in_call = (*saved).orig_rax as i64 >= 0;
            // A `syscall` instruction leaves where it goes on in rcx. While a signal is being delivered at a call's end,
            // the other registers are the handler's already, and rcx is not.
            let after = in_call && word(&raw const (*saved).rcx) == word(&raw const (*saved).rip);
            Self {
                ip: word(&raw const (*saved).rip),
                sp: word(&raw const (*saved).rsp),
                bp: word(&raw const (*saved).rbp),
                after,
                call: if in_call { (*saved).orig_rax as u32 } else { NO_CALL },
                argument: word(&raw const (*saved).rdi),
            }
        }
    }
}
