//! Fields of kernel tasks, at offsets from the running kernel's BTF: rustc emits no relocations for them.

use aya_ebpf::{
    Global,
    helpers::{bpf_get_current_task, bpf_get_current_task_btf},
    programs::BtfTracePointContext,
};

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

    /// How many threads of its process still live.
    #[inline(always)]
    pub fn live_threads(self) -> Option<i32> {
        let signal: u64 = kernel(self.0 + u64::from(TASK_SIGNAL.load()))?;
        kernel(signal + u64::from(SIGNAL_LIVE.load()))
    }
}

/// A pointer whose type the verifier knows: a field is read where it is, which costs nothing beside the copy of a [`Task`]'s
/// (50 ns here, by the kernel's statistics of a program that does nothing else).
#[derive(Clone, Copy)]
pub struct Typed(*const u8);

impl Typed {
    #[inline(always)]
    pub fn field<T>(self, offset: &Global<u32>) -> T {
        // SAFETY: the verifier knows the type and the offset, and refuses the program where that is no field of this size. The kernel
        // reads 0 where the address cannot be read.
        unsafe { self.0.add(offset.load() as usize).cast::<T>().read_volatile() }
    }

    /// The structure that a field points to.
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

    /// The tracepoint's argument with this number, which is one.
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

    /// `__state`: 0 for a task that runs or is ready to (include/linux/sched.h).
    #[inline(always)]
    pub fn state(self) -> u32 {
        self.0.field(&TASK_STATE)
    }
}

/// The current thread's base of the FS segment: the thread pointer of user space. The copy in the task is right as long as
/// it was set by clone or arch_prctl, as every libc does.
#[inline(always)]
pub fn thread_pointer() -> u64 {
    TypedTask::current().0.field(&TASK_FSBASE)
}
