//! Fields of kernel tasks, at offsets from the running kernel's BTF, because rustc emits no relocations for them.
//!
//! `task_struct`: <https://github.com/torvalds/linux/blob/v6.1/include/linux/sched.h>

use aya_ebpf::{
    Global,
    helpers::{bpf_get_current_task, bpf_get_current_task_btf},
    programs::BtfTracePointContext,
};
use pyobs_abi::record::Loss;

use super::{
    maps::{
        CFS_RQ_THROTTLE_COUNT, SIGNAL_LIVE, TASK_CFS_RQ, TASK_FSBASE, TASK_PID, TASK_SIGNAL, TASK_STATE, TASK_TGID,
        TASK_THROTTLED, count_loss,
    },
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

/// A pointer whose type the verifier knows. Its fields are read in place, which costs almost nothing compared with the
/// copy of a [`Task`]'s field (50 ns, measured by the kernel's statistics for a program that does nothing else).
#[derive(Clone, Copy)]
pub struct Typed(*const u8);

impl Typed {
    #[inline(always)]
    pub fn field<T>(self, offset: &Global<u32>) -> T {
        // SAFETY: the verifier knows the type and the offset, and refuses the program if that is not a field of this
        // size. The kernel reads 0 if the address cannot be read.
        unsafe { self.0.add(offset.load() as usize).cast::<T>().read_volatile() }
    }

    /// Returns the structure that a field points to.
    #[inline(always)]
    pub fn follow(self, offset: &Global<u32>) -> Self {
        Self(self.field(offset))
    }
}

/// A `struct task_struct *` that the verifier knows as one.
#[derive(Clone, Copy)]
pub struct TypedTask(pub Typed);

impl TypedTask {
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the helper has no preconditions.
        Self(Typed(unsafe { bpf_get_current_task_btf() } as *const u8))
    }

    /// Returns the argument of a tracepoint with this number, which must be a task.
    #[inline(always)]
    pub fn argument(context: &BtfTracePointContext, number: usize) -> Self {
        Self(Typed(context.arg(number)))
    }

    #[inline(always)]
    pub fn tgid(self) -> u32 {
        self.0.field(&TASK_TGID)
    }

    #[inline(always)]
    pub fn pid(self) -> u32 {
        self.0.field(&TASK_PID)
    }

    /// Returns `__state`, which is 0 for a task that runs or is ready to run.
    #[inline(always)]
    pub fn state(self) -> u32 {
        self.0.field(&TASK_STATE)
    }

    /// Whether the task, which leaves its CPU, has to wait because its control group has used up its CPU limit.
    /// `throttle_cfs_rq_work` marks tasks from Linux 6.18 on, `throttle_cfs_rq` whole queues before:
    /// <https://github.com/torvalds/linux/blob/v6.18/kernel/sched/fair.c>,
    /// <https://github.com/torvalds/linux/blob/v6.1/kernel/sched/fair.c>
    #[inline(always)]
    pub fn is_throttled(self) -> bool {
        if TASK_THROTTLED.load() != 0 {
            return self.0.field::<u8>(&TASK_THROTTLED) != 0;
        }
        CFS_RQ_THROTTLE_COUNT.load() != 0 && self.0.follow(&TASK_CFS_RQ).field::<i32>(&CFS_RQ_THROTTLE_COUNT) != 0
    }
}

/// Returns the base of the FS segment of the current thread, which is the thread pointer of user space. The copy in the
/// task is right if it was set by clone or arch_prctl, as every libc does.
#[inline(always)]
pub fn thread_pointer() -> u64 {
    TypedTask::current().0.field(&TASK_FSBASE)
}
