//! The family `nrt` in a session.

use pyobs_model::{Event, MemInfoChange, MemInfoId, Nanos, ProcessRef};

use super::{Nrt, Programs};
use crate::budget::{Arbiter, Spender};
use crate::family::{Collector, Context, NamedStack, Spent, Start, Waiting};
use crate::files::FileId;
use crate::kernel::object::Object;
use crate::pipeline::decode::{Plain, Stack};
use crate::session::error::StartError;

/// A MemInfo whose creation has no stack yet.
#[derive(Debug)]
struct Birth {
    at: Nanos,
    id: MemInfoId,
    process: ProcessRef,
    data: u64,
    bytes: u64,
}

struct MemInfos {
    nrt: Nrt,
    waiting: Waiting<Birth>,
}

pub(super) fn start(start: &mut Start<'_>) -> Result<Box<dyn Collector>, StartError> {
    let nrt = Nrt::new(Programs::load(start.object)?, start.start).map_err(StartError::Uprobes)?;
    Ok(Box::new(MemInfos { nrt, waiting: Waiting::default() }))
}

impl Collector for MemInfos {
    fn begin(&mut self, start: Nanos) {
        self.nrt.starts_at(start);
    }

    fn record(&mut self, record: &Plain, context: &mut Context) -> Option<()> {
        self.nrt.died(&record.read()?, &mut context.events);
        Some(())
    }

    fn wants(&mut self, stack: &Stack, process: ProcessRef, context: &mut Context) -> Option<u64> {
        let (id, (data, bytes)) = self.nrt.born(stack, &mut context.events)?;
        let at = context.at(stack.sample.header.time);
        Some(self.waiting.add(Birth { at, id, process, data, bytes }))
    }

    fn named(&mut self, number: u64, stack: NamedStack, context: &mut Context) {
        let Some(Birth { at, id, process, data, bytes }) = self.waiting.take(number) else { return };
        let Some(stack) = stack.id else { return context.lose_stack(at) };
        context.events.push(Event::MemInfo { at, id, change: MemInfoChange::Born { process, bytes, data, stack } });
    }

    fn ended(&mut self, pid: u32, _at: Nanos, _context: &mut Context) {
        self.nrt.ended(pid);
    }

    fn rewritten(&mut self, file: FileId) {
        self.nrt.rewritten(file);
    }

    fn mapped(&mut self, context: &mut Context) {
        context.notes.extend(self.nrt.follow(context.processes.mappings()));
    }

    fn advance(&mut self, context: &mut Context) {
        self.nrt.tick(context.now(), context.at_the_end, &mut context.events);
    }

    fn costs(&mut self, object: &Object, costs: &mut Vec<Spent>) {
        let programs = Programs::run_time(object);
        costs.push(Spent { on: Spender::MemInfos, programs, traps: self.nrt.trap_cost() });
    }

    fn keep(&mut self, arbiter: &Arbiter, _context: &mut Context) -> bool {
        if arbiter.level(Spender::MemInfos) == 0.0 {
            self.nrt.close();
        }
        true
    }

    fn goes_on_probing(&self) -> bool {
        true
    }
}
