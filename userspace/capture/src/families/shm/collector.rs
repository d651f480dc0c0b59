//! The family `shm` in a session.

use pyobs_abi::control;
use pyobs_model::{Event, Nanos, ProcessRef, SegmentChange, SegmentId};

use super::Shm;
use super::programs::{self, Iterators};
use crate::family::{Collector, Context, NamedStack, Start, Waiting};
use crate::pipeline::decode::{Plain, Stack};
use crate::session::error::StartError;
use crate::session::options::Targets;

struct Segments {
    shm: Shm,
    iterators: Iterators,
    /// Creations whose stacks are being named.
    waiting: Waiting<(SegmentId, Nanos)>,
}

pub(super) fn start(start: &mut Start<'_>) -> Result<Box<dyn Collector>, StartError> {
    let maps = programs::attach(start.object)?;
    let iterators = if start.options.iterators { Iterators::load(start.object) } else { Iterators::NONE };
    start.meta.segment_repair = if iterators.work() { "iterators" } else { "proc" }.to_owned();
    let mut shm = Shm::new(start.start, maps);
    let running = start.processes.running().map(|running| running.pid);
    let now = crate::machine::monotonic().saturating_sub(start.start);
    shm.scan(now, start.options.targets == Targets::All, running, start.events);
    Ok(Box::new(Segments { shm, iterators, waiting: Waiting::default() }))
}

impl Segments {
    /// The first segment is there: what is done with it shows only at system calls.
    fn watch_calls(&mut self, context: &mut Context) {
        match context.object.attach_later_calls(control::FAMILY_SHM) {
            Ok(()) => self.shm.scan_again(),
            Err(error) => {
                context.notes.push(format!("shared memory is only seen when it is mapped, and every 10 s: {error}"));
            }
        }
    }
}

impl Collector for Segments {
    fn begin(&mut self, start: Nanos) {
        self.shm.starts_at(start);
    }

    fn record(&mut self, record: &Plain, context: &mut Context) -> Option<()> {
        self.shm.take(record, &mut context.events)
    }

    fn wants(&mut self, stack: &Stack, _process: ProcessRef, context: &mut Context) -> Option<u64> {
        let segment = self.shm.born(&stack.sample)?;
        Some(self.waiting.add((segment, context.at(stack.sample.header.time))))
    }

    fn named(&mut self, number: u64, stack: NamedStack, context: &mut Context) {
        let Some((id, at)) = self.waiting.take(number) else { return };
        let Some(stack) = stack.id else { return context.lose_stack(at) };
        context.events.push(Event::Segment { at, id, change: SegmentChange::Born(stack) });
    }

    fn forked(&mut self, parent: u32, (child, _): (u32, ProcessRef), _at: Nanos, _context: &mut Context) {
        self.shm.child_of(parent, child);
    }

    fn advance(&mut self, context: &mut Context) {
        if context.object.has_later_calls() && self.shm.has_begun() {
            self.watch_calls(context);
        }
        let (shm, now) = (&mut self.shm, context.now());
        if shm.is_reconciliation_due() {
            let had_iterators = self.iterators.work();
            shm.reconcile(now, || self.iterators.run(&mut context.object), &mut context.events);
            if had_iterators && !self.iterators.work() {
                context.notes.push(
                    "the kernel's iterators have failed: what processes have of segments is read from /proc from now on"
                        .to_owned(),
                );
            }
        }
        shm.tick(now, context.processes.running().map(|running| running.pid), &mut context.events);
        let running = context.processes.running().map(|running| (running.pid, running.id));
        shm.inspect_memory(now, running, context.at_the_end, &mut context.events);
    }
}
