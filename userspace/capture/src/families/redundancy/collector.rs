//! The family `redundancy` in a session.

use std::time::Duration;

use pyobs_model::{Nanos, ProcessRef};

use super::{INSPECTED_PER_SECOND, Redundancy, programs};
use crate::budget::{Arbiter, Spender};
use crate::family::{Collector, Context, NamedStack, Spent, Start, Waiting};
use crate::kernel::object::Object;
use crate::pipeline::decode::Stack;
use crate::session::error::StartError;

struct Accesses {
    redundancy: Redundancy,
    /// Traps by watchpoint and number.
    waiting: Waiting<(u64, u32)>,
}

/// How often finished watchpoints are taken up, and free ones given out.
const TURN_EVERY: Duration = Duration::from_millis(200);

pub(super) fn start(start: &mut Start<'_>) -> Result<Box<dyn Collector>, StartError> {
    let parts = programs::load(start.object)?;
    let rate_hz = start.options.rate_hz;
    programs::sample_one_in(start.object, rate_hz / INSPECTED_PER_SECOND);
    let redundancy = Redundancy::start(parts, start.start, rate_hz).map_err(StartError::Helper)?;
    Ok(Box::new(Accesses { redundancy, waiting: Waiting::default() }))
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

    fn next_due(&self) -> Option<Duration> {
        Some(TURN_EVERY)
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
