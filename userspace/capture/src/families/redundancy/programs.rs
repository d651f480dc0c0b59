//! The programs at samples and watchpoints, and their maps.

use std::fs::File;
use std::time::Duration;

use pyobs_abi::control;
use pyobs_model::Family;

use super::{Parts, calls, slots};
use crate::family::MapSize;
use crate::kernel::object::{Object, ObjectError};
use crate::kernel::program::ProgramSpec;

/// The sampler that also sends registers.
pub const SAMPLER: &str = "redundancy_sample";
/// Runs at each trap of a watchpoint.
const TRAP: &str = "redundancy_trap";

pub const PROGRAMS: [ProgramSpec; 2] =
    [ProgramSpec::new(SAMPLER, &[Family::Redundancy]), ProgramSpec::new(TRAP, &[Family::Redundancy])];

/// Twice the number of watchpoints that all threads together can have set.
const WATCHES_MAX: u32 = 1024;

const fn map(name: &'static str, on: u32, off: u32) -> MapSize {
    MapSize { name, on: Some(on), off }
}

pub const MAPS: [MapSize; 4] = [
    map("REDUNDANCY_RING", 1 << 20, 4096),
    map("REDUNDANCY_WATCHES", WATCHES_MAX, 1),
    map("REDUNDANCY_SPOTS", calls::SPOTS_MAX, 1),
    map("REDUNDANCY_CLASSES", calls::CLASSES_MAX, 1),
];

/// Loads the sampler and the watchpoint program, and takes the maps. Call once.
pub fn load(object: &mut Object) -> Result<Parts, ObjectError> {
    let program = File::from(object.load_perf_event(TRAP)?);
    let trap_cost = slots::measure(&program).map_err(ObjectError::Breakpoint)?;
    object.load_sampler(SAMPLER)?;
    Ok(Parts {
        program,
        trap_cost,
        ring: object.take("REDUNDANCY_RING")?,
        watches: object.take("REDUNDANCY_WATCHES")?,
        calls: calls::Maps { spots: object.take("REDUNDANCY_SPOTS")?, classes: object.take("REDUNDANCY_CLASSES")? },
    })
}

/// Makes the kernel side decode the access of one native sample in this many.
pub fn sample_one_in(object: &mut Object, one_in: u32) {
    // If the map refuses the new value, the old one stays.
    let _ = object.set(control::DECODE_EVERY, one_in.into());
}

/// Total run time of the program that does not count as the sampler's.
pub fn run_time(object: &Object) -> Duration {
    object.run_time_of(&[TRAP]).0
}
