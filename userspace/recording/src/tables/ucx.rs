//! The family `ucx`: a row for each transfer that was told of singly, sums of all, and threads.

use pyobs_model::{
    Event, Library, Nanos, Operation, ProcessRef, Protocol, StackId, Tid, Transfer, TransferChange, TransferId,
    TransferThread, Transfers,
};
use rusqlite::{Connection, Row, params};

use super::{Damage, Field, Range, Source, integer};
use crate::Error;

/// Stacks wait for their names, and futures are set later: each part of a row comes when it is known.
pub(crate) const SCHEMA: &str = "
CREATE TABLE transfers (
    id            INTEGER PRIMARY KEY,
    process       INTEGER REFERENCES processes,
    library       TEXT,
    operation     TEXT,
    bytes         INTEGER,
    tag           INTEGER,
    through       INTEGER,
    buffer        INTEGER,
    registered_ns INTEGER,
    submitted_ns  INTEGER,
    completed_ns  INTEGER,
    immediate     INTEGER,
    status        INTEGER,
    tid           INTEGER,
    submit_tid    INTEGER,
    complete_tid  INTEGER,
    parent        INTEGER,
    hash          INTEGER,
    protocol      TEXT,
    seen_ns       INTEGER,
    asked_ns      INTEGER,
    stack         INTEGER REFERENCES stacks,
    notified_ns   INTEGER,
    woken_ns      INTEGER,
    wake_tid      INTEGER
);
CREATE TABLE transfer_counts (
    at_ns        INTEGER NOT NULL,
    process      INTEGER NOT NULL REFERENCES processes,
    library      TEXT NOT NULL,
    operation    TEXT NOT NULL,
    count        INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    immediate    INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    spent_ns     INTEGER NOT NULL,
    unfollowed   INTEGER NOT NULL,
    told_every   INTEGER NOT NULL
);
CREATE TABLE transfer_threads (
    at_ns       INTEGER NOT NULL,
    process     INTEGER NOT NULL REFERENCES processes,
    tid         INTEGER NOT NULL,
    registered  INTEGER NOT NULL,
    submitted   INTEGER NOT NULL,
    dispatched  INTEGER NOT NULL,
    completed   INTEGER NOT NULL,
    notified    INTEGER NOT NULL,
    woken       INTEGER NOT NULL,
    progress    INTEGER NOT NULL,
    probed_ns   INTEGER NOT NULL,
    observed_ns INTEGER NOT NULL,
    awake_ns    INTEGER NOT NULL
);";

pub(crate) fn change(
    connection: &Connection,
    at: Nanos,
    id: TransferId,
    change: &TransferChange,
) -> rusqlite::Result<()> {
    let number = integer(id.0);
    match change {
        TransferChange::Seen(transfer) => seen(connection, at, number, transfer)?,
        TransferChange::Asked(stack) => {
            let sql = "INSERT INTO transfers (id, asked_ns, stack) VALUES (?1, ?2, ?3)
                       ON CONFLICT (id) DO UPDATE SET asked_ns = ?2, stack = ?3";
            connection.prepare_cached(sql)?.execute(params![number, integer(at.0), stack.0])?;
        }
        TransferChange::Woken { notified, tid } => {
            let sql = "INSERT INTO transfers (id, notified_ns, woken_ns, wake_tid) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT (id) DO UPDATE SET notified_ns = ?2, woken_ns = ?3, wake_tid = ?4";
            connection.prepare_cached(sql)?.execute(params![number, integer(notified.0), integer(at.0), tid.0])?;
        }
    }
    Ok(())
}

/// Tags, addresses and hashes have 64 bits, which SQLite's numbers keep as signed ones.
fn seen(connection: &Connection, at: Nanos, id: i64, transfer: &Transfer) -> rusqlite::Result<()> {
    let sql = "INSERT INTO transfers (id, process, library, operation, bytes, tag, through, buffer, registered_ns,
                                      submitted_ns, completed_ns, immediate, status, tid, submit_tid, complete_tid,
                                      parent, hash, protocol, seen_ns)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
               ON CONFLICT (id) DO UPDATE SET
                   process = ?2, library = ?3, operation = ?4, bytes = ?5, tag = ?6, through = ?7, buffer = ?8,
                   registered_ns = ?9, submitted_ns = ?10, completed_ns = ?11, immediate = ?12, status = ?13,
                   tid = ?14, submit_tid = ?15, complete_tid = ?16, parent = ?17, hash = ?18,
                   protocol = ?19, seen_ns = ?20";
    let time = |at: Option<Nanos>| at.map(|at| integer(at.0));
    connection.prepare_cached(sql)?.execute(params![
        id,
        transfer.process.0,
        transfer.library.name(),
        transfer.operation.name(),
        integer(transfer.bytes),
        transfer.tag.map(u64::cast_signed),
        transfer.through.cast_signed(),
        transfer.buffer.cast_signed(),
        time(transfer.registered),
        time(transfer.submitted),
        time(transfer.completed),
        transfer.immediate,
        transfer.status,
        transfer.tid.0,
        transfer.submitter.map(|tid| tid.0),
        transfer.completer.map(|tid| tid.0),
        transfer.parent.map(|parent| integer(parent.0)),
        transfer.hash.map(u64::cast_signed),
        transfer.protocol.map(Protocol::name),
        integer(at.0),
    ])?;
    Ok(())
}

pub(crate) fn count(connection: &Connection, transfers: &Transfers) -> rusqlite::Result<()> {
    let sql = "INSERT INTO transfer_counts
               (at_ns, process, library, operation, count, bytes, immediate, failed, spent_ns, unfollowed, told_every)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    connection.prepare_cached(sql)?.execute(params![
        integer(transfers.at.0),
        transfers.process.0,
        transfers.library.name(),
        transfers.operation.name(),
        integer(transfers.count),
        integer(transfers.bytes),
        integer(transfers.immediate),
        integer(transfers.failed),
        integer(transfers.spent.0),
        integer(transfers.unfollowed),
        transfers.every,
    ])?;
    Ok(())
}

pub(crate) fn thread(connection: &Connection, thread: &TransferThread) -> rusqlite::Result<()> {
    let sql = "INSERT INTO transfer_threads
               (at_ns, process, tid, registered, submitted, dispatched, completed, notified, woken, progress, probed_ns,
                observed_ns, awake_ns)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    connection.prepare_cached(sql)?.execute(params![
        integer(thread.at.0),
        thread.process.0,
        thread.tid.0,
        integer(thread.registered),
        integer(thread.submitted),
        integer(thread.dispatched),
        integer(thread.completed),
        integer(thread.notified),
        integer(thread.woken),
        integer(thread.progress),
        integer(thread.probed.0),
        integer(thread.observed.0),
        integer(thread.awake.0),
    ])?;
    Ok(())
}

/// Any 64 bits; a wrong type is `None`.
fn bits(row: &Row<'_>, column: usize) -> Option<Option<u64>> {
    row.get::<_, Option<i64>>(column).ok().map(|number| number.map(i64::cast_unsigned))
}

/// NULL is a protocol that was not seen; `None` is no protocol's name.
fn protocol(row: &Row<'_>, column: usize) -> Option<Option<Protocol>> {
    match row.maybe_text(column)? {
        Some(name) => Protocol::from_name(&name).map(Some),
        None => Some(None),
    }
}

fn transfer(row: &Row<'_>) -> Option<Transfer> {
    let time = |column| Some(row.maybe_number(column)?.map(Nanos));
    Some(Transfer {
        process: ProcessRef(row.small(1)?),
        library: Library::from_name(&row.text(2)?)?,
        operation: Operation::from_name(&row.text(3)?)?,
        bytes: row.number(4)?,
        tag: bits(row, 5)?,
        through: bits(row, 6)??,
        buffer: bits(row, 7)??,
        registered: time(8)?,
        submitted: time(9)?,
        completed: time(10)?,
        immediate: row.number(11)? != 0,
        status: row.get(12).ok()?,
        tid: Tid(row.small(13)?),
        submitter: row.maybe_small(14)?.map(Tid),
        completer: row.maybe_small(15)?.map(Tid),
        parent: row.maybe_number(16)?.map(TransferId),
        hash: bits(row, 17)?,
        protocol: protocol(row, 18)?,
    })
}

pub(crate) fn read(
    source: &Source,
    damage: &mut Damage,
    range: Range,
    mut each: impl FnMut(Event),
) -> Result<(), Error> {
    let has = |at: Nanos| range.from.is_none_or(|from| at >= from) && range.to.is_none_or(|to| at < to);
    let columns = [
        "process",
        "library",
        "operation",
        "bytes",
        "tag",
        "through",
        "buffer",
        "registered_ns",
        "submitted_ns",
        "completed_ns",
        "immediate",
        "status",
        "tid",
        "submit_tid",
        "complete_tid",
        "parent",
        "hash",
        "protocol",
        "seen_ns",
        "asked_ns",
        "stack",
        "notified_ns",
        "woken_ns",
        "wake_tid",
    ];
    source.scan("transfers", &columns, "", damage, |id, row| {
        let id = TransferId(id);
        let mut tell = |at: Nanos, change| {
            if has(at) {
                each(Event::Transfer { at, id, change });
            }
        };
        // One whose end a cut recording lacks has the rest only.
        if let Some(seen) = row.maybe_number(19)? {
            tell(Nanos(seen), TransferChange::Seen(Box::new(transfer(row)?)));
        }
        if let Some((asked, stack)) = row.maybe_number(20)?.zip(row.maybe_small(21)?) {
            tell(Nanos(asked), TransferChange::Asked(StackId(stack)));
        }
        if let Some((woken, tid)) = row.maybe_number(23)?.zip(row.maybe_small(24)?) {
            let notified = Nanos(row.maybe_number(22)?.unwrap_or(woken));
            tell(Nanos(woken), TransferChange::Woken { notified, tid: Tid(tid) });
        }
        Some(())
    })?;
    let columns = [
        "at_ns",
        "process",
        "library",
        "operation",
        "count",
        "bytes",
        "immediate",
        "failed",
        "spent_ns",
        "unfollowed",
        "told_every",
    ];
    source.scan("transfer_counts", &columns, &range.condition(), damage, |_, row| {
        each(Event::Transfers(Transfers {
            at: Nanos(row.number(1)?),
            process: ProcessRef(row.small(2)?),
            library: Library::from_name(&row.text(3)?)?,
            operation: Operation::from_name(&row.text(4)?)?,
            count: row.number(5)?,
            bytes: row.number(6)?,
            immediate: row.number(7)?,
            failed: row.number(8)?,
            spent: Nanos(row.number(9)?),
            unfollowed: row.number(10)?,
            every: row.small(11)?,
        }));
        Some(())
    })?;
    let columns = [
        "at_ns",
        "process",
        "tid",
        "registered",
        "submitted",
        "dispatched",
        "completed",
        "notified",
        "woken",
        "progress",
        "probed_ns",
        "observed_ns",
        "awake_ns",
    ];
    // What a thread has done up to then follows from the latest word of it.
    let until = Range { from: None, ..range };
    source.scan("transfer_threads", &columns, &until.condition(), damage, |_, row| {
        each(Event::TransferThread(TransferThread {
            at: Nanos(row.number(1)?),
            process: ProcessRef(row.small(2)?),
            tid: Tid(row.small(3)?),
            registered: row.number(4)?,
            submitted: row.number(5)?,
            dispatched: row.number(6)?,
            completed: row.number(7)?,
            notified: row.number(8)?,
            woken: row.number(9)?,
            progress: row.number(10)?,
            probed: Nanos(row.number(11)?),
            observed: Nanos(row.number(12)?),
            awake: Nanos(row.number(13)?),
        }));
        Some(())
    })
}
