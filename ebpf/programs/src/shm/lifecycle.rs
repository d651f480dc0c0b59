//! Forks, execs and exits of processes that hold segments, and the end of segments.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use pyobs_abi::{
    process::Fork,
    record::{self, Loss},
    shm::{Bounds, what},
};

use super::{SHM_FOUND, SHM_HOLDERS, SHM_SEGMENTS, is_holder, send_change};
use crate::common::{
    files::Inode,
    maps::{pid, put},
    ring::{self, Route},
    task::Task,
};

/// `sched_process_fork(struct task_struct *parent, struct task_struct *child)`
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn shm_fork(context: RawTracePointContext) -> i32 {
    // SAFETY: only threads of this process write it, and user space does not replace it.
    let Some(bounds) = (unsafe { SHM_HOLDERS.get(pid()) }) else { return 0 };
    let Some(child) = Task(context.arg(1)).leads() else { return 0 };
    put(&SHM_HOLDERS, &child, bounds, Loss::SegmentTable);
    // SAFETY: elements of the map stay valid memory. If user space replaces this one now, the child may miss an unmap,
    // which reconciliation corrects.
    if let Some(found) = unsafe { SHM_FOUND.get(pid()) } {
        put(&SHM_FOUND, &child, found, Loss::SegmentTable);
    }
    ring::send(&Fork { header: ring::header(record::SHM_FORK), child, padding: 0 }, Route::lazy());
    0
}

/// `sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn shm_exec(_context: RawTracePointContext) -> i32 {
    if !is_holder() {
        return 0;
    }
    let bounds = Bounds { has_gained: 1, ..Bounds::default() };
    put(&SHM_HOLDERS, &pid(), &bounds, Loss::SegmentTable);
    let _ = SHM_FOUND.remove(pid());
    ring::send(&ring::header(record::SHM_EXEC), Route::lazy());
    0
}

/// `sched_process_exit(struct task_struct *p)`: runs at the end of each thread. The process ends with the last one.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn shm_exit(_context: RawTracePointContext) -> i32 {
    if !is_holder() || Task::current().live_threads() != Some(0) {
        return 0;
    }
    let _ = SHM_HOLDERS.remove(pid());
    let _ = SHM_FOUND.remove(pid());
    ring::send(&ring::header(record::SHM_EXIT), Route::lazy());
    0
}

/// `mm_filemap_delete_from_page_cache(struct folio *folio)`: runs for each page, of all files.
#[raw_tracepoint(tracepoint = "mm_filemap_delete_from_page_cache")]
pub fn shm_evict(context: RawTracePointContext) -> i32 {
    let Some(inode) = Inode::of_page(context.arg(0)) else { return 0 };
    if !inode.is_dying() {
        return 0;
    }
    let Some(facts) = super::facts(inode) else { return 0 };
    // The first page that finds the entry reports for all pages.
    if SHM_SEGMENTS.remove(facts.inode).is_ok() {
        send_change(what::RELEASED, Some(&facts), |_| ());
    }
    0
}
