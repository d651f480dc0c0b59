//! The CPU time of the whole machine.

use pyobs_model::{Event, Nanos};
use rusqlite::{Connection, Result};

use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};

tables! {
    /// The CPU time that all programs of the machine used, watched or not, about once a second. Older recordings have no rows.
    MachineRow in "machine" {
        at as "at_ns": Nanos = "when",
        used as "used_ns": Nanos = "CPU time since the first row, summed over CPUs; without waiting for input and output, and \
            without time that a hypervisor took",
    }
}

pub(crate) fn insert(connection: &Connection, at: Nanos, used: Nanos) -> Result<()> {
    MachineRow { at, used }.insert(connection)
}

/// Reads from the beginning of the recording, because a time's use is the difference of two rows.
pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> std::result::Result<(), Error> {
    merge.events(reading, Rows::Until, |MachineRow { at, used }: MachineRow| Some(Event::Machine { at, used }))
}
