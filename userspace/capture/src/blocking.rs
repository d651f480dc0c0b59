//! Work that others can block forever: reading a page that is never supplied (userfaultfd(2)), or a file
//! system that no longer responds.
//!
//! The kernel releases a thread in such a wait only when its process is killed. So each thread delegates such
//! work to a helper, and abandons the helper if it takes too long.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::gettid;

use crate::kernel::clocks::own_time;
use crate::privileges;

/// Longer than a busy machine makes a thread wait for a CPU, and short enough that Ctrl-C is answered in time
/// even after several timeouts.
pub const PATIENCE: Duration = Duration::from_millis(250);
/// Helpers that may be blocked at the same time; beyond this, such work is refused.
const THREADS_MAX: usize = 256;
/// What has blocked work is not tried again for this long, nor while the work is still blocked.
const LEFT_ALONE_FOR: Duration = Duration::from_secs(30);
/// An owner with this many blocking things is not tried at all, which limits the helpers it can block.
const TIMES_MAX: usize = 4;

type Work = Box<dyn FnOnce() + Send>;

struct Helper {
    queue: Sender<Work>,
    /// 0 until it has begun.
    thread: Arc<AtomicI32>,
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
    /// CPU time of the work done on behalf of this thread.
    static HELPED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// Ends when this thread ends or drops it.
    static HELPER: RefCell<Option<Helper>> = const { RefCell::new(None) };
}

/// Does some work that takes no time unless it is blocked.
pub fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    run_for(PATIENCE, work)
}

/// What has blocked work recently: things, such as files or ranges of memory, each with its owner, such as a
/// device or a process.
pub struct HeldUp<Owner, Thing>(Mutex<Vec<Entry<Owner, Thing>>>);

struct Entry<Owner, Thing> {
    owner: Owner,
    thing: Thing,
    since: Instant,
    /// Dropped if the work completes after all.
    work: Weak<()>,
}

impl<Owner: PartialEq, Thing> HeldUp<Owner, Thing> {
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Like [`run_for`], for work on one of an owner's things. Fails at once if work on the same thing, as judged
    /// by `is_it`, has blocked recently, or if work on several of the owner's things has (`TIMES_MAX`).
    pub fn run<T: Send + 'static>(
        &self,
        (owner, thing): (Owner, Thing),
        is_it: impl Fn(&Thing, &Thing) -> bool,
        patience: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let mut times = 0;
        for other in self.lately().iter().filter(|other| other.owner == owner) {
            times += 1;
            if times >= TIMES_MAX || is_it(&thing, &other.thing) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let own = Arc::new(());
        let under_way = Arc::downgrade(&own);
        let result = run_for(patience, move || {
            let result = work();
            drop(own);
            result
        });
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            self.lately().push(Entry { owner, thing, since: Instant::now(), work: under_way });
        }
        result
    }

    fn lately(&self) -> MutexGuard<'_, Vec<Entry<Owner, Thing>>> {
        let mut lately = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lately.retain(|entry| entry.work.strong_count() > 0 || entry.since.elapsed() < LEFT_ALONE_FOR);
        lately
    }
}

/// Does some work, or fails with `TimedOut` after this time. What the work holds is then released only when
/// it ends, if ever.
pub fn run_for<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    if IS_ALONE.get() {
        return Ok(work());
    }
    HELPER.with_borrow_mut(|helper| {
        let own = helper.take().map_or_else(start, Ok)?;
        let (sender, receiver) = sync_channel(1);
        let work = move || {
            let begun = own_time();
            let result = work();
            // If it was blocked, the receiver is gone.
            let _ = sender.send((result, own_time().saturating_sub(begun)));
        };
        // If the helper has ended, receiving reports that.
        let _ = own.queue.send(Box::new(work));
        loop {
            match receiver.recv_timeout(patience) {
                Ok((result, time)) => {
                    HELPED.set(helped() + time);
                    *helper = Some(own);
                    return Ok(result);
                }
                // Not blocked: the machine is just busy.
                Err(RecvTimeoutError::Timeout) if wants_to_run(own.thread.load(Relaxed)) => {}
                Err(RecvTimeoutError::Timeout) => return Err(io::ErrorKind::TimedOut.into()),
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("a helping thread has ended")),
            }
        }
    })
}

/// Makes the calling thread do its own work from now on. Other threads must not wait for it, because it can
/// block forever.
pub fn stand_alone() {
    IS_ALONE.set(true);
}

/// CPU time of the work done on behalf of this thread so far.
pub fn helped() -> Duration {
    HELPED.get()
}

/// Makes this thread's later work run with its current privileges.
pub fn renew() {
    HELPER.with_borrow_mut(|helper| *helper = None);
}

/// Whether a thread of this process is running or waiting for a CPU, as a new one is.
pub fn wants_to_run(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    // The name before it, in parentheses, may contain anything.
    thread == 0 || stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('R'))
}

fn start() -> io::Result<Helper> {
    if THREADS.fetch_add(1, Relaxed) >= THREADS_MAX {
        THREADS.fetch_sub(1, Relaxed);
        return Err(io::ErrorKind::TimedOut.into());
    }
    let (queue, receiver) = channel::<Work>();
    let thread = Arc::new(AtomicI32::new(0));
    let of_thread = Arc::clone(&thread);
    let body = move || {
        let _counted = Counted;
        of_thread.store(gettid().as_raw_nonzero().get(), Relaxed);
        // The waiting thread may have raised priority.
        privileges::go_first();
        receiver.into_iter().for_each(|work| work());
    };
    match thread::Builder::new().name("pyobs-reads".to_owned()).spawn(body) {
        Ok(_) => Ok(Helper { queue, thread }),
        Err(error) => {
            THREADS.fetch_sub(1, Relaxed);
            Err(error)
        }
    }
}

/// A helper thread in the total count.
struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn work_is_done_and_what_is_held_up_is_left_behind() {
        assert_eq!(run(|| 3).unwrap(), 3);
        let gate = Arc::new(Barrier::new(2));
        let closed = Arc::clone(&gate);
        let held_up = run(move || {
            closed.wait();
        });
        assert_eq!(held_up.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(run(|| 4).unwrap(), 4);
        gate.wait();
    }

    #[test]
    fn what_has_held_up_work_is_left_alone() {
        let held_up = HeldUp::new();
        let asked = |owner: char, thing: usize, waits: bool| {
            let patience = Duration::from_millis(if waits { 10 } else { 10_000 });
            held_up.run((owner, thing), usize::eq, patience, move || {
                if waits {
                    thread::sleep(Duration::from_secs(1));
                }
            })
        };
        assert!(asked('a', 0, false).is_ok());
        for thing in 1..TIMES_MAX {
            assert!(asked('a', thing, true).is_err());
            assert!(asked('a', thing, false).is_err(), "it is not asked again");
            assert!(asked('a', 0, false).is_ok(), "others are");
        }
        assert!(asked('a', TIMES_MAX, true).is_err());
        assert!(asked('a', 0, false).is_err(), "after so many of one owner, none of it is");
        assert!(asked('b', 1, false).is_ok());
    }

    #[test]
    fn what_panics_does_no_harm() {
        assert!(run(|| std::panic::resume_unwind(Box::new(()))).is_err());
        assert_eq!(run(|| 5).unwrap(), 5);
    }
}
