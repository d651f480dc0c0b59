//! Fields of kernel tasks, at offsets from the running kernel's BTF, because rustc emits no relocations for them.
//!
//! `task_struct`: <https://github.com/torvalds/linux/blob/v6.1/include/linux/sched.h>

use aya_ebpf::helpers::bpf_get_current_task;
use pyobs_abi::record::Loss;

use super::{
    maps::{SIGNAL_LIVE, TASK_FSBASE, TASK_SIGNAL, count_loss},
    memory::kernel,
    typed::{TASK_PID, TASK_TGID, TypedTask},
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

    /// Returns the pid of the process that this task leads: none if it is another thread of one.
    #[inline(always)]
    pub fn leads(self) -> Option<u32> {
        let (Some(tgid), Some(pid)) = (self.tgid(), self.pid()) else {
            count_loss(Loss::Task);
            return None;
        };
        (tgid == pid).then_some(tgid)
    }

    /// Returns how many threads of its process are alive.
    #[inline(always)]
    pub fn live_threads(self) -> Option<i32> {
        let signal: u64 = kernel(self.0 + u64::from(TASK_SIGNAL.load()))?;
        kernel(signal + u64::from(SIGNAL_LIVE.load()))
    }
}

/// Returns the base of the FS segment of the current thread, which is the thread pointer of user space. The copy in the
/// task is right if it was set by clone or arch_prctl, as every libc does.
#[inline(always)]
pub fn thread_pointer() -> u64 {
    TypedTask::current().0.field(&TASK_FSBASE)
}
