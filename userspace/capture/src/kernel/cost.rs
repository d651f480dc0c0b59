//! What pyobs itself uses.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::ClockId;

/// Turns the kernel's BPF run time statistics on for as long as it lives. They cost some 20 ns a program run, for
/// every BPF program of the machine, and go off with the last holder.
pub struct Statistics {
    _file: Option<OwnedFd>,
}

impl Statistics {
    /// Without the right to it, the kernel's share of the cost stays unknown (0).
    pub fn enable() -> Self {
        Self { _file: aya::sys::enable_stats(aya::sys::Stats::RunTime).ok() }
    }
}

/// CPU time of a helper thread so far.
#[derive(Clone, Debug, Default)]
pub struct ThreadTime {
    thread: Arc<AtomicI32>,
    noted: Arc<AtomicU64>,
}

impl ThreadTime {
    /// To be called by the thread before its first piece of work.
    pub fn begin(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    /// To be called by the thread after each piece of work.
    pub fn note(&self) {
        self.noted.store(thread_time().as_nanos() as u64, Ordering::Relaxed);
    }

    /// With the piece of work that the thread is at, which can take seconds.
    pub fn so_far(&self) -> Duration {
        let noted = Duration::from_nanos(self.noted.load(Ordering::Relaxed));
        match self.thread.load(Ordering::Relaxed) {
            0 => noted,
            thread => of_thread(thread).map_or(noted, |time| time.max(noted)),
        }
    }
}

/// CPU time of a thread of this process so far; `None` when it has ended.
fn of_thread(thread: i32) -> Option<Duration> {
    // CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED: see include/linux/posix-timers_types.h.
    let clock = (!thread << 3) | 6;
    let mut time = std::mem::MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the time is written to what is ours, and is not read unless it was.
    let time = unsafe {
        if libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
            return None;
        }
        time.assume_init()
    };
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// CPU time of this process so far, all threads.
pub fn cpu_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// CPU time of the calling thread so far.
pub fn thread_time() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

fn clock(which: ClockId) -> Duration {
    let usage = rustix::time::clock_gettime(which);
    Duration::new(usage.tv_sec.try_into().unwrap_or(0), usage.tv_nsec.try_into().unwrap_or(0))
}

/// Resident bytes of this process now.
pub fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_thread_grows_while_it_is_at_work() {
        let time = ThreadTime::default();
        let own = time.clone();
        let (sender, done) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            own.begin();
            let since = thread_time();
            while thread_time().saturating_sub(since) < Duration::from_millis(20) {}
            own.note();
            // Until the test has looked.
            let _ = done.recv();
            thread_time()
        });
        while time.so_far() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        drop(sender);
        let all = thread.join().unwrap();
        assert!(time.so_far() <= all, "{:?} {all:?}", time.so_far());
    }
}
