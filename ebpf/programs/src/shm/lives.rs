//! Forks, execs and exits of processes that hold segments, and the end of segments.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use pyobs_abi::{
    process::Fork,
    record::{self, Header, Loss},
    shm::{Hull, what},
};

use super::{SHM_HOLDERS, SHM_SEGMENTS, hull, send};
use crate::common::{
    files::Inode,
    maps::{count_loss, pid, put},
    ring,
    task::Task,
};

/// `sched_process_fork(struct task_struct *parent, struct task_struct *child)`
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn shm_fork(context: RawTracePointContext) -> i32 {
    let Some(hull) = hull() else { return 0 };
    let child = Task(context.arg(1));
    let (Some(tgid), Some(pid)) = (child.tgid(), child.pid()) else {
        count_loss(Loss::Task);
        return 0;
    };
    if tgid != pid {
        return 0;
    }
    put(&SHM_HOLDERS, &tgid, &hull, Loss::SegmentTable);
    let fork = Fork { header: ring::header(record::SHM_FORK), child: tgid, padding: 0 };
    // SAFETY: plain integers without padding (pyobs-abi asserts it).
    ring::send(unsafe { core::slice::from_raw_parts((&raw const fork).cast(), size_of::<Fork>()) });
    0
}

/// `sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn shm_exec(_context: RawTracePointContext) -> i32 {
    if hull().is_none() {
        return 0;
    }
    super::hold(Hull::default());
    tell(record::SHM_EXEC);
    0
}

/// `sched_process_exit(struct task_struct *p)`: each thread's end; the process has ended with its last one.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn shm_exit(_context: RawTracePointContext) -> i32 {
    if hull().is_none() || Task::current().live_threads() != Some(0) {
        return 0;
    }
    let _ = SHM_HOLDERS.remove(pid());
    tell(record::SHM_EXIT);
    0
}

#[inline(always)]
fn tell(kind: u32) {
    let header = ring::header(kind);
    // SAFETY: as above.
    ring::send(unsafe { core::slice::from_raw_parts((&raw const header).cast(), size_of::<Header>()) });
}

/// `mm_filemap_delete_from_page_cache(struct folio *folio)`: for each page, of all files.
#[raw_tracepoint(tracepoint = "mm_filemap_delete_from_page_cache")]
pub fn shm_evict(context: RawTracePointContext) -> i32 {
    let Some(inode) = Inode::of_page(context.arg(0)) else { return 0 };
    if !inode.is_dying() {
        return 0;
    }
    let Some(facts) = super::facts(inode) else { return 0 };
    // One word for all pages.
    if SHM_SEGMENTS.remove(facts.inode).is_ok() {
        send(what::RELEASED, Some(&facts), |_| ());
    }
    0
}
