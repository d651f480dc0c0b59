//! The family `gil`: waits for the GIL, and who held it.

use pyobs_model::{Event, GilHolder, GilWait, Nanos, ProcessRef, StackId, Tid};
use rusqlite::{Connection, params};

use super::{Damage, Field, Range, Source, integer, since_and_stacks};
use crate::Error;

pub(crate) const SCHEMA: &str = "
CREATE TABLE gil_waits (
    at_ns        INTEGER NOT NULL,
    process      INTEGER NOT NULL REFERENCES processes,
    tid          INTEGER NOT NULL,
    stack        INTEGER NOT NULL REFERENCES stacks,
    holder_tid   INTEGER,
    holder_stack INTEGER REFERENCES stacks,
    count        INTEGER NOT NULL,
    total_ns     INTEGER NOT NULL,
    length_ns    INTEGER NOT NULL,
    from_ns      INTEGER NOT NULL,
    stacks       INTEGER NOT NULL
);
CREATE TABLE gil_held (
    at_ns   INTEGER NOT NULL,
    process INTEGER NOT NULL REFERENCES processes,
    tid     INTEGER NOT NULL,
    held_ns INTEGER NOT NULL
);";

pub(crate) fn wait(connection: &Connection, wait: &GilWait) -> rusqlite::Result<()> {
    let sql = "INSERT INTO gil_waits (at_ns, process, tid, stack, holder_tid, holder_stack, count, total_ns, length_ns,
                                      from_ns, stacks)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    connection.prepare_cached(sql)?.execute(params![
        integer(wait.at.0),
        wait.process.0,
        wait.tid.0,
        wait.stack.0,
        wait.holder.map(|holder| holder.tid.0),
        wait.holder.map(|holder| holder.stack.0),
        integer(wait.count),
        integer(wait.total.0),
        integer(wait.length.0),
        integer(wait.from.0),
        integer(wait.stacks),
    ])?;
    Ok(())
}

pub(crate) fn held(
    connection: &Connection,
    at: Nanos,
    process: ProcessRef,
    tid: Tid,
    held: Nanos,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO gil_held (at_ns, process, tid, held_ns) VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(sql)?.execute(params![integer(at.0), process.0, tid.0, integer(held.0)])?;
    Ok(())
}

pub(crate) fn read(
    source: &Source,
    damage: &mut Damage,
    range: Range,
    mut each: impl FnMut(Event),
) -> Result<(), Error> {
    let columns = ["at_ns", "process", "tid", "stack", "holder_tid", "holder_stack", "count", "total_ns", "length_ns"];
    let newer = ["from_ns", "stacks"];
    let (condition, selection) = (range.condition_of_spells(), range.selection());
    source.scan_newer("gil_waits", (&columns, &newer), &condition, damage, |_, row| {
        let holder = match row.maybe_small(5)? {
            Some(tid) => Some(GilHolder { tid: Tid(tid), stack: StackId(row.small(6)?) }),
            None => None,
        };
        let (at, count, total) = (Nanos(row.number(1)?), row.number(7)?, Nanos(row.number(8)?));
        let (from, stacks) = since_and_stacks(row, 10, (at, total, count))?;
        let wait = GilWait {
            from,
            at,
            process: ProcessRef(row.small(2)?),
            tid: Tid(row.small(3)?),
            stack: StackId(row.small(4)?),
            holder,
            count,
            total,
            length: Nanos(row.number(9)?),
            stacks,
        };
        if let Some(wait) = wait.clipped(&selection) {
            each(Event::GilWait(wait));
        }
        Some(())
    })?;
    source.scan("gil_held", &["at_ns", "process", "tid", "held_ns"], &range.condition(), damage, |_, row| {
        each(Event::GilHeld {
            at: Nanos(row.number(1)?),
            process: ProcessRef(row.small(2)?),
            tid: Tid(row.small(3)?),
            held: Nanos(row.number(4)?),
        });
        Some(())
    })
}
