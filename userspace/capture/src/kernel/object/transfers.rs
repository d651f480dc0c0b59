//! The programs and maps of the family `ucx`.

use std::time::Duration;

use super::{Object, ObjectError, take};
use crate::families::ucx::{Maps, Programs};

/// What takes room for transfers.
pub(super) const MAPS: [&str; 7] =
    ["UCX_CALLS", "UCX_OPEN", "UCX_EARLY", "UCX_REQUESTS", "UCX_FUTURES", "UCX_THREADS", "UCX_TOTALS"];
pub(super) const PROGRAMS: [&str; 9] = [
    "ucx_submit_enter",
    "ucx_submit_exit",
    "ucx_complete",
    "ucx_free",
    "ucx_message",
    "ucx_handler",
    "ucx_rendezvous",
    "ucx_ucxx",
    "ucx_progress",
];

impl Object {
    /// Loads the programs for transfers, and takes their maps; to be called once.
    pub fn take_transfers(&mut self) -> Result<(Programs, Maps), ObjectError> {
        let [submit, exit, complete, free, message, handler, rendezvous, ucxx, progress] = PROGRAMS;
        let programs = Programs {
            submit_enter: self.load_uprobe(submit)?,
            submit_exit: self.load_uprobe(exit)?,
            complete: self.load_uprobe(complete)?,
            free: self.load_uprobe(free)?,
            message: self.load_uprobe(message)?,
            handler: self.load_uprobe(handler)?,
            rendezvous: self.load_uprobe(rendezvous)?,
            ucxx: self.load_uprobe(ucxx)?,
            progress: self.load_uprobe(progress)?,
        };
        let maps = Maps {
            open: take(&mut self.ebpf, "UCX_OPEN")?,
            early: take(&mut self.ebpf, "UCX_EARLY")?,
            requests: take(&mut self.ebpf, "UCX_REQUESTS")?,
            threads: take(&mut self.ebpf, "UCX_THREADS")?,
            totals: take(&mut self.ebpf, "UCX_TOTALS")?,
        };
        Ok((programs, maps))
    }

    /// How long these have run, and how often.
    pub fn transfers_run_time(&self) -> (Duration, u64) {
        self.run_time_of(PROGRAMS.into_iter())
    }

    /// How often those have run that are on return instructions, or on whatever a program's own functions begin with.
    pub fn transfers_stepped(&self) -> u64 {
        let [_, exit, complete, ..] = PROGRAMS;
        self.run_time_of([exit, complete].into_iter()).1
    }
}
