//! Detects when a helper thread hangs in a job, for example on a file system that no longer responds, so that
//! another thread can take over its seat.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::blocking::wants_to_run;
use crate::kernel::clocks::of_thread;

const INSPECT_EVERY: Duration = Duration::from_secs(1);
/// A thread hangs after this many checks in a row in which it neither ran nor waited for a CPU.
const CHECKS: u32 = 5;

#[derive(Debug)]
struct Sitter<J> {
    job: Option<J>,
    /// Number of jobs begun.
    begun: u64,
    thread: i32,
    is_left: bool,
}

/// The helper thread's side.
#[derive(Debug)]
pub struct Seat<J>(Arc<Mutex<Sitter<J>>>);

/// The side of the thread that assigns jobs.
#[derive(Debug)]
pub struct Watch<J> {
    sitter: Arc<Mutex<Sitter<J>>>,
    inspected: Instant,
    /// State at the last check: the number of jobs begun, and the thread's CPU time.
    seen: (u64, Option<Duration>),
    checks: u32,
}

/// Both sides of a new seat.
pub fn pair<J>() -> (Seat<J>, Watch<J>) {
    let sitter = Arc::new(Mutex::new(Sitter { job: None, begun: 0, thread: 0, is_left: false }));
    let watch = Watch { sitter: Arc::clone(&sitter), inspected: Instant::now(), seen: (0, None), checks: 0 };
    (Seat(sitter), watch)
}

impl<J> Seat<J> {
    /// The thread calls this before a job.
    pub fn begin(&self, job: J) {
        let mut sitter = lock(&self.0);
        sitter.thread = rustix::thread::gettid().as_raw_nonzero().get();
        (sitter.job, sitter.begun) = (Some(job), sitter.begun + 1);
    }

    /// The thread calls this after a job. If it returns false, another thread has taken over and this one
    /// must end.
    pub fn end(&self) -> bool {
        let mut sitter = lock(&self.0);
        sitter.job = None;
        !sitter.is_left
    }
}

impl<J: Copy> Watch<J> {
    /// The job in which the thread hangs; the thread is then abandoned. Call often.
    pub fn held_up(&mut self) -> Option<J> {
        if self.inspected.elapsed() < INSPECT_EVERY {
            return None;
        }
        self.inspected = Instant::now();
        let mut sitter = lock(&self.sitter);
        let job = sitter.job?;
        let now = (sitter.begun, of_thread(sitter.thread));
        let stands_still = std::mem::replace(&mut self.seen, now) == now && !wants_to_run(sitter.thread);
        self.checks = if stands_still { self.checks + 1 } else { 0 };
        if self.checks < CHECKS {
            return None;
        }
        sitter.is_left = true;
        Some(job)
    }
}

fn lock<J>(sitter: &Mutex<Sitter<J>>) -> MutexGuard<'_, Sitter<J>> {
    sitter.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread hangs or runs for as long as the test watches.
    fn checks(work: impl FnOnce(&std::sync::mpsc::Receiver<()>) + Send + 'static) -> Option<u32> {
        let (seat, mut watch) = pair();
        let (sender, over) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            seat.begin(7);
            work(&over);
            seat.end()
        });
        let mut found = None;
        for _ in 0..=CHECKS + 2 {
            std::thread::sleep(Duration::from_millis(10));
            watch.inspected = Instant::now().checked_sub(INSPECT_EVERY).unwrap();
            found = found.or(watch.held_up());
        }
        drop(sender);
        assert_eq!(thread.join().unwrap(), found.is_none());
        found
    }

    #[test]
    fn who_waits_for_ever_is_left_and_who_works_is_not() {
        let waits = |over: &std::sync::mpsc::Receiver<()>| {
            let _ = over.recv();
        };
        assert_eq!(checks(waits), Some(7));
        let works = |over: &std::sync::mpsc::Receiver<()>| {
            while over.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {}
        };
        assert_eq!(checks(works), None);
    }
}
