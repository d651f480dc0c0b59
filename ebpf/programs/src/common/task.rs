//! Fields of kernel tasks, at offsets from the running kernel's BTF: rustc emits no relocations for them.

use aya_ebpf::helpers::{bpf_get_current_task, bpf_get_current_task_btf};

use super::{
    maps::{SIGNAL_LIVE, TASK_FSBASE, TASK_PID, TASK_SIGNAL, TASK_STATE, TASK_TGID},
    memory::kernel,
};

/// A `struct task_struct *`.
#[derive(Clone, Copy)]
pub struct Task(pub u64);

impl Task {
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the helper has no preconditions.
        Self(unsafe { bpf_get_current_task() })
    }

    #[inline(always)]
    pub fn tgid(self) -> Option<u32> {
        kernel(self.0 + u64::from(TASK_TGID.load()))
    }

    #[inline(always)]
    pub fn pid(self) -> Option<u32> {
        kernel(self.0 + u64::from(TASK_PID.load()))
    }

    /// `__state`: 0 for a task that runs or is ready to (include/linux/sched.h).
    #[inline(always)]
    pub fn state(self) -> Option<u32> {
        kernel(self.0 + u64::from(TASK_STATE.load()))
    }

    /// How many threads of its process still live.
    #[inline(always)]
    pub fn live_threads(self) -> Option<i32> {
        let signal: u64 = kernel(self.0 + u64::from(TASK_SIGNAL.load()))?;
        kernel(signal + u64::from(SIGNAL_LIVE.load()))
    }
}

/// The current thread's base of the FS segment: the thread pointer of user space. The copy in the task is right as long as
/// it was set by clone or arch_prctl, as every libc does.
#[inline(always)]
pub fn thread_pointer() -> u64 {
    // SAFETY: the helper gives the current task; the verifier knows its type and the offset, and checks the access.
    unsafe {
        let task = bpf_get_current_task_btf() as *const u8;
        task.add(TASK_FSBASE.load() as usize).cast::<u64>().read_volatile()
    }
}
