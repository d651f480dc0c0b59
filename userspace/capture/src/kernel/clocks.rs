//! CPU time of this process and its threads.

use std::time::Duration;

use rustix::time::ClockId;

/// CPU time of all threads of this process so far.
pub fn cpu_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// CPU time of the calling thread itself so far.
pub fn own_time() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

/// CPU time of a thread of this process so far; `None` when it has ended.
pub fn of_thread(thread: i32) -> Option<Duration> {
    // CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED: see include/linux/posix-timers_types.h.
    let clock = (!thread << 3) | 6;
    let mut time = std::mem::MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the time is written to memory of ours, and read only if the call has succeeded.
    let time = unsafe {
        if libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
            return None;
        }
        time.assume_init()
    };
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

fn clock(which: ClockId) -> Duration {
    let usage = rustix::time::clock_gettime(which);
    Duration::new(usage.tv_sec.try_into().unwrap_or(0), usage.tv_nsec.try_into().unwrap_or(0))
}
