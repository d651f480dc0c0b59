//! The family `eval` in a session.

use std::time::Duration;

use pyobs_model::Nanos;

use super::{Eval, Options, Out, programs};
use crate::budget::Spender;
use crate::family::{Collector, Context, Spent, Start};
use crate::files::FileId;
use crate::kernel::object::Object;
use crate::session::error::StartError;

pub(super) fn start(start: &mut Start<'_>) -> Result<Box<dyn Collector>, StartError> {
    let (programs, maps) = programs::load(start.object)?;
    let options = start.options;
    let is_bound = options.functions.is_empty() || options.budget_binds_calls;
    let wanted = Options {
        functions: options.functions.clone(),
        budget: is_bound.then_some(options.budget_of_a_core()),
        everybody: options.targets.is_everybody(),
    };
    let mut eval = Eval::new(wanted, programs, maps, start.start).map_err(StartError::Uprobes)?;
    let mut out = Out { interner: start.interner, events: start.events, notes: start.notes };
    eval.tick(start.processes.running(), &mut out);
    Ok(Box::new(eval))
}

impl Collector for Eval {
    fn begin(&mut self, start: Nanos) {
        self.starts_at(start);
    }

    fn advance(&mut self, context: &mut Context) {
        let Context { at_the_end, processes, interner, events, notes, .. } = context;
        let mut out = Out { interner, events, notes };
        if *at_the_end {
            self.finish(&processes.running(), &mut out);
        } else {
            self.tick(processes.running(), &mut out);
        }
    }

    fn rewritten(&mut self, file: FileId) {
        self.rewritten(file);
    }

    fn next_due(&self) -> Option<Duration> {
        self.next_check()
    }

    fn costs(&mut self, object: &Object, costs: &mut Vec<Spent>) {
        let (programs, runs) = programs::run_time(object);
        self.set_program_cost(programs, runs);
        costs.push(Spent { on: Spender::Calls, programs, traps: self.trap_cost() });
    }

    fn allow(&mut self, percent: f64) {
        self.allow_share(percent);
    }

    fn goes_on_probing(&self) -> bool {
        true
    }
}
