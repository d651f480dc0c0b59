//! The family `nrt`: MemInfos, a row each.

use pyobs_model::{Event, MemInfoChange, MemInfoId, Nanos, ProcessRef, StackId};
use rusqlite::{Connection, params};

use super::{Damage, Field, Range, Source, integer, regions};
use crate::Error;

/// Births wait for the names of their stacks, so a death may come first: then the row has no process yet.
pub(crate) const SCHEMA: &str = "
CREATE TABLE meminfos (
    id      INTEGER PRIMARY KEY,
    born_ns INTEGER,
    died_ns INTEGER,
    process INTEGER REFERENCES processes,
    bytes   INTEGER,
    stack   INTEGER REFERENCES stacks,
    looked_ns  INTEGER,
    refs       INTEGER
);";

pub(crate) fn change(
    connection: &Connection,
    at: Nanos,
    id: MemInfoId,
    change: &MemInfoChange,
) -> rusqlite::Result<()> {
    match change {
        MemInfoChange::Born { process, bytes, data, stack } => {
            if *data != 0 {
                regions::data(connection, id, *data)?;
            }
            let sql = "INSERT INTO meminfos (id, born_ns, process, bytes, stack) VALUES (?1, ?2, ?3, ?4, ?5)
                       ON CONFLICT (id) DO UPDATE SET born_ns = ?2, process = ?3, bytes = ?4, stack = ?5";
            let row = params![id.0, integer(at.0), process.0, integer(*bytes), stack.0];
            connection.prepare_cached(sql)?.execute(row)?;
        }
        MemInfoChange::Referenced(count) => {
            let sql = "INSERT INTO meminfos (id, looked_ns, refs) VALUES (?1, ?2, ?3)
                       ON CONFLICT (id) DO UPDATE SET looked_ns = ?2, refs = ?3";
            connection.prepare_cached(sql)?.execute(params![id.0, integer(at.0), integer(*count)])?;
        }
        MemInfoChange::Died => {
            let sql = "INSERT INTO meminfos (id, died_ns) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET died_ns = ?2";
            connection.prepare_cached(sql)?.execute(params![id.0, integer(at.0)])?;
        }
    }
    Ok(())
}

/// From the recording's beginning on: what is left follows from all that was born.
pub(crate) fn read(
    source: &Source,
    damage: &mut Damage,
    range: Range,
    mut each: impl FnMut(Event),
) -> Result<(), Error> {
    let places = regions::read_data(source, damage)?;
    let columns = ["born_ns", "died_ns", "process", "bytes", "stack", "looked_ns", "refs"];
    source.scan("meminfos", &columns, "", damage, |id, row| {
        let id = MemInfoId(u32::try_from(id).ok()?);
        // One whose birth's stack got no number, or whose birth a cut recording lacks.
        let Some(born) = row.maybe_number(1)? else { return Some(()) };
        let (process, bytes, stack) = (ProcessRef(row.small(3)?), row.number(4)?, StackId(row.small(5)?));
        let mut tell = |at: Nanos, change| {
            if range.to.is_none_or(|to| at < to) {
                each(Event::MemInfo { at, id, change });
            }
        };
        tell(Nanos(born), MemInfoChange::Born { process, bytes, data: places.get(&id).copied().unwrap_or(0), stack });
        if let Some((looked, count)) = row.maybe_number(6)?.zip(row.maybe_number(7)?) {
            tell(Nanos(looked.max(born)), MemInfoChange::Referenced(count));
        }
        if let Some(died) = row.maybe_number(2)? {
            tell(Nanos(died.max(born)), MemInfoChange::Died);
        }
        Some(())
    })
}
