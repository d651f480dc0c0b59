//! The programs at the beginnings and ends of Python functions, and their maps.

use std::time::Duration;

use pyobs_model::Family;

use super::Maps;
use super::watching::Programs;
use crate::kernel::object::{Object, ObjectError};
use crate::kernel::program::ProgramSpec;

const ENTER: &str = "eval_call_enter";
const EXIT: &str = "eval_call_exit";
pub const PROGRAMS: [ProgramSpec; 2] =
    [ProgramSpec::new(ENTER, &[Family::Eval]), ProgramSpec::new(EXIT, &[Family::Eval])];

/// Loads the programs and takes their maps. Call once.
pub fn load(object: &mut Object) -> Result<(Programs, Maps), ObjectError> {
    let programs = Programs { enter: object.load_uprobe(ENTER)?, exit: object.load_uprobe(EXIT)? };
    let maps =
        Maps { calls: object.take("EVAL_CALLS")?, new: object.take("EVAL_NEW")?, state: object.take("EVAL_STATE")? };
    Ok((programs, maps))
}

/// Total run time of the programs, and the number of runs.
pub fn run_time(object: &Object) -> (Duration, u64) {
    object.run_time_of(&[ENTER, EXIT])
}
