//! The programs at the functions of libraries with arenas, and the map of their sites.

use std::time::Duration;

use aya::maps::{Array, MapData};
use pyobs_abi::arena::library::Site;
use pyobs_model::Family;

use super::Programs;
use crate::kernel::object::{Object, ObjectError};
use crate::kernel::program::ProgramSpec;

/// Runs at function entries whose arguments are needed at the return.
const ENTER: &str = "arena_library_enter";
/// Runs at all hits.
const HIT: &str = "arena_library_hit";
pub const PROGRAMS: [ProgramSpec; 2] =
    [ProgramSpec::new(ENTER, &[Family::Arena]).optional(), ProgramSpec::new(HIT, &[Family::Arena]).optional()];

/// Loads the programs and takes the map. Call once.
pub fn load(object: &mut Object) -> Result<(Programs, Array<MapData, Site>), ObjectError> {
    let programs = Programs { enter: object.load_uprobe(ENTER)?, hit: object.load_uprobe(HIT)? };
    Ok((programs, object.take("ARENA_SITES")?))
}

/// Total run time of the programs.
pub fn run_time(object: &Object) -> Duration {
    object.run_time_of(&[ENTER, HIT]).0
}
