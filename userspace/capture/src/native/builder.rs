//! Makes unwind tables in a thread of its own: a large library takes a tenth of a second.

use std::fs::File;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::seat::{self, Seat, Watch};
use super::table::{self, Table};
use crate::kernel::cost::{Duty, ThreadTime};
use crate::kernel::release;
use crate::privileges::{self, Keep};

/// The end of a recording does not wait for tables: a stack that lacks one says so.
static NOBODY_WAITS: AtomicBool = AtomicBool::new(false);

/// What a table is made from.
pub enum From {
    /// An ELF file of so many bytes.
    File(File, u64),
    /// An ELF image as it lies in memory.
    Memory(Vec<u8>),
}

/// A file is done.
pub struct Built {
    pub number: u32,
    /// `None` for a file that says nothing of its frames.
    pub table: Option<Table>,
}

/// What a thread passes on to the one that replaces it.
struct Work {
    jobs: Mutex<Receiver<(u32, From)>>,
    done: Sender<Built>,
    time: ThreadTime,
}

pub struct Builder {
    jobs: Sender<(u32, From)>,
    done: Receiver<Built>,
    work: Arc<Work>,
    watch: Watch<u32>,
}

impl Builder {
    pub fn start() -> std::io::Result<Self> {
        let (jobs, receiver) = channel::<(u32, From)>();
        let (sender, done) = channel();
        let work = Arc::new(Work { jobs: Mutex::new(receiver), done: sender, time: ThreadTime::default() });
        let watch = Work::go_on(&work)?;
        Ok(Self { jobs, done, work, watch })
    }

    /// What it has cost so far.
    pub fn thread_time(&self) -> ThreadTime {
        self.work.time.clone()
    }

    pub fn ask(&self, number: u32, from: From) {
        // The thread ends only when we do.
        let _ = self.jobs.send((number, from));
    }

    /// What is done by now. A file that does not answer counts as one that says nothing.
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
    /// Starts a thread: the first one, or one that replaces another.
    fn go_on(work: &Arc<Self>) -> std::io::Result<Watch<u32>> {
        let (seat, watch) = seat::pair();
        let work = Arc::clone(work);
        thread::Builder::new().name("pyobs-tables".to_owned()).spawn(move || work.build(&seat))?;
        Ok(watch)
    }

    fn build(&self, seat: &Seat<u32>) {
        // It reads what strangers wrote, from files that are open already.
        let _ = privileges::drop_after_attach(release::version(), Keep::Reading);
        self.time.begin();
        let mut duty = Duty::begin();
        loop {
            let job = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((number, from)) = job else { return };
            seat.begin(number);
            let table = match from {
                From::File(file, size) => table::read(&file, size),
                From::Memory(image) => table::of_memory(&image),
            };
            self.time.note();
            let table = table.ok().filter(|table| table.rows > 1);
            if !seat.end() || self.done.send(Built { number, table }).is_err() {
                return;
            }
            duty.rest(&NOBODY_WAITS);
        }
    }
}
