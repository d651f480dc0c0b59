//! Makes unwind tables in a thread of its own: a large library takes a tenth of a second.

use std::fs::File;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::table::{self, Table};
use crate::doctor::kernel_version;
use crate::kernel::cost::{Duty, ThreadTime};
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

pub struct Builder {
    jobs: Sender<(u32, From)>,
    done: Receiver<Built>,
    time: ThreadTime,
}

impl Builder {
    pub fn start() -> std::io::Result<Self> {
        let (jobs, receiver) = channel::<(u32, From)>();
        let (sender, done) = channel();
        let time = ThreadTime::default();
        let own = time.clone();
        thread::Builder::new().name("pyobs-tables".to_owned()).spawn(move || {
            // It reads what strangers wrote, from files that are open already.
            let _ = privileges::drop_after_attach(kernel_version(), Keep::Reading);
            own.begin();
            let mut duty = Duty::begin();
            for (number, from) in receiver {
                let table = match from {
                    From::File(file, size) => table::read(&file, size),
                    From::Memory(image) => table::of_memory(&image),
                };
                own.note();
                let table = table.ok().filter(|table| table.rows > 1);
                if sender.send(Built { number, table }).is_err() {
                    break;
                }
                duty.rest(&NOBODY_WAITS);
            }
        })?;
        Ok(Self { jobs, done, time })
    }

    /// What it has cost so far.
    pub fn thread_time(&self) -> ThreadTime {
        self.time.clone()
    }

    pub fn ask(&self, number: u32, from: From) {
        // The thread ends only when we do.
        let _ = self.jobs.send((number, from));
    }

    pub fn done(&self) -> Vec<Built> {
        self.done.try_iter().collect()
    }
}
