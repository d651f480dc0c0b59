//! The family `offcpu`: sleeps.

use std::collections::HashSet;
use std::sync::Arc;

use pyobs_model::{Event, Nanos, Pid, ProcessRef, Sleep, StackId, Tid, WaitReason, Waker};
use rusqlite::{Connection, params};

use super::{Damage, Field, Range, Source, bounded, integer, since_and_stacks};
use crate::Error;

pub(crate) const SCHEMA: &str = "
CREATE TABLE sleeps (
    at_ns      INTEGER NOT NULL,
    process    INTEGER NOT NULL REFERENCES processes,
    tid        INTEGER NOT NULL,
    stack      INTEGER NOT NULL REFERENCES stacks,
    reason     TEXT NOT NULL,
    count      INTEGER NOT NULL,
    total_ns   INTEGER NOT NULL,
    length_ns  INTEGER NOT NULL,
    waker_pid  INTEGER,
    waker_tid  INTEGER,
    waker_name TEXT,
    from_ns    INTEGER NOT NULL,
    stacks     INTEGER NOT NULL
);";

pub(crate) fn sleep(connection: &Connection, sleep: &Sleep) -> rusqlite::Result<()> {
    let sql = "INSERT INTO sleeps (at_ns, process, tid, stack, reason, count, total_ns, length_ns,
                                   waker_pid, waker_tid, waker_name, from_ns, stacks)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    connection.prepare_cached(sql)?.execute(params![
        integer(sleep.at.0),
        sleep.process.0,
        sleep.tid.0,
        sleep.stack.0,
        sleep.reason.name(),
        integer(sleep.count),
        integer(sleep.total.0),
        integer(sleep.length.0),
        sleep.waker.as_ref().map(|waker| waker.pid.0),
        sleep.waker.as_ref().map(|waker| waker.tid.0),
        sleep.waker.as_ref().map(|waker| bounded(&waker.name)),
        integer(sleep.from.0),
        integer(sleep.stacks),
    ])?;
    Ok(())
}

pub(crate) fn read(
    source: &Source,
    damage: &mut Damage,
    range: Range,
    mut each: impl FnMut(Event),
) -> Result<(), Error> {
    // A few threads wake all the others.
    let mut names: HashSet<Arc<str>> = HashSet::new();
    let columns = [
        "at_ns",
        "process",
        "tid",
        "stack",
        "reason",
        "count",
        "total_ns",
        "length_ns",
        "waker_pid",
        "waker_tid",
        "waker_name",
    ];
    let newer = ["from_ns", "stacks"];
    let (condition, selection) = (range.condition_of_spells(), range.selection());
    source.scan_newer("sleeps", (&columns, &newer), &condition, damage, |_, row| {
        let waker = match row.maybe_small(9)? {
            Some(pid) => {
                let name = row.text(11)?;
                let name = names.get(&name).cloned().unwrap_or_else(|| {
                    names.insert(Arc::clone(&name));
                    name
                });
                Some(Waker { pid: Pid(pid), tid: Tid(row.small(10)?), name })
            }
            None => None,
        };
        let (at, count, total) = (Nanos(row.number(1)?), row.number(6)?, Nanos(row.number(7)?));
        let (from, stacks) = since_and_stacks(row, 12, (at, total, count))?;
        let sleep = Sleep {
            from,
            at,
            process: ProcessRef(row.small(2)?),
            tid: Tid(row.small(3)?),
            stack: StackId(row.small(4)?),
            // A reason of a newer pyobs.
            reason: WaitReason::from_name(&row.text(5)?).unwrap_or(WaitReason::Other),
            count,
            total,
            length: Nanos(row.number(8)?),
            stacks,
            waker,
        };
        if let Some(sleep) = sleep.clipped(&selection) {
            each(Event::Sleep(sleep));
        }
        Some(())
    })
}
