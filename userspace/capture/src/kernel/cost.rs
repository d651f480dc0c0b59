//! What pyobs itself uses.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

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

/// CPU time of this process so far, all threads.
pub fn cpu_time() -> Duration {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(usage.tv_sec.try_into().unwrap_or(0), usage.tv_nsec.try_into().unwrap_or(0))
}

/// Resident bytes of this process now.
pub fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
