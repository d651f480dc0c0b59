//! One watched process.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::HashMap;
use pyobs_abi::process::{self, SAMPLED};
use pyobs_abi::record::COMM_LEN;
use pyobs_model::{Event, Placement, Process, ProcessRef, Tid};

use crate::cpython::attached::Attached;
use crate::frame_cache::FrameCache;
use crate::native::Native;
use crate::native::store::Placed;
use crate::pipeline::decode;
use crate::process_maps::{Mapping, Mappings};

pub struct Watched {
    pub id: ProcessRef,
    pub pid: u32,
    /// The process that it was forked from, unless it has execed since.
    pub parent: Option<u32>,
    /// `None` for a process that runs no CPython, or none that we can watch.
    pub python: Option<Rc<Attached>>,
    pub names: FrameCache,
    pub(super) facts: Process,
    pub(super) placement: Placement,
    pub(super) mappings: Rc<Mappings>,
    /// Where the kernel side has its mappings.
    pub(super) placed: Option<Rc<Placed>>,
    pub(super) threads: HashMap<u32, [u8; 16]>,
    /// What the kernel side was told about it.
    pub(super) entry: process::Process,
    /// Samples taken while no interpreter is known.
    pub(super) unattached: u64,
}

impl Watched {
    /// The executable mapping that contains an address.
    pub fn mapping(&self, address: u64) -> Option<&Mapping> {
        self.mappings.find(address)
    }

    /// The executable mappings.
    pub fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    /// See [`Mappings::greenlet`].
    pub fn greenlet(&self) -> Option<Range<u64>> {
        self.mappings.greenlet()
    }

    /// Takes over a memory map and passes it to the kernel side.
    pub(super) fn place(&mut self, mappings: Mappings, native: &mut Native) {
        self.placed = native.place(&mappings).map(Rc::new);
        self.mappings = Rc::new(mappings);
        (self.entry.mappings, self.entry.mapping_count, self.entry.mapping_set) =
            self.placed.as_ref().map_or((0, 0, 0), |placed| (placed.start, placed.count, placed.set));
    }

    /// Counts a sample that might have Python frames if we knew the interpreter.
    pub fn count_unattached(&mut self) {
        self.unattached += u64::from(self.python.is_none());
    }

    /// Emits a thread's name if it is new.
    pub fn see_thread(&mut self, tid: u32, comm: [u8; COMM_LEN], events: &mut Vec<Event>) {
        if self.threads.insert(tid, comm) != Some(comm) {
            let name = Arc::from(decode::name(&comm));
            events.push(Event::Thread { process: self.id, tid: Tid(tid), name });
        }
    }
}

/// The kernel side's entry for a process without Python, as far as is known.
pub(super) fn sampled() -> process::Process {
    process::Process { flags: SAMPLED, ..process::Process::default() }
}
