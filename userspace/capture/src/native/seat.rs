//! Where a helping thread sits while it is at a job, so that another one can take its place when the job holds it up for ever, as a
//! file on a file system that answers no more does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::blocking::wants_to_run;
use crate::kernel::clocks::of_thread;

const INSPECT_EVERY: Duration = Duration::from_secs(1);
/// A thread counts as held up after this many looks in a row at which it had not run and was not waiting for a CPU.
const CHECKS: u32 = 5;

#[derive(Debug)]
struct Sitter<J> {
    job: Option<J>,
    /// How many jobs it has begun.
    begun: u64,
    thread: i32,
    is_left: bool,
}

/// The helping thread's side.
#[derive(Debug)]
pub struct Seat<J>(Arc<Mutex<Sitter<J>>>);

/// The side of who gives it jobs.
#[derive(Debug)]
pub struct Watch<J> {
    sitter: Arc<Mutex<Sitter<J>>>,
    inspected: Instant,
    /// What was seen by the last look: how many jobs were begun, and the thread's CPU time.
    seen: (u64, Option<Duration>),
    checks: u32,
}

/// Both sides of a new place.
pub fn pair<J>() -> (Seat<J>, Watch<J>) {
    let sitter = Arc::new(Mutex::new(Sitter { job: None, begun: 0, thread: 0, is_left: false }));
    let watch = Watch { sitter: Arc::clone(&sitter), inspected: Instant::now(), seen: (0, None), checks: 0 };
    (Seat(sitter), watch)
}

impl<J> Seat<J> {
    /// To be called by the thread before a job.
    pub fn begin(&self, job: J) {
        let mut sitter = lock(&self.0);
        sitter.thread = rustix::thread::gettid().as_raw_nonzero().get();
        (sitter.job, sitter.begun) = (Some(job), sitter.begun + 1);
    }

    /// To be called after it. When it returns false, another thread has taken its place, and it is to end.
    pub fn end(&self) -> bool {
        let mut sitter = lock(&self.0);
        sitter.job = None;
        !sitter.is_left
    }
}

impl<J: Copy> Watch<J> {
    /// The job that holds up the thread, which is left behind then. To be called often.
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

    /// The thread is held up, or runs, for as long as the test looks.
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
