//! The family `ucx` in a session.

use std::time::Duration;

use pyobs_abi::record;
use pyobs_abi::ucx::Done;
use pyobs_model::{Event, Nanos, ProcessRef, TransferChange, TransferId};

use super::{REPORT_EVERY, Ucx, number, programs};
use crate::budget::{Arbiter, Spender};
use crate::family::{Collector, Context, NamedStack, Spent, Start, Waiting};
use crate::files::FileId;
use crate::kernel::object::Object;
use crate::pipeline::decode::{Plain, Stack};
use crate::session::error::StartError;

struct Transfers {
    ucx: Ucx,
    /// Submissions whose stacks are being named.
    waiting: Waiting<(TransferId, Nanos)>,
}

pub(super) fn start(start: &mut Start<'_>) -> Result<Box<dyn Collector>, StartError> {
    let (programs, maps) = programs::load(start.object)?;
    let ucx = Ucx::new(programs, maps, start.options.budget_binds_calls, start.start).map_err(StartError::Uprobes)?;
    Ok(Box::new(Transfers { ucx, waiting: Waiting::default() }))
}

impl Collector for Transfers {
    fn begin(&mut self, start: Nanos) {
        self.ucx.starts_at(start);
    }

    fn record(&mut self, record: &Plain, context: &mut Context) -> Option<()> {
        match record.header.kind {
            record::UCX_TRANSFER => {
                let done: Done = record.read()?;
                if let Some((watched, _)) = context.processes.get(done.header.pid) {
                    watched.see_thread(done.header.tid, done.header.comm, &mut context.events);
                    self.ucx.done(&done, watched.id, &mut context.events);
                }
            }
            record::UCX_WOKEN => self.ucx.woken(&record.read()?, &mut context.events),
            _ => self.ucx.called_back(&record.read()?),
        }
        Some(())
    }

    fn wants(&mut self, stack: &Stack, _process: ProcessRef, context: &mut Context) -> Option<u64> {
        let transfer = number(stack.sample.detail[0]);
        Some(self.waiting.add((transfer, context.at(stack.sample.header.time))))
    }

    fn named(&mut self, number: u64, stack: NamedStack, context: &mut Context) {
        let Some((id, at)) = self.waiting.take(number) else { return };
        let Some(stack) = stack.id else { return context.lose_stack(at) };
        context.events.push(Event::Transfer { at, id, change: TransferChange::Asked(stack) });
    }

    fn ended(&mut self, pid: u32, at: Nanos, context: &mut Context) {
        self.ucx.ended(pid, at, &mut context.events);
    }

    fn rewritten(&mut self, file: FileId) {
        self.ucx.rewritten(file);
    }

    fn mapped(&mut self, context: &mut Context) {
        context.notes.extend(self.ucx.follow(context.processes.mappings()));
    }

    fn advance(&mut self, context: &mut Context) {
        let now = context.now();
        let Context { at_the_end, processes, object, events, .. } = context;
        self.ucx.tick(now, *at_the_end, processes.watched(), &mut object.control, events);
    }

    fn next_due(&self) -> Option<Duration> {
        Some(REPORT_EVERY)
    }

    fn costs(&mut self, object: &Object, costs: &mut Vec<Spent>) {
        let (programs, runs) = programs::run_time(object);
        let traps = self.ucx.trap_cost(runs, programs::stepped(object));
        costs.push(Spent { on: Spender::Transfers, programs, traps });
    }

    fn keep(&mut self, arbiter: &Arbiter, context: &mut Context) -> bool {
        self.ucx.keep(arbiter.level(Spender::Transfers), context.now(), &mut context.events);
        true
    }

    fn goes_on_probing(&self) -> bool {
        true
    }
}
