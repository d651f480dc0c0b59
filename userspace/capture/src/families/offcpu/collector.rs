//! The families `offcpu` and `gil` in a session. They share their programs, because a wait for the GIL is a
//! sleep.

use pyobs_abi::offcpu::Wake;
use pyobs_abi::record;
use pyobs_abi::stack::{self, flags};
use pyobs_model::{Family, GilHolder, Nanos, ProcessRef, Tid};

use super::programs::{self, Sleepers};
use super::{Key, OffCpu};
use crate::budget::{Arbiter, Spender};
use crate::families::gil::Gil;
use crate::family::{Collector, Context, NamedStack, Spent, Start, Waiting};
use crate::kernel::object::Object;
use crate::pipeline::decode::{Plain, Stack};
use crate::session::error::StartError;

/// What a stack was taken for.
#[derive(Debug)]
enum Wanted {
    Sleep(Key),
    Holder { waiter: Key, tid: u32 },
}

struct Waits {
    offcpu: OffCpu,
    gil: Gil,
    sleepers: Sleepers,
    waiting: Waiting<Wanted>,
}

pub(super) fn start(start: &mut Start<'_>) -> Result<Box<dyn Collector>, StartError> {
    let has = |family| start.options.probes.contains(&family);
    let (offcpu, gil) = (OffCpu::new(start.start, has(Family::OffCpu)), Gil::new(has(Family::Gil)));
    let sleepers = programs::attach(start.object)?;
    Ok(Box::new(Waits { offcpu, gil, sleepers, waiting: Waiting::default() }))
}

impl Collector for Waits {
    fn begin(&mut self, start: Nanos) {
        self.offcpu.starts_at(start);
    }

    fn record(&mut self, record: &Plain, context: &mut Context) -> Option<()> {
        let wake: Wake = record.read()?;
        let process = context.processes.get(wake.header.pid).map(|(watched, _)| watched.id);
        let is_mate = wake.waker_tid != 0 && wake.waker_pid == wake.header.pid;
        let no_stack = context.interner.stack(&[], None, &mut context.events).filter(|_| is_mate);
        let next = no_stack.map(|stack| GilHolder { tid: Tid(wake.waker_tid), stack });
        self.offcpu.woken(&wake, process, next, &mut self.gil, &mut context.events);
        Some(())
    }

    fn wants(&mut self, stack: &Stack, process: ProcessRef, context: &mut Context) -> Option<u64> {
        let sample = &stack.sample;
        let wanted = if sample.header.kind == record::GIL_HOLDER {
            // A holder's sample carries the waiter's key.
            let waiter = Key { tid: sample.detail[0] as u32, since: sample.header.time };
            self.offcpu.held(waiter);
            Wanted::Holder { waiter, tid: sample.header.tid }
        } else {
            self.offcpu.asleep(sample, process, &mut self.gil, &mut context.events);
            Wanted::Sleep(Key::of(sample))
        };
        Some(self.waiting.add(wanted))
    }

    fn named(&mut self, number: u64, stack: NamedStack, context: &mut Context) {
        match self.waiting.take(number) {
            Some(Wanted::Sleep(key)) => self.offcpu.named(key, stack.id, &mut self.gil, &mut context.events),
            Some(Wanted::Holder { waiter, tid }) => {
                self.offcpu.holder_named(waiter, tid, stack.id, &mut self.gil, &mut context.events);
            }
            None => {}
        }
    }

    fn sampled(&mut self, sample: &stack::Sample, process: ProcessRef) {
        if sample.flags & flags::HOLDS_GIL != 0 {
            self.gil.held(process, Tid(sample.header.tid), Nanos(sample.weight));
        }
    }

    fn advance(&mut self, context: &mut Context) {
        let no_stack = context.interner.stack(&[], None, &mut context.events);
        let (now, is_last, sleepers) = (context.now(), context.at_the_end, &self.sleepers);
        self.offcpu.report_open(now, is_last, |tid| sleepers.of(tid), no_stack, &mut self.gil, &mut context.events);
        self.gil.report(now, is_last, &mut context.events);
    }

    fn costs(&mut self, object: &Object, costs: &mut Vec<Spent>) {
        costs.push(Spent { on: Spender::Sleeps, programs: programs::run_time(object), traps: Nanos(0) });
    }

    fn keep(&mut self, arbiter: &Arbiter, context: &mut Context) -> bool {
        let times = (1.0 / arbiter.level(Spender::Sleeps)).round() as u64;
        programs::reduce_stack_rate(&mut context.object, times)
    }
}
