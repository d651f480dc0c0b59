//! What a session's families cost, and how the budget is kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyobs_model::{Event, Family, Nanos, Reason};

use super::{Options, Session};
use crate::budget::{Binds, Change, Cost, Spender};
use crate::family::Spent;
use crate::kernel::clocks;
use crate::kernel::cost::{self, ThreadTime};
use crate::pipeline::Pipeline;
use crate::process_maps::lines;

pub(super) fn binds(options: &Options) -> Binds {
    let has_sleeps = options.probes.iter().any(|probe| [Family::OffCpu, Family::Gil].contains(probe));
    Binds {
        samples: options.budget_binds_rate,
        sleeps: has_sleeps && options.budget_binds_sleeps,
        named: options.budget_binds_calls,
    }
}

fn cost_of(spent: Spent) -> Cost {
    Cost { family: spent.on, kernel: Nanos(spent.programs.as_nanos() as u64 + spent.traps.0) }
}

impl Session {
    /// Marks the end of attaching. The CPU time used so far is start-up work.
    pub(super) fn started(&mut self) {
        let used = clocks::cpu_time().saturating_sub(self.cpu_at_start);
        self.pipeline.startup = used.saturating_sub(self.helped());
    }

    /// CPU time of the threads that make unwind tables and find names.
    fn helped(&self) -> Duration {
        self.helpers.iter().map(ThreadTime::so_far).sum()
    }

    /// Emits losses and costs, and enforces the budget.
    pub(super) fn account(&mut self) {
        self.pipeline.count_losses();
        self.pipeline.lose(Reason::MapCutShort, lines::take_truncated());
        self.pipeline.lose(Reason::CacheEvicted, crate::cache::take_evicted());
        let programs = Nanos(self.pipeline.context.object.run_time().as_nanos() as u64);
        let mut spent = Vec::new();
        let Pipeline { collectors, context, .. } = &mut self.pipeline;
        collectors.all_mut().for_each(|collector| collector.costs(&context.object, &mut spent));
        let traps = Nanos(spent.iter().map(|spent| spent.traps.0).sum());
        let mut costs: Vec<Cost> = spent.into_iter().map(cost_of).collect();
        let bpf = Nanos(programs.0 + traps.0);
        let known: u64 = costs.iter().map(|cost| cost.kernel.0).sum();
        costs.push(Cost { family: Spender::Rest, kernel: bpf.saturating_sub(Nanos(known)) });
        let nanos = |time: Duration| Nanos(time.as_nanos() as u64);
        let cpu = nanos(clocks::cpu_time().saturating_sub(self.cpu_at_start));
        let startup = Nanos(nanos(self.pipeline.startup + self.helped()).0.min(cpu.0));
        let at = self.now();
        self.pipeline.context.events.push(Event::Cost { at, bpf, cpu, startup, rss_bytes: cost::resident_bytes() });
        let changes = self.arbiter.observe(at, &costs, cpu.saturating_sub(startup));
        if !changes.is_empty() {
            self.apply(at, changes);
        }
        let allowed_share = self.arbiter.allowed_share();
        self.pipeline.collectors.all_mut().for_each(|collector| collector.allow(allowed_share));
        self.cost_at = Instant::now();
    }

    fn apply(&mut self, at: Nanos, changes: Vec<Change>) {
        let keep_every = (1.0 / self.arbiter.level(Spender::Samples)).round() as u64;
        let Pipeline { collectors, context, .. } = &mut self.pipeline;
        if !collectors.keep(&self.arbiter, context) {
            return;
        }
        context.keep_every = keep_every;
        for Change { family, before, after, sentence } in changes {
            for (measure, on) in [(before, false), (after, true)] {
                self.pipeline.context.events.extend(measure.map(|measure| Event::measure(at, family, measure, on)));
            }
            self.pipeline.context.events.extend(sentence.map(|what| Event::Shed { at, what: Arc::from(what) }));
        }
    }
}
