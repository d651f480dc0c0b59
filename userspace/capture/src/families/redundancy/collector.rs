//! The family `redundancy` in a session.

use std::path::Path;
use std::time::Duration;

use pyobs_model::{Nanos, ProcessRef, Sampler};

use super::{INSPECTED_PER_SECOND, Redundancy, programs};
use crate::budget::{Arbiter, Spender};
use crate::family::{Collector, Context, NamedStack, Spent, Start, Waiting};
use crate::kernel::addresses::{DEVICES, Unit};
use crate::kernel::object::Object;
use crate::pipeline::decode::Stack;
use crate::session::error::StartError;
use crate::session::options::Addresses;

struct Accesses {
    redundancy: Redundancy,
    /// Traps by watchpoint and number.
    waiting: Waiting<(u64, u32)>,
}

pub(super) fn start(start: &mut Start<'_>) -> Result<Box<dyn Collector>, StartError> {
    let parts = programs::load(start.object)?;
    let sampler = sample_accesses(start);
    let rate_hz = start.options.rate_hz;
    programs::sample_one_in(start.object, rate_hz / INSPECTED_PER_SECOND);
    let redundancy = Redundancy::start(parts, start.start, sampler, rate_hz).map_err(StartError::Helper)?;
    Ok(Box::new(Accesses { redundancy, waiting: Waiting::default() }))
}

/// Makes the processor sample accesses if it can. Otherwise addresses are decoded from the clock's samples.
fn sample_accesses(start: &mut Start<'_>) -> Sampler {
    let unit = match start.options.addresses {
        Addresses::Best => Unit::find(Path::new(DEVICES)),
        Addresses::Faults => Some(Unit::of_faults()),
    };
    let Some(unit) = unit else { return Sampler::Decoded };
    match start.object.attach_addresses(programs::ACCESS, &unit, start.options.rate_hz) {
        Ok(()) => unit.sampler,
        Err(error) => {
            start.notes.push(format!("the processor's own samples of accesses are not to be had: {error}"));
            Sampler::Decoded
        }
    }
}

impl Collector for Accesses {
    fn begin(&mut self, start: Nanos) {
        self.redundancy.starts_at(start);
    }

    fn wants(&mut self, stack: &Stack, _process: ProcessRef, _context: &mut Context) -> Option<u64> {
        let [watch, number] = stack.sample.detail;
        Some(self.waiting.add((watch, number as u32)))
    }

    fn named(&mut self, number: u64, stack: NamedStack, _context: &mut Context) {
        if let Some((watch, number)) = self.waiting.take(number) {
            self.redundancy.stack(watch, number, stack.id);
        }
    }

    fn ended(&mut self, pid: u32, _at: Nanos, _context: &mut Context) {
        self.redundancy.ended(pid);
    }

    fn advance(&mut self, context: &mut Context) {
        let now = context.now();
        let Context { keep_every, at_the_end, processes, samples, events, .. } = context;
        self.redundancy.tick(now, *keep_every, processes.running(), *at_the_end, samples, events);
    }

    fn costs(&mut self, object: &Object, costs: &mut Vec<Spent>) {
        // These run per sample, so the sampling rate controls their cost.
        costs.push(Spent { on: Spender::Samples, programs: programs::run_time(object), traps: Nanos(0) });
        let (programs, traps) = (Duration::ZERO, self.redundancy.trap_cost());
        costs.push(Spent { on: Spender::Watchpoints, programs, traps });
    }

    fn keep(&mut self, arbiter: &Arbiter, _context: &mut Context) -> bool {
        self.redundancy.set_share(arbiter.level(Spender::Watchpoints));
        true
    }

    fn stop(&mut self) {
        self.redundancy.end();
    }
}
