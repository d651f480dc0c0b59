//! The family `cpu`: what its samples mean.

use pyobs_abi::stack;
use pyobs_model::{Event, Nanos, Outcome, ProcessRef, Reason, Sample, StackId, Tid};

/// A sample whose stack is being named.
#[derive(Clone, Copy, Debug)]
pub struct CpuSample {
    at: Nanos,
    process: ProcessRef,
    tid: Tid,
    cpu: u32,
    weight: Nanos,
    outcome: Outcome,
}

impl CpuSample {
    pub fn new(sample: &stack::Sample, at: Nanos, process: ProcessRef, outcome: Outcome) -> Self {
        let (header, weight) = (&sample.header, Nanos(sample.weight));
        Self { at, process, tid: Tid(header.tid), cpu: header.cpu, weight, outcome }
    }

    pub fn named(self, stack: Option<StackId>, events: &mut Vec<Event>) {
        let Self { at, process, tid, cpu, weight, outcome } = self;
        events.push(match stack {
            Some(stack) => Event::Sample(Sample { at, process, tid, cpu, stack, weight, outcome }),
            None => Event::Loss { at, reason: Reason::TableFull, count: 1 },
        });
    }
}
