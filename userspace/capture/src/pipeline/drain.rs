//! Handles the kernel's records in order, a bounded number at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyobs_abi::record::{self, Header};
use pyobs_model::{Event, Family, Reason};

use super::Pipeline;
use super::decode::{Lifecycle, Plain, Record, Stack};
use crate::cpython::copied::CopiedCode;
use crate::kernel::object::RING_BYTES;
use crate::machine;
use crate::registry;

/// Records parsed together, so that kernel functions new in them are looked up in one go.
const CHUNK: usize = 512;
/// Time limit for the records of one turn, plus one chunk. Without it, a kernel side that sends faster than
/// we handle would keep the loop from the clock, the budget and the user.
const TURN: Duration = Duration::from_millis(100);
/// A full ring buffer contains at most this many. The kernel frees a record's bytes when it is taken.
const RING_RECORDS_MAX: usize = RING_BYTES as usize / size_of::<Header>();

impl Pipeline {
    /// Handles the records of one turn. Returns whether the ring buffer contains more.
    pub(super) fn drain(&mut self) -> bool {
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

    /// Handles as many records as a full ring buffer contains. Bounded, because the kernel side keeps
    /// sending.
    pub(super) fn drain_ring_once(&mut self) {
        let mut drained = 0;
        while drained < RING_RECORDS_MAX {
            match self.drain_chunk() {
                CHUNK => drained += CHUNK,
                _ => return,
            }
        }
    }

    /// Returns the number of records taken, at most [`CHUNK`].
    fn drain_chunk(&mut self) -> usize {
        let mut records = std::mem::take(&mut self.records);
        let mut malformed = 0;
        while records.len() + malformed < CHUNK
            && let Some(bytes) = self.context.object.records.next()
        {
            match Record::parse(&bytes, registry::kind) {
                Some(record) => records.push(record),
                None => malformed += 1,
            }
        }
        let taken = records.len() + malformed;
        self.lose(Reason::RecordMalformed, malformed as u64);
        self.stacks.learn_symbols(records.iter().filter_map(Record::stack));
        for record in records.drain(..) {
            self.handle(&record);
        }
        self.records = records;
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
            Record::Mapped(mapped) => self.context.processes.mapped(mapped.into()),
            Record::Lifecycle(notice) => self.lifecycle(notice),
        }
    }

    /// Caches the name of a copied code object. If it cannot be decoded, the stack that follows reads the
    /// process's memory instead.
    fn learn_code(&mut self, code: &CopiedCode) {
        let header = &code.header;
        let at = self.context.at(header.time);
        let Some((watched, _)) = self.context.processes.get(header.pid) else { return };
        let Some(python) = watched.python.as_deref() else { return };
        if let Ok(object) = code.name(&python.layout, python.code_type) {
            watched.names.insert_code(code.frame(), Arc::new(object), at);
        }
    }

    fn lifecycle(&mut self, notice: &Lifecycle) {
        self.collectors.ended(notice, &mut self.context);
        self.context.processes.notice(notice, &mut self.context.object, &mut self.context.events);
        self.collectors.forked(notice, &mut self.context);
    }

    /// Ends the processes whose exit record was lost.
    pub(super) fn end_gone(&mut self) {
        let time = machine::monotonic().0;
        for pid in self.context.processes.gone() {
            let _ = self.context.object.processes.remove(&pid);
            self.lifecycle(&Lifecycle::Exit(Header { time, pid, ..Header::default() }));
        }
    }

    /// Handles a family's record without a stack.
    fn take_plain(&mut self, family: Family, plain: &Plain) {
        if self.collectors.record(family, plain, &mut self.context).is_none() {
            self.lose(Reason::RecordMalformed, 1);
        }
    }

    /// Handles a family's record with a stack.
    fn take(&mut self, family: Family, stack: &Stack) {
        let header = &stack.sample.header;
        let at = self.context.at(header.time);
        // Until its exec, the launched process is pyobs's own launcher, which is not watched.
        if self.context.processes.is_expected(header.pid) {
            return;
        }
        if family == Family::Cpu
            && let Some(copies) = &mut self.copies
        {
            copies.sample(stack);
        }
        // User space has not seen this process yet, or forgot it while its last samples were in the ring buffer.
        let Some((watched, _)) = self.context.processes.get(header.pid) else {
            return self.context.events.push(Event::Loss { at, reason: Reason::NotAttachedYet, count: 1 });
        };
        // The record of a GIL holder carries the waiter's thread name.
        if header.kind != record::GIL_HOLDER {
            watched.see_thread(header.tid, header.comm, &mut self.context.events);
        }
        watched.count_unattached();
        let process = watched.id;
        let Some(token) = self.collectors.wants(family, stack, process, &mut self.context) else { return };
        if let Some((watched, native)) = self.context.processes.get(header.pid) {
            self.stacks.take(stack, at, watched, native, &mut self.context.interner, &mut self.context.events, token);
            if let Some(task) = self.collectors.task_of(stack, &mut self.context) {
                self.stacks.belongs_to(task);
            }
        }
    }
}
