//! The registers of user space, of a thread that was interrupted or is in the kernel.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::{
    bindings::pt_regs,
    helpers::{bpf_get_current_task_btf, generated::bpf_task_pt_regs},
};
use pyobs_abi::offcpu::NO_CALL;

/// `THREAD_SIZE`: <https://github.com/torvalds/linux/blob/v6.1/arch/x86/include/asm/page_64_types.h>
const STACK: u64 = 16 << 10;

/// What unwinding needs.
#[derive(Clone, Copy)]
pub struct Registers {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// The thread is at the instruction before `ip`, because it is in a system call.
    pub after: bool,
    /// The number and the first argument of the system call, if the thread is in one.
    pub call: u32,
    pub argument: u64,
}

impl Registers {
    /// The registers of a thread that runs its own code.
    #[inline(always)]
    pub fn running(ip: u64, sp: u64, bp: u64) -> Self {
        Self { ip, sp, bp, after: false, call: NO_CALL, argument: 0 }
    }

    /// Whether an address is on the kernel stack of the current task, which has the saved registers at its top.
    #[inline(always)]
    pub fn is_own_stack(address: u64) -> bool {
        // SAFETY: the helper gives an address, which is only compared.
        let top = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64;
        black_box(top).wrapping_sub(black_box(address)) < STACK
    }

    /// The registers that the kernel saved when the current thread entered it.
    #[inline(always)]
    pub fn saved() -> Self {
        // SAFETY: the helper has no preconditions, and gives a task that lives.
        unsafe { Self::saved_of(bpf_get_current_task_btf() as *mut c_void) }
    }

    /// The registers that the kernel saved when a thread entered it. They are old if the thread has left the kernel since.
    ///
    /// # Safety
    /// The verifier knows `task` as a `struct task_struct *` that lives.
    #[inline(always)]
    pub unsafe fn saved_of(task: *mut c_void) -> Self {
        // SAFETY: the helper gives the registers at the top of the task's kernel stack; the verifier knows their type
        // and checks each access.
        unsafe {
            let saved = bpf_task_pt_regs(task.cast()) as *const pt_regs;
            // Volatile, because the compiler must not merge these loads with those of another kind of pointer: the
            // verifier takes an instruction for one kind only.
            let word = |at: *const u64| at.read_volatile();
            // Entries other than system calls leave -1 there:
            // <https://github.com/torvalds/linux/blob/v6.1/arch/x86/entry/entry_64.S>.
            let in_call = (*saved).orig_rax as i64 >= 0;
            // A `syscall` instruction puts the address of the next instruction into rcx. While a signal is delivered at
            // the end of a call, the other registers are already the handler's, and rcx is not.
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
