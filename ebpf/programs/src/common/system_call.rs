//! The system call record: the number and the arguments of the call that the current thread is in.

use aya_ebpf::{
    bindings::pt_regs,
    helpers::{bpf_get_current_task_btf, generated::bpf_task_pt_regs},
};

/// The registers at the top of the current thread's kernel stack, which have the call's number and arguments.
pub struct Call(*const pt_regs);

impl Call {
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the helper has no preconditions.
        Self(unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as *const pt_regs)
    }

    #[inline(always)]
    fn word(&self, at: impl Fn(*const pt_regs) -> *const u64) -> u64 {
        // SAFETY: the verifier knows the registers' type and checks each access. Volatile, as in `Registers::saved`.
        unsafe { at(self.0).read_volatile() }
    }

    #[inline(always)]
    pub fn number(&self) -> u32 {
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
