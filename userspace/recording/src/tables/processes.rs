//! Processes and their threads.

use std::sync::Arc;

use pyobs_model::{Event, Nanos, Pid, Process, ProcessRef, Tid};
use rusqlite::{Connection, Result, params};

use super::scan::Dense;
use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::tables;
use crate::value::integer;

tables! {
    /// One run of one program. A reused pid and an `exec` each start a new row.
    #[upsert(known: id => pid, ppid, command, python, started_ns)]
    ProcessRow in "processes" {
        #[key] id: ProcessRef = "number, from 0",
        pid: Pid = "process id in the host's namespace",
        ppid: Pid = "pid of the parent",
        command: Arc<str> = "the command line, separated by spaces; the kernel's short name if it is empty",
        python: Option<Arc<str>> = "version of the interpreter, such as `3.12.1`; NULL for a process without CPython",
        started_ns: Option<Nanos> = "NULL if it started before the recording",
        ended_ns: Option<Nanos> = "NULL if it was still running at the end",
    }

    #[unique(process, tid)]
    #[upsert(named: process, tid => name)]
    ThreadRow in "threads" {
        process: ProcessRef = "`processes.id`",
        tid: Tid = "thread id in the host's namespace",
        name: Arc<str> = "the latest name",
    }
}

pub(crate) fn process(connection: &Connection, id: ProcessRef, process: &Process) -> Result<()> {
    let Process { pid, ppid, command, python, started } = process.clone();
    ProcessRow { id, pid, ppid, command, python, started_ns: started, ended_ns: None }.known(connection)
}

pub(crate) fn ended(connection: &Connection, id: ProcessRef, at: Nanos) -> Result<()> {
    let sql = "UPDATE processes SET ended_ns = ?2 WHERE id = ?1";
    connection.prepare_cached(sql)?.execute(params![id.0, integer(at.0)])?;
    Ok(())
}

pub(crate) fn thread(connection: &Connection, process: ProcessRef, tid: Tid, name: &Arc<str>) -> Result<()> {
    ThreadRow { process, tid, name: Arc::clone(name) }.named(connection)
}

/// Emits the definitions.
pub(crate) fn read(reading: &mut Reading<'_>, mut each: impl FnMut(Event)) -> Result<(), Error> {
    let mut ids = Dense::default();
    reading.scan(Rows::All, |row: ProcessRow| {
        let ProcessRow { id, pid, ppid, command, python, started_ns: started, .. } = row;
        for missing in ids.missing(id.0)? {
            each(Event::Process { id: ProcessRef(missing), process: unknown() });
        }
        each(Event::Process { id, process: Process { pid, ppid, command, python, started } });
        Some(())
    })?;
    reading.scan(Rows::All, |row: ThreadRow| {
        let ThreadRow { process, tid, name } = row;
        (process.0 < ids.len()).then(|| each(Event::Thread { process, tid, name }))
    })
}

/// Emits the ends, which have a time.
pub(crate) fn read_ends(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    merge.again(reading, &["ended_ns"], |row: ProcessRow, events| {
        events.extend(row.ended_ns.map(|at| Event::ProcessEnd { id: row.id, at }));
    })
}

/// A placeholder for a process whose row is damaged, so that later ones keep their numbers.
fn unknown() -> Process {
    Process { pid: Pid(0), ppid: Pid(0), command: Arc::from("?"), python: None, started: None }
}
