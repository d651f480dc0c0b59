//! The programs at transfers, and their maps.

use std::time::Duration;

use pyobs_model::Family;

use super::{Maps, Programs};
use crate::family::MapSize;
use crate::kernel::object::{Object, ObjectError};
use crate::kernel::program::ProgramSpec;

/// The maps whose size depends on the number of transfers.
pub const MAPS: [MapSize; 7] = [
    MapSize::new("UCX_CALLS"),
    MapSize::new("UCX_OPEN"),
    MapSize::new("UCX_EARLY"),
    MapSize::new("UCX_REQUESTS"),
    MapSize::new("UCX_FUTURES"),
    MapSize::new("UCX_THREADS"),
    MapSize::new("UCX_TOTALS"),
];

const fn program(name: &'static str) -> ProgramSpec {
    ProgramSpec::new(name, &[Family::Ucx])
}

pub const PROGRAMS: [ProgramSpec; 9] = [
    program("ucx_submit_enter"),
    program("ucx_submit_exit"),
    program("ucx_complete"),
    program("ucx_free"),
    program("ucx_message"),
    program("ucx_handler"),
    program("ucx_rendezvous"),
    program("ucx_ucxx"),
    program("ucx_progress"),
];

/// Loads the programs and takes their maps. Call once.
pub fn load(object: &mut Object) -> Result<(Programs, Maps), ObjectError> {
    let [submit, exit, complete, free, message, handler, rendezvous, ucxx, progress] = PROGRAMS;
    let programs = Programs {
        submit_enter: object.load_uprobe(submit.name)?,
        submit_exit: object.load_uprobe(exit.name)?,
        complete: object.load_uprobe(complete.name)?,
        free: object.load_uprobe(free.name)?,
        message: object.load_uprobe(message.name)?,
        handler: object.load_uprobe(handler.name)?,
        rendezvous: object.load_uprobe(rendezvous.name)?,
        ucxx: object.load_uprobe(ucxx.name)?,
        progress: object.load_uprobe(progress.name)?,
    };
    let maps = Maps {
        open: object.take("UCX_OPEN")?,
        early: object.take("UCX_EARLY")?,
        requests: object.take("UCX_REQUESTS")?,
        threads: object.take("UCX_THREADS")?,
        totals: object.take("UCX_TOTALS")?,
    };
    Ok((programs, maps))
}

/// Total run time of the programs, and the number of runs.
pub fn run_time(object: &Object) -> (Duration, u64) {
    object.run_time_of(&PROGRAMS.map(|program| program.name))
}

/// Number of runs on return instructions and at callbacks, whose first instruction may be anything.
pub fn stepped(object: &Object) -> u64 {
    let [_, exit, complete, ..] = PROGRAMS;
    object.run_time_of(&[exit.name, complete.name]).1
}
