//! Makes unwind tables in a thread of its own, because a large library takes a tenth of a second.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::contents::Contents;
use super::seat::{self, Seat, Watch};
use super::table::Table;
use crate::kernel::cost::{Duty, ThreadTime};
use crate::kernel::release;
use crate::privileges::{self, Keep};

/// Always false: not even the end of a recording waits for tables. A stack whose table is missing is marked as such.
static IS_AWAITED: AtomicBool = AtomicBool::new(false);

/// A finished table.
pub struct Built {
    pub number: u32,
    /// `None` for a file without unwind information.
    pub table: Option<Table>,
}

/// State that a thread passes on to the one that replaces it.
struct Work {
    jobs: Mutex<Receiver<(u32, Contents)>>,
    done: Sender<Built>,
    time: ThreadTime,
}

pub struct Builder {
    jobs: Sender<(u32, Contents)>,
    done: Receiver<Built>,
    work: Arc<Work>,
    watch: Watch<u32>,
}

impl Builder {
    pub fn start() -> std::io::Result<Self> {
        let (jobs, receiver) = channel::<(u32, Contents)>();
        let (sender, done) = channel();
        let work = Arc::new(Work { jobs: Mutex::new(receiver), done: sender, time: ThreadTime::default() });
        let watch = Work::go_on(&work)?;
        Ok(Self { jobs, done, work, watch })
    }

    /// CPU time used so far.
    pub fn thread_time(&self) -> ThreadTime {
        self.work.time.clone()
    }

    pub fn ask(&self, number: u32, contents: Contents) {
        // Cannot fail: the thread ends only with us.
        let _ = self.jobs.send((number, contents));
    }

    /// The tables finished by now. A file that does not respond counts as one without unwind information.
    pub fn done(&mut self) -> Vec<Built> {
        let mut done: Vec<Built> = self.done.try_iter().collect();
        if let Some(number) = self.watch.held_up() {
            done.push(Built { number, table: None });
            if let Ok(watch) = Work::go_on(&self.work) {
                self.watch = watch;
            }
        }
        done
    }
}

impl Work {
    /// Starts a thread: the first one, or a replacement.
    fn go_on(work: &Arc<Self>) -> std::io::Result<Watch<u32>> {
        let (seat, watch) = seat::pair();
        let work = Arc::clone(work);
        thread::Builder::new().name("pyobs-tables".to_owned()).spawn(move || work.build(&seat))?;
        Ok(watch)
    }

    fn build(&self, seat: &Seat<u32>) {
        // It parses untrusted input, from files that are already open.
        let _ = privileges::drop_after_attach(release::version(), Keep::Reading);
        self.time.begin();
        let mut duty = Duty::begin();
        loop {
            let job = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((number, contents)) = job else { return };
            seat.begin(number);
            let table = contents.table();
            self.time.note();
            let table = table.ok().filter(|table| table.rows > 1);
            if !seat.end() || self.done.send(Built { number, table }).is_err() {
                return;
            }
            duty.rest(&IS_AWAITED);
        }
    }
}
