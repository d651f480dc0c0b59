//! What pyobs itself uses.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::clocks::{of_thread, own_time};
use crate::blocking;

/// Enables the kernel's BPF run time statistics while it lives. They cost about 20 ns per program run, for
/// every BPF program on the machine, and are disabled with the last holder.
pub struct Statistics {
    _file: Option<OwnedFd>,
}

impl Statistics {
    /// Without the necessary privilege, the kernel's share of the cost stays unknown (0).
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
    /// The thread calls this before its first piece of work.
    pub fn begin(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    /// The thread calls this after each piece of work.
    pub fn note(&self) {
        self.noted.store(thread_time().as_nanos() as u64, Ordering::Relaxed);
    }

    /// Includes the current piece of work, which can take seconds.
    pub fn so_far(&self) -> Duration {
        let noted = Duration::from_nanos(self.noted.load(Ordering::Relaxed));
        match self.thread.load(Ordering::Relaxed) {
            0 => noted,
            thread => of_thread(thread).map_or(noted, |time| time.max(noted)),
        }
    }
}

/// A helper thread may use this share of one CPU and save at most this much CPU time. So a process with
/// hundreds of libraries is ready soon, and a machine that keeps starting new programs does not lose a CPU to
/// us.
const HELPER_SHARE: f64 = 0.25;
const HELPER_SAVED_MAX: Duration = Duration::from_secs(2);

/// How often a resting helper checks whether somebody is waiting.
const REST_STEP: Duration = Duration::from_millis(50);

/// A token bucket of CPU time. It refills at a share of one CPU and holds at most `saved_max`.
#[derive(Debug)]
pub struct Bucket {
    share: f64,
    saved_max: f64,
    saved: f64,
    at: Instant,
}

impl Bucket {
    /// Starts full.
    pub fn new(share: f64, saved_max: Duration) -> Self {
        let saved_max = saved_max.as_secs_f64();
        Self { share, saved_max, saved: saved_max, at: Instant::now() }
    }

    /// Takes out the time spent. Returns how long to pause until the bucket is no longer overdrawn.
    pub fn spend(&mut self, spent: Duration, now: Instant) -> Duration {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * self.share;
        self.saved = (self.saved + gained - spent.as_secs_f64()).min(self.saved_max);
        self.at = now;
        Duration::from_secs_f64((-self.saved).max(0.0) / self.share)
    }
}

/// Limits what a helper thread uses.
#[derive(Debug)]
pub struct Duty {
    bucket: Bucket,
    used: Duration,
}

impl Duty {
    /// Starts with a full bucket. The helper thread itself must call this, because its CPU time is measured.
    pub fn begin() -> Self {
        Self { bucket: Bucket::new(HELPER_SHARE, HELPER_SAVED_MAX), used: thread_time() }
    }

    /// Sleeps if the work so far has overdrawn the bucket, unless somebody is waiting for the rest.
    pub fn rest(&mut self, is_awaited: &AtomicBool) {
        let used = thread_time();
        let pause = self.bucket.spend(used.saturating_sub(self.used), Instant::now());
        self.used = used;
        let until = Instant::now() + pause;
        while !is_awaited.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(REST_STEP));
        }
    }
}

/// CPU time of the calling thread so far, including work that others have done for it.
pub fn thread_time() -> Duration {
    own_time() + blocking::helped()
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
    fn a_helper_uses_its_share_of_a_cpu_and_what_it_has_saved() {
        let (piece, start) = (Duration::from_millis(100), Instant::now());
        let mut bucket = Bucket::new(HELPER_SHARE, HELPER_SAVED_MAX);
        let (mut used, mut now) = (Duration::ZERO, start);
        while now < start + Duration::from_secs(100) {
            used += piece;
            now += piece;
            now += bucket.spend(piece, now);
        }
        let share = (used - HELPER_SAVED_MAX).as_secs_f64() / (now - start).as_secs_f64();
        assert!((share - HELPER_SHARE).abs() < 0.01, "{share}");
        // An hour without work saves no more than the maximum.
        now += Duration::from_secs(3600);
        let before = used;
        while bucket.spend(piece, now).is_zero() {
            used += piece;
            now += piece;
        }
        assert!(used - before < 2 * HELPER_SAVED_MAX, "{:?}", used - before);
    }

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
            // Wait until the test has checked.
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
