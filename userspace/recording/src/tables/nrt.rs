//! The family `nrt`: MemInfos, a row each.

use pyobs_model::{Event, MemInfoChange, MemInfoId, Nanos, ProcessRef, StackId};
use rusqlite::{Connection, Result};

use super::{Reading, Rows, regions};
use crate::Error;
use crate::merge::Merge;
use crate::table::tables;

// A birth waits until its stack has names, so the death may come first. Until then the row has no process.

tables! {
    /// Family `nrt`: memory whose references code compiled by Numba counts.
    #[upsert(born: id => born_ns, process, bytes, stack)]
    #[upsert(looked: id => looked_ns, refs)]
    #[upsert(died: id => died_ns)]
    MemInfoRow in "meminfos" {
        #[key] id: MemInfoId = "number of the MemInfo",
        #[sparse] {
            born_ns: Nanos = "when it was allocated; NULL, like the last three, if only its end was recorded",
            died_ns: Nanos = "when it was freed; NULL if it was not",
            process: ProcessRef = "`processes.id`",
            bytes: u64 = "of its data",
            stack: StackId = "`stacks.id`: where it was made",
            looked_ns: Nanos = "when its reference count was read last; NULL, like the next, if it never was",
            refs: u64 = "the reference count then",
        }
    }
}

pub(crate) fn change(connection: &Connection, at: Nanos, id: MemInfoId, change: &MemInfoChange) -> Result<()> {
    let row = MemInfoRow::of(id);
    match *change {
        MemInfoChange::Born { process, bytes, data, stack } => {
            if data != 0 {
                regions::data(connection, id, data)?;
            }
            let (process, bytes, stack) = (Some(process), Some(bytes), Some(stack));
            MemInfoRow { born_ns: Some(at), process, bytes, stack, ..row }.born(connection)
        }
        MemInfoChange::Referenced(refs) => {
            MemInfoRow { looked_ns: Some(at), refs: Some(refs), ..row }.looked(connection)
        }
        MemInfoChange::Died => MemInfoRow { died_ns: Some(at), ..row }.died(connection),
    }
}

/// Reads from the beginning of the recording, because what is live depends on all births.
pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    let mut places = regions::places(reading)?;
    let range = reading.range;
    merge.table(reading, Rows::All, &["born_ns"], move |reading, row: MemInfoRow, events| {
        let id = row.id;
        // Its birth has no stack, or a recording that was cut off lacks it.
        let Some(born) = row.born_ns else { return Some(()) };
        let (process, bytes, stack) = (row.process?, row.bytes?, row.stack?);
        let data = places(reading, id);
        let mut tell = |at: Nanos, change| {
            if range.ends_after(at) {
                events.push(Event::MemInfo { at, id, change });
            }
        };
        tell(born, MemInfoChange::Born { process, bytes, data: data.unwrap_or(0), stack });
        if let Some((looked, count)) = row.looked_ns.zip(row.refs) {
            tell(looked.max(born), MemInfoChange::Referenced(count));
        }
        if let Some(died) = row.died_ns {
            tell(died.max(born), MemInfoChange::Died);
        }
        Some(())
    })
}
