//! The family `cpu`: periodic samples of what each CPU runs.

use std::num::NonZeroU32;

use pyobs_abi::record;
use pyobs_model::{Event, Family, Nanos, Outcome, ProcessRef, Sample, StackId, Tid};

use crate::budget::{Arbiter, Spender};
use crate::family::{Collector, Context, FamilySpec, NamedStack, Spent, Start, Waiting};
use crate::kernel::object::{Object, SAMPLER, SAMPLER_COPIED};
use crate::kernel::program::ProgramSpec;
use crate::pipeline::decode::Stack;
use crate::session::error::StartError;

pub const SPEC: FamilySpec = FamilySpec {
    is_on_by_default: true,
    stacks: &[record::CPU_SAMPLE],
    programs: &[ProgramSpec::new(SAMPLER, &[Family::Cpu])],
    // `redundancy` decodes the memory access at each sample, so it needs the samples even when `cpu` is off.
    serves: &[Family::Redundancy],
    start,
    ..FamilySpec::new(Family::Cpu, "where code spends CPU time")
};

struct Cpu {
    /// False if samples are taken only on behalf of another family.
    is_on: bool,
    /// Samples whose stacks are being named.
    waiting: Waiting<Sample>,
}

fn start(start: &mut Start<'_>) -> Result<Box<dyn Collector>, StartError> {
    let is_on = start.options.probes.contains(&Family::Cpu);
    if is_on {
        start.object.load_sampler(if start.options.walk.pages() > 0 { SAMPLER_COPIED } else { SAMPLER })?;
    }
    Ok(Box::new(Cpu { is_on, waiting: Waiting::default() }))
}

/// How many microseconds ago the event loop's turn began. `bits` are those of an `f64`, which can be anything: a program
/// can give its event loop any clock.
fn turn_us(now: u64, bits: u64) -> Option<NonZeroU32> {
    let began = f64::from_bits(bits);
    let is_time = began.is_finite() && began > 0.0;
    let since = is_time.then(|| now.checked_sub((began * 1e9) as u64)).flatten()?;
    NonZeroU32::new(u32::try_from(since / 1000).ok()?)
}

impl Collector for Cpu {
    fn wants(&mut self, stack: &Stack, process: ProcessRef, context: &mut Context) -> Option<u64> {
        let (header, weight) = (&stack.sample.header, Nanos(stack.sample.weight));
        let (at, tid) = (context.at(header.time), Tid(header.tid));
        let turn_us = turn_us(header.time, stack.sample.turn);
        // Placeholders: both are filled in once the stack is named.
        let (stack, outcome) = (StackId(0), Outcome::Complete);
        Some(self.waiting.add(Sample { at, process, tid, cpu: header.cpu, stack, weight, turn_us, outcome }))
    }

    fn named(&mut self, number: u64, stack: NamedStack, context: &mut Context) {
        let Some(sample) = self.waiting.take(number) else { return };
        let Some(id) = stack.id else { return context.lose_stack(sample.at) };
        let sample = Sample { stack: id, outcome: stack.outcome, ..sample };
        context.samples.push(sample);
        if self.is_on {
            context.events.push(Event::Sample(sample));
        }
    }

    fn costs(&mut self, object: &Object, costs: &mut Vec<Spent>) {
        let (programs, _) = object.run_time_of(&[object.sampler()]);
        costs.push(Spent { on: Spender::Samples, programs, traps: Nanos(0) });
    }

    fn keep(&mut self, arbiter: &Arbiter, context: &mut Context) -> bool {
        context.object.keep_samples(arbiter.level(Spender::Samples))
    }
}
