//! Fields of kernel structures whose type the verifier knows, at offsets from the running kernel's BTF.

use aya_ebpf::{Global, helpers::bpf_get_current_task_btf, programs::BtfTracePointContext};

#[unsafe(no_mangle)]
pub static TASK_TGID: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_PID: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_STATE: Global<u32> = Global::new(0);
/// Whether a task is throttled: a field of its own from Linux 6.18 on, before that a count in the queue of its control
/// group. 0 for a field that the kernel lacks.
#[unsafe(no_mangle)]
pub static TASK_THROTTLED: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_CFS_RQ: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CFS_RQ_THROTTLE_COUNT: Global<u32> = Global::new(0);

/// A pointer whose type the verifier knows. Its fields are read in place, which costs almost nothing compared with the
/// copy of a `Task`'s field (50 ns, measured by the kernel's statistics for a program that does nothing else).
#[derive(Clone, Copy)]
pub struct Typed(pub *const u8);

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
