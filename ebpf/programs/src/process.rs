//! The lifecycle of processes: a child is watched from its first instruction on, and a process is watched until it
//! executes another program or ends.
//!
//! These run in process context, where updating a hash map is safe.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use pyobs_abi::{
    process::{Fork, PYTHON, SAMPLED},
    record::{self, Loss},
};

use crate::{
    code,
    common::{
        maps::{PROCESSES, count_loss, process, put},
        messages,
        ring::{self, Route},
        task::Task,
    },
    heap, offcpu,
};

/// `sched_process_fork(struct task_struct *parent, struct task_struct *child)`
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn process_fork(context: RawTracePointContext) -> i32 {
    let header = ring::header(record::PROCESS_FORK);
    let Some(process) = process(header.pid).copied() else { return 0 };
    let Some(child) = Task(context.arg(1)).leads() else { return 0 };
    if !put(&PROCESSES, &child, &process, Loss::ProcessTable) {
        return 0;
    }
    heap::fork(header.pid, child);
    ring::send(&Fork { header, child, padding: 0 }, Route::urgent());
    if messages::are_on() {
        messages::forked(header.pid, child);
    }
    0
}

/// `sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn process_exec(context: RawTracePointContext) -> i32 {
    let header = ring::header(record::PROCESS_EXEC);
    let Some(process) = PROCESSES.get_ptr_mut(header.pid) else {
        code::report_exec(context.arg(2));
        return 0;
    };
    offcpu::thread_ends(header.tid, header.time);
    heap::end(header.pid);
    // SAFETY: the entry of the current process, whose other threads have ended by now.
    unsafe {
        (*process).flags &= !PYTHON;
        ((*process).mapping_count, (*process).mapping_set) = (0, 0);
    }
    // SAFETY: as above.
    if unsafe { (*process).flags } & SAMPLED == 0 {
        return 0;
    }
    ring::send(&header, Route::urgent());
    if messages::are_on() {
        messages::executed(header.pid);
    }
    0
}

/// `sched_process_exit(struct task_struct *p)`: runs at the end of each thread. The process ends with the last one.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn process_exit(_context: RawTracePointContext) -> i32 {
    let header = ring::header(record::PROCESS_EXIT);
    if process(header.pid).is_none() {
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
    heap::end(header.pid);
    ring::send(&header, Route::urgent());
    if messages::are_on() {
        messages::exited(header.pid);
    }
    0
}
