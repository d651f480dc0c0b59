//! Processes and their threads.

use std::sync::Arc;

use pyobs_model::{Event, Nanos, Pid, Process, ProcessRef, Tid};
use rusqlite::{Connection, params};

use super::scan::Dense;
use super::{Damage, Field, Source, bounded, integer};
use crate::Error;

pub(crate) const SCHEMA: &str = "
CREATE TABLE processes (
    id         INTEGER PRIMARY KEY,
    pid        INTEGER NOT NULL,
    ppid       INTEGER NOT NULL,
    command    TEXT NOT NULL,
    python     TEXT,
    started_ns INTEGER,
    ended_ns   INTEGER
);
CREATE TABLE threads (
    process INTEGER NOT NULL REFERENCES processes,
    tid     INTEGER NOT NULL,
    name    TEXT NOT NULL,
    UNIQUE (process, tid)
);";

pub(crate) fn process(connection: &Connection, id: ProcessRef, process: &Process) -> rusqlite::Result<()> {
    let sql = "INSERT INTO processes (id, pid, ppid, command, python, started_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
               ON CONFLICT (id) DO UPDATE SET pid = excluded.pid, ppid = excluded.ppid, command = excluded.command,
               python = excluded.python, started_ns = excluded.started_ns";
    connection.prepare_cached(sql)?.execute(params![
        id.0,
        process.pid.0,
        process.ppid.0,
        bounded(&process.command),
        process.python.as_deref().map(bounded),
        process.started.map(|at| integer(at.0)),
    ])?;
    Ok(())
}

pub(crate) fn ended(connection: &Connection, id: ProcessRef, at: Nanos) -> rusqlite::Result<()> {
    let sql = "UPDATE processes SET ended_ns = ?2 WHERE id = ?1";
    connection.prepare_cached(sql)?.execute(params![id.0, integer(at.0)])?;
    Ok(())
}

pub(crate) fn thread(connection: &Connection, process: ProcessRef, tid: Tid, name: &str) -> rusqlite::Result<()> {
    let sql = "INSERT INTO threads (process, tid, name) VALUES (?1, ?2, ?3)
               ON CONFLICT (process, tid) DO UPDATE SET name = excluded.name";
    connection.prepare_cached(sql)?.execute(params![process.0, tid.0, bounded(name)])?;
    Ok(())
}

/// Gives the definitions to `each`, and the ends, which have a time, to `timed`.
pub(crate) fn read(
    source: &Source,
    damage: &mut Damage,
    timed: &mut Vec<Event>,
    mut each: impl FnMut(Event),
) -> Result<(), Error> {
    let mut ids = Dense::default();
    let columns = ["pid", "ppid", "command", "python", "started_ns", "ended_ns"];
    source.scan("processes", &columns, "", damage, |id, row| {
        let process = Process {
            pid: Pid(row.small(1)?),
            ppid: Pid(row.small(2)?),
            command: row.text(3)?,
            python: row.maybe_text(4)?,
            started: row.maybe_number(5)?.map(Nanos),
        };
        let ended = row.maybe_number(6)?.map(Nanos);
        for missing in ids.missing(id)? {
            each(Event::Process { id: ProcessRef(missing), process: unknown() });
        }
        let id = ProcessRef(u32::try_from(id).ok()?);
        each(Event::Process { id, process });
        timed.extend(ended.map(|at| Event::ProcessEnd { id, at }));
        Some(())
    })?;
    source.scan("threads", &["process", "tid", "name"], "", damage, |_, row| {
        let process = ProcessRef(row.small(1).filter(|id| *id < ids.len())?);
        each(Event::Thread { process, tid: Tid(row.small(2)?), name: row.text(3)? });
        Some(())
    })
}

/// Stands for a process whose row is damaged, so that the next ones keep their numbers.
fn unknown() -> Process {
    Process { pid: Pid(0), ppid: Pid(0), command: Arc::from("?"), python: None, started: None }
}
