//! Lives of processes: a child is watched from its first instruction on, an exec'ed or ended process no longer.
//!
//! These run in process context, where updating a hash map is safe.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use pyobs_abi::{
    process::{Fork, PYTHON, SAMPLED},
    record::{self, Header, Loss},
};

use crate::{
    code,
    common::{
        maps::{PROCESSES, count_loss, put},
        messages, ring,
        task::Task,
    },
    offcpu,
};

/// `sched_process_fork(struct task_struct *parent, struct task_struct *child)`
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn process_fork(context: RawTracePointContext) -> i32 {
    let header = ring::header(record::PROCESS_FORK);
    // SAFETY: the entry is copied before anything can replace it under us but user space, which writes whole entries.
    let Some(process) = (unsafe { PROCESSES.get(header.pid) }) else { return 0 };
    let process = *process;
    let child = Task(context.arg(1));
    let (Some(tgid), Some(pid)) = (child.tgid(), child.pid()) else {
        count_loss(Loss::Task);
        return 0;
    };
    if tgid != pid {
        return 0;
    }
    if !put(&PROCESSES, &tgid, &process, Loss::ProcessTable) {
        return 0;
    }
    ring::send_now(bytes(&Fork { header, child: tgid, padding: 0 }));
    if messages::are_on() {
        messages::forked(header.pid, tgid);
    }
    0
}

/// `sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn process_exec(context: RawTracePointContext) -> i32 {
    let header = ring::header(record::PROCESS_EXEC);
    let Some(process) = PROCESSES.get_ptr_mut(header.pid) else {
        code::execed(context.arg(2));
        return 0;
    };
    offcpu::thread_ends(header.tid, header.time);
    // SAFETY: the entry of the current process, whose other threads are gone by now.
    unsafe {
        (*process).flags &= !PYTHON;
        ((*process).mapping_count, (*process).mapping_set) = (0, 0);
    }
    // SAFETY: as above.
    if unsafe { (*process).flags } & SAMPLED == 0 {
        return 0;
    }
    ring::send_now(bytes(&header));
    if messages::are_on() {
        messages::executed(header.pid);
    }
    0
}

/// `sched_process_exit(struct task_struct *p)`: each thread's end; the process has ended with its last one.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn process_exit(_context: RawTracePointContext) -> i32 {
    let header: Header = ring::header(record::PROCESS_EXIT);
    // SAFETY: only its presence is looked at.
    if unsafe { PROCESSES.get(header.pid) }.is_none() {
        return 0;
    }
    offcpu::thread_ends(header.tid, header.time);
    match Task::current().live_threads() {
        Some(0) => {}
        Some(_) => return 0,
        None => {
            count_loss(Loss::Task);
            return 0;
        }
    }
    let _ = PROCESSES.remove(header.pid);
    ring::send_now(bytes(&header));
    if messages::are_on() {
        messages::exited(header.pid);
    }
    0
}

#[inline(always)]
fn bytes<T>(record: &T) -> &[u8] {
    // SAFETY: records are plain integers without padding (pyobs-abi asserts it).
    unsafe { core::slice::from_raw_parts((&raw const *record).cast(), size_of::<T>()) }
}
