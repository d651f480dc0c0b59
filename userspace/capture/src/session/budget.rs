//! What a session's families cost, and what becomes of that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyobs_model::{Event, Nanos, Reason};

use super::{Options, Session};
use crate::budget::{Binds, Change, Cost, Family};
use crate::families::KERNEL_LOSSES;
use crate::families::redundancy::Redundancy;
use crate::kernel::cost::{self, ThreadTime};
use crate::process_maps::lines;

pub(super) fn binds(options: &Options) -> Binds {
    let has_sleeps = options.probes.iter().any(|probe| ["offcpu", "gil"].contains(probe));
    Binds {
        samples: options.budget_binds_rate,
        sleeps: has_sleeps && options.budget_binds_sleeps,
        named: options.budget_binds_calls,
    }
}

pub(super) fn of(family: Family, programs: Duration, traps: Nanos) -> Cost {
    Cost { family, kernel: Nanos(programs.as_nanos() as u64 + traps.0) }
}

impl Session {
    /// Everything is attached. What this took is start-up work.
    pub(super) fn started(&mut self) {
        let used = cost::cpu_time().saturating_sub(self.cpu_at_start);
        self.startup = used.saturating_sub(self.helped());
    }

    /// What the threads have used that make unwind tables and find names.
    fn helped(&self) -> Duration {
        self.helpers.iter().map(ThreadTime::so_far).sum()
    }

    /// Tells losses and costs, and holds the budget.
    pub(super) fn account(&mut self) {
        let losses = self.object.losses();
        for (index, reason) in KERNEL_LOSSES.iter().enumerate() {
            let new = losses[index].saturating_sub(self.counted_losses[index]);
            self.lose(*reason, new);
        }
        self.counted_losses = losses;
        let missed = self.object.missed_calls();
        self.lose(Reason::SystemCallMissed, missed.saturating_sub(self.counted_missed_calls));
        self.counted_missed_calls = missed;
        self.lose(Reason::MapCutShort, lines::take_cut_short());
        let programs = Nanos(self.object.run_time().as_nanos() as u64);
        let mut costs = vec![
            of(Family::Samples, self.object.samples_run_time().0, Nanos(0)),
            of(Family::Sleeps, self.object.sleeps_run_time().0, Nanos(0)),
        ];
        let mut traps = Nanos(0);
        for (cost, of_traps) in [self.account_calls(), self.account_watchpoints(), self.account_transfers()]
            .into_iter()
            .chain(self.account_memory())
            .flatten()
        {
            costs.push(cost);
            traps.0 += of_traps.0;
        }
        let bpf = Nanos(programs.0 + traps.0);
        let known: u64 = costs.iter().map(|cost| cost.kernel.0).sum();
        costs.push(Cost { family: Family::Rest, kernel: bpf.saturating_sub(Nanos(known)) });
        let nanos = |time: Duration| Nanos(time.as_nanos() as u64);
        let cpu = nanos(cost::cpu_time().saturating_sub(self.cpu_at_start));
        let startup = Nanos(nanos(self.startup + self.helped()).0.min(cpu.0));
        let at = self.now();
        self.scratch.push(Event::Cost { at, bpf, cpu, startup, rss_bytes: cost::resident_bytes() });
        let changes = self.arbiter.observe(at, &costs, cpu.saturating_sub(startup));
        if !changes.is_empty() {
            self.apply(at, changes);
        }
        if let Some(eval) = &mut self.eval {
            eval.allow(self.arbiter.allowance());
        }
        self.cost_at = Instant::now();
    }

    fn apply(&mut self, at: Nanos, changes: Vec<Change>) {
        let one_in = |family| (1.0 / self.arbiter.level(family)).round() as u64;
        let keep_every = one_in(Family::Samples);
        let is_done = self.object.keep_samples(self.arbiter.level(Family::Samples))
            && self.object.sleep_stacks_rarer(one_in(Family::Sleeps));
        if !is_done {
            return;
        }
        self.keep_every = keep_every;
        if let Some(redundancy) = &mut self.redundancy {
            redundancy.keep(self.arbiter.level(Family::Watchpoints));
        }
        if let Some(ucx) = &mut self.ucx {
            ucx.keep(self.arbiter.level(Family::Transfers), at, &mut self.scratch);
        }
        let is_off = |family| self.arbiter.level(family) == 0.0;
        if let Some(nrt) = self.nrt.as_mut().filter(|_| is_off(Family::MemInfos)) {
            nrt.close();
        }
        if let Some(libraries) = self.libraries.as_mut().filter(|_| is_off(Family::Libraries)) {
            libraries.close();
        }
        for Change { family, before, after, sentence } in changes {
            for (measure, on) in [(before, false), (after, true)] {
                self.scratch.extend(measure.map(|measure| Event::measure(at, family, measure, on)));
            }
            self.scratch.extend(sentence.map(|what| Event::Shed { at, what: Arc::from(what) }));
        }
    }

    fn account_calls(&mut self) -> Option<(Cost, Nanos)> {
        let eval = self.eval.as_mut()?;
        let (time, runs) = self.object.calls_run_time();
        eval.set_program_cost(time, runs);
        let traps = eval.trap_cost();
        Some((of(Family::Calls, time, traps), traps))
    }

    fn account_watchpoints(&self) -> Option<(Cost, Nanos)> {
        let traps = self.redundancy.as_ref().map(Redundancy::trap_cost)?;
        Some((of(Family::Watchpoints, Duration::ZERO, traps), traps))
    }
}
