//! The kernel's records, in the order in which they were sent, a bounded number at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyobs_abi::record::{self, Header};
use pyobs_model::{Event, Family, Nanos, Reason};

use super::Session;
use crate::copies::Copied;
use crate::cpython::copied::CopiedCode;
use crate::family::NamedStack;
use crate::kernel::object::RING_BYTES;
use crate::machine;
use crate::record::{Lifecycle, Plain, Record, Stack};
use crate::registry;
use crate::stacks::Taken;

/// Records that are parsed together, so that the kernel functions that are new in them are looked up at once.
const CHUNK: usize = 512;
/// One turn of the loop spends at most this much time on records, plus one chunk. A kernel side that sends faster than records are
/// handled would otherwise keep the loop from the clock, the budget and the user.
const TURN: Duration = Duration::from_millis(100);
/// The kernel frees a record's bytes in the ring when it is taken, so a full ring holds at most this many.
const RING_RECORDS_MAX: usize = RING_BYTES as usize / size_of::<Header>();

impl Session {
    /// Handles the records of one turn. Returns whether the ring holds more.
    pub(super) fn drain_records(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            if self.drain_chunk() < CHUNK {
                return false;
            }
            if begun.elapsed() >= TURN {
                return true;
            }
        }
    }

    /// Handles what the ring held when this was called, and what fits into it meanwhile: what the kernel side sends goes on.
    pub(super) fn drain_ring_once(&mut self) {
        let mut drained = 0;
        while drained < RING_RECORDS_MAX {
            match self.drain_chunk() {
                CHUNK => drained += CHUNK,
                _ => return,
            }
        }
    }

    /// Returns the number of records that it has taken, at most [`CHUNK`].
    fn drain_chunk(&mut self) -> usize {
        let mut records = Vec::with_capacity(CHUNK);
        let mut malformed = 0;
        while records.len() + malformed < CHUNK
            && let Some(bytes) = self.object.records.next()
        {
            match Record::parse(&bytes, registry::kind) {
                Some(record) => records.push(record),
                None => malformed += 1,
            }
        }
        let taken = records.len() + malformed;
        self.lose(Reason::RecordMalformed, malformed as u64);
        self.stacks.learn_symbols(records.iter().filter_map(Record::stack));
        for record in records {
            self.handle(&record);
        }
        taken
    }

    fn handle(&mut self, record: &Record) {
        match record {
            Record::Stack(family, stack) => self.take(*family, stack),
            Record::Plain(family, plain) => self.take_plain(*family, plain),
            Record::Code(code) => self.learn_code(code),
            Record::StackCopy(page) => {
                if let Some(copies) = &mut self.copies {
                    copies.page(page);
                }
            }
            Record::Mapped(mapped) => self.processes.mapped(mapped.into()),
            Record::Lifecycle(notice) => self.lifecycle(notice),
        }
    }

    /// Caches the name of a copied code object. If it cannot be decoded, the stack that follows reads the process instead.
    fn learn_code(&mut self, code: &CopiedCode) {
        let header = &code.header;
        let at = Nanos(header.time).saturating_sub(self.start);
        let Some((watched, _)) = self.processes.get(header.pid) else { return };
        let Some(python) = watched.python.as_deref() else { return };
        if let Ok(object) = code.name(&python.layout, python.code_type) {
            watched.names.insert_code(code.frame(), Arc::new(object), at);
        }
    }

    fn lifecycle(&mut self, notice: &Lifecycle) {
        self.collectors.ended(notice, context!(self));
        self.processes.notice(notice, &mut self.object, &mut self.scratch);
        self.collectors.forked(notice, context!(self));
    }

    /// Ends the processes whose exit was lost.
    pub(super) fn end_gone(&mut self) {
        let time = machine::monotonic().0;
        for pid in self.processes.gone() {
            let _ = self.object.processes.remove(&pid);
            self.lifecycle(&Lifecycle::Exit(Header { time, pid, ..Header::default() }));
        }
    }

    /// A family's record without a stack.
    fn take_plain(&mut self, family: Family, plain: &Plain) {
        if self.collectors.record(family, plain, context!(self)).is_none() {
            self.lose(Reason::RecordMalformed, 1);
        }
    }

    /// A family's record with a stack.
    fn take(&mut self, family: Family, stack: &Stack) {
        let header = &stack.sample.header;
        let at = Nanos(header.time).saturating_sub(self.start);
        // A process that user space has not seen yet, or has forgotten while the last samples were under way.
        if self.processes.is_expected(header.pid) {
            return;
        }
        if family == Family::Cpu
            && let Some(copies) = &mut self.copies
        {
            copies.sample(stack);
        }
        let Some((watched, _)) = self.processes.get(header.pid) else {
            return self.scratch.push(Event::Loss { at, reason: Reason::NotAttachedYet, count: 1 });
        };
        // The record of a GIL's holder has the name of the thread that waits for it.
        if header.kind != record::GIL_HOLDER {
            watched.see_thread(header.tid, header.comm, &mut self.scratch);
        }
        watched.count_unattached();
        let process = watched.id;
        let Some(token) = self.collectors.wants(family, stack, process, context!(self)) else { return };
        if let Some((watched, native)) = self.processes.get(header.pid) {
            self.stacks.take(stack, at, watched, native, &mut self.interner, &mut self.scratch, token);
        }
    }

    /// With [`super::Walk::Copied`]: the samples since the last call, as the kernel side walked them, beside their stacks. The
    /// newest stay behind until all of their pages have come.
    pub fn copies(&mut self) -> Vec<Copied> {
        self.copies.as_mut().map_or_else(Vec::new, |copies| copies.take(machine::monotonic().0))
    }

    /// Hands on the stacks that have their names.
    pub(super) fn named(&mut self) {
        for Taken { purpose, stack, outcome } in self.stacks.named(&mut self.interner, &mut self.scratch) {
            self.collectors.named(purpose, NamedStack { id: stack, outcome }, context!(self));
        }
    }
}
