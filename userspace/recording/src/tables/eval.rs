//! The family `eval`: calls of functions.

use pyobs_model::{Calls, Event, FrameId, Nanos, ProcessRef};
use rusqlite::{Connection, params};

use super::{Damage, Field, Range, Source, integer};
use crate::Error;

pub(crate) const SCHEMA: &str = "
CREATE TABLE calls (
    at_ns    INTEGER NOT NULL,
    process  INTEGER NOT NULL REFERENCES processes,
    function INTEGER NOT NULL REFERENCES frames,
    count    INTEGER NOT NULL,
    timed    INTEGER NOT NULL,
    total_ns INTEGER NOT NULL,
    max_ns   INTEGER NOT NULL
);";

pub(crate) fn calls(connection: &Connection, calls: &Calls) -> rusqlite::Result<()> {
    let sql = "INSERT INTO calls (at_ns, process, function, count, timed, total_ns, max_ns)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection.prepare_cached(sql)?.execute(params![
        integer(calls.at.0),
        calls.process.0,
        calls.function.0,
        integer(calls.count),
        integer(calls.timed),
        integer(calls.total.0),
        integer(calls.max.0),
    ])?;
    Ok(())
}

pub(crate) fn read(
    source: &Source,
    damage: &mut Damage,
    range: Range,
    mut each: impl FnMut(Event),
) -> Result<(), Error> {
    let columns = ["at_ns", "process", "function", "count", "timed", "total_ns", "max_ns"];
    source.scan("calls", &columns, &range.condition(), damage, |_, row| {
        each(Event::Calls(Calls {
            at: Nanos(row.number(1)?),
            process: ProcessRef(row.small(2)?),
            function: FrameId(row.small(3)?),
            count: row.number(4)?,
            timed: row.number(5)?,
            total: Nanos(row.number(6)?),
            max: Nanos(row.number(7)?),
        }));
        Some(())
    })
}
