//! What pyobs itself uses.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// CPU time of a helper thread so far, as it says itself.
#[derive(Clone, Debug, Default)]
pub struct ThreadTime(Arc<AtomicU64>);

impl ThreadTime {
    /// To be called by the thread after each piece of work.
    pub fn note(&self) {
        self.0.store(thread_time().as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn so_far(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
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
