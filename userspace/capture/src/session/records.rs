//! The kernel's records, in the order in which they were sent, a bounded number at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyobs_abi::record::Header;
use pyobs_model::{Event, Nanos, Reason};

use super::{Session, transfers};
use crate::copies::Copied;
use crate::cpython::copied::CopiedCode;
use crate::families::Purpose;
use crate::families::offcpu::Key;
use crate::kernel::object::RING_BYTES;
use crate::machine;
use crate::record::{Life, Record, Stack};

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
            match Record::parse(&bytes) {
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
            Record::CpuSample(stack)
            | Record::Sleep(stack)
            | Record::GilHolder(stack)
            | Record::Birth(stack)
            | Record::ArenaBirth(stack)
            | Record::ArenaStack(stack)
            | Record::NrtBirth(stack)
            | Record::UcxAsked(stack)
            | Record::RedundancyStack(stack) => {
                if let (Some(copies), Record::CpuSample(_)) = (&mut self.copies, record) {
                    copies.sample(stack);
                }
                self.take(record, stack);
            }
            Record::Code(code) => self.learn_code(code),
            Record::StackCopy(page) => {
                if let Some(copies) = &mut self.copies {
                    copies.page(page);
                }
            }
            Record::Shm(_) | Record::ArenaFreed(_) | Record::ArenaHit(_) | Record::NrtDeath(_) => {
                self.memory_changed(record);
            }
            Record::Ucx(record) => self.transferred(record),
            Record::Wake(wake) => {
                let no_stack = self.interner.stack(&[], &mut self.scratch);
                let process = self.processes.get(wake.header.pid).map(|(watched, _)| watched.id);
                self.families.woken(wake, process, no_stack, &mut self.scratch);
            }
            Record::Mapped(mapped) => self.processes.mapped(mapped.into()),
            Record::Life(notice) => self.life(notice),
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

    fn life(&mut self, notice: &Life) {
        self.transfers_end(notice);
        self.processes.notice(notice, &mut self.object, &mut self.scratch);
        self.memory_lives_on(notice);
        self.redundancy_lives_on(notice);
    }

    /// Ends the processes whose exit was lost.
    pub(super) fn end_gone(&mut self) {
        let time = machine::monotonic().0;
        for pid in self.processes.gone() {
            let _ = self.object.processes.remove(&pid);
            self.life(&Life::Exit(Header { time, pid, ..Header::default() }));
        }
    }

    /// A record with a stack.
    fn take(&mut self, record: &Record, stack: &Stack) {
        let header = &stack.sample.header;
        let at = Nanos(header.time).saturating_sub(self.start);
        // A process that user space has not seen yet, or has taken leave of while the last samples were under way.
        if self.processes.is_expected(header.pid) {
            return;
        }
        let Some((watched, native)) = self.processes.get(header.pid) else {
            return self.scratch.push(Event::Loss { at, reason: Reason::NotAttachedYet, count: 1 });
        };
        // The record of a GIL's holder has the name of the thread that waits for it.
        if !matches!(record, Record::GilHolder(_)) {
            watched.see_thread(header.tid, header.comm, &mut self.scratch);
        }
        watched.count_unattached();
        let (sample, id) = (&stack.sample, watched.id);
        let born = match (record, &self.shm) {
            (Record::Birth(_), Some(shm)) => match shm.born(sample) {
                Some(segment) => Some(Purpose::Birth { segment, at }),
                None => return,
            },
            (Record::ArenaBirth(_), _) => {
                let python = watched.python.as_deref();
                let arenas = self.arenas.as_mut();
                match arenas.and_then(|arenas| arenas.born(stack, id, python, &mut self.scratch)) {
                    Some(arena) => Some(Purpose::ArenaBirth { arena, at }),
                    None => return,
                }
            }
            (Record::ArenaStack(_), _) => match self.libraries.as_mut().and_then(|own| own.stack(header.tid)) {
                Some(purpose) => Some(purpose),
                None => return,
            },
            (Record::UcxAsked(_), _) => Some(Purpose::Asked { transfer: transfers::asked(stack), at }),
            (Record::NrtBirth(_), _) => match self.nrt.as_mut().and_then(|nrt| nrt.born(stack, &mut self.scratch)) {
                Some((meminfo, (data, bytes))) => Some(Purpose::NrtBirth { id: meminfo, at, process: id, data, bytes }),
                None => return,
            },
            _ => None,
        };
        let families = &mut self.families;
        if matches!(record, Record::Sleep(_)) {
            families.asleep(sample, id, &mut self.scratch);
        }
        self.stacks.take(stack, at, watched, native, &mut self.interner, &mut self.scratch, |outcome| match record {
            Record::Sleep(_) => Purpose::Sleep(Key::of(sample)),
            Record::GilHolder(_) => families.holder(sample),
            Record::RedundancyStack(_) => Purpose::Trap { watch: sample.detail[0], number: sample.detail[1] as u32 },
            Record::Birth(_)
            | Record::ArenaBirth(_)
            | Record::ArenaStack(_)
            | Record::NrtBirth(_)
            | Record::UcxAsked(_)
                if let Some(born) = born =>
            {
                born
            }
            _ => families.sampled(sample, id, outcome),
        });
    }

    /// With [`super::Walk::Copied`]: the samples since the last call, as the kernel side walked them, beside their stacks. The
    /// newest stay behind until all of their pages have come.
    pub fn copies(&mut self) -> Vec<Copied> {
        self.copies.as_mut().map_or_else(Vec::new, |copies| copies.take(machine::monotonic().0))
    }

    /// Tells of the stacks that have their names.
    pub(super) fn named(&mut self) {
        let (families, redundancy) = (&mut self.families, &mut self.redundancy);
        self.stacks.named(&mut self.interner, &mut self.scratch, |taken, events| {
            match (taken.purpose, &mut *redundancy) {
                (Purpose::Trap { watch, number }, Some(redundancy)) => redundancy.stack(watch, number, taken.stack),
                (purpose, _) => families.named(purpose, taken.stack, events),
            }
        });
    }
}
