//! The family `ucx` in a session.

use pyobs_model::{Nanos, TransferId};

use super::{Asked, Options, Session, StartError, budget};
use crate::budget::{Cost, Family};
use crate::families::ucx::{self, Ucx};
use crate::record::{self, Life, Stack};

/// The transfer that a stack is of.
pub(super) fn asked(stack: &Stack) -> TransferId {
    ucx::number(stack.sample.detail[0])
}

impl Session {
    /// It takes probes, which take rights as long as new processes may come.
    pub(super) fn follow_transfers(&mut self, asked: &mut Asked) {
        if asked.has("ucx") {
            let ucx = self.start_transfers(&asked.options);
            self.ucx = asked.keep(&["ucx"], ucx);
        }
    }

    fn start_transfers(&mut self, options: &Options) -> Result<Ucx, StartError> {
        let (programs, maps) = self.object.take_transfers()?;
        Ucx::new(programs, maps, options.budget_binds_calls, self.start).map_err(StartError::Uprobes)
    }

    pub(super) fn transferred(&mut self, record: &record::Ucx) {
        let Some(ucx) = &mut self.ucx else { return };
        match record {
            record::Ucx::Done(done) => {
                if let Some((watched, _)) = self.processes.get(done.header.pid) {
                    watched.see_thread(done.header.tid, done.header.comm, &mut self.scratch);
                    ucx.done(done, watched.id, &mut self.scratch);
                }
            }
            record::Ucx::Woken(woken) => ucx.woken(woken, &mut self.scratch),
            record::Ucx::Callback(callback) => ucx.called_back(callback),
        }
    }

    pub(super) fn transfers_end(&mut self, life: &Life) {
        if let (Some(ucx), Life::Exec(header) | Life::Exit(header)) = (&mut self.ucx, life) {
            ucx.ended(header.pid, Nanos(header.time).saturating_sub(self.start), &mut self.scratch);
        }
    }

    /// To be called before the other families take note of new memory maps.
    pub(super) fn tell_transfers(&mut self, at_the_end: bool) {
        let now = self.now();
        let Some(ucx) = &mut self.ucx else { return };
        if self.maps_seen != self.processes.maps_read() {
            self.notes.extend(ucx.follow(self.processes.mappings()));
        }
        ucx.tick(now, at_the_end, self.processes.watched(), &mut self.object.control, &mut self.scratch);
    }

    /// What the family has cost, and the traps' part of it.
    pub(super) fn account_transfers(&mut self) -> Option<(Cost, Nanos)> {
        let ucx = self.ucx.as_mut()?;
        let (time, runs) = self.object.transfers_run_time();
        let traps = ucx.trap_cost(runs, self.object.transfers_stepped());
        Some((budget::of(Family::Transfers, time, traps), traps))
    }
}
