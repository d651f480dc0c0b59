//! Where the families `arena`, `nrt` and `shm` have found things in processes' memory, and what of it was there.

use std::collections::HashMap;

use pyobs_model::{ArenaChange, ArenaId, Event, MemInfoId, Nanos, Pid, ProcessRef, Resident, SegmentChange, SegmentId};
use rusqlite::{Connection, params};

use super::{Damage, Field, Range, Source, integer};
use crate::Error;

/// Addresses of user space fit SQLite's integers.
pub(crate) const SCHEMA: &str = "
CREATE TABLE segment_mappings (
    at_ns    INTEGER NOT NULL,
    segment  INTEGER NOT NULL REFERENCES segments,
    pid      INTEGER NOT NULL,
    address  INTEGER NOT NULL,
    bytes    INTEGER NOT NULL,
    offset   INTEGER
);
CREATE TABLE segment_residents (
    at_ns    INTEGER NOT NULL,
    segment  INTEGER NOT NULL REFERENCES segments,
    pid      INTEGER,
    resident_bytes INTEGER NOT NULL,
    share_bytes    INTEGER
);
CREATE TABLE process_residents (
    at_ns           INTEGER NOT NULL,
    process         INTEGER NOT NULL REFERENCES processes,
    rss_bytes       INTEGER NOT NULL,
    anonymous_bytes INTEGER NOT NULL,
    files_bytes     INTEGER NOT NULL,
    shared_bytes    INTEGER NOT NULL,
    segments_bytes  INTEGER NOT NULL,
    share_bytes     INTEGER NOT NULL
);
CREATE TABLE arena_slabs (
    at_ns   INTEGER NOT NULL,
    arena   INTEGER NOT NULL REFERENCES arenas,
    address INTEGER NOT NULL,
    bytes   INTEGER NOT NULL
);
CREATE TABLE meminfo_data (
    meminfo INTEGER PRIMARY KEY REFERENCES meminfos,
    address INTEGER NOT NULL
);";

/// Whether the change is one of those that have their place here; then it is written.
pub(crate) fn segment(
    connection: &Connection,
    at: Nanos,
    id: SegmentId,
    change: &SegmentChange,
) -> rusqlite::Result<bool> {
    let (pid, address, bytes, offset) = match *change {
        SegmentChange::Mapped { pid, address, bytes, offset } => (pid, address, bytes, Some(offset)),
        SegmentChange::Unmapped { pid, address, bytes } => (pid, address, bytes, None),
        SegmentChange::Allocated(bytes) => return resident(connection, at, id, None, bytes, None).map(|()| true),
        SegmentChange::Shown { pid, resident: bytes, share } => {
            return resident(connection, at, id, Some(pid), bytes, Some(share)).map(|()| true);
        }
        _ => return Ok(false),
    };
    let sql = "INSERT INTO segment_mappings (at_ns, segment, pid, address, bytes, offset)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let offset = offset.map(integer);
    connection.prepare_cached(sql)?.execute(params![
        integer(at.0),
        id.0,
        pid.0,
        integer(address),
        integer(bytes),
        offset
    ])?;
    Ok(true)
}

fn resident(
    connection: &Connection,
    at: Nanos,
    id: SegmentId,
    pid: Option<Pid>,
    bytes: u64,
    share: Option<u64>,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO segment_residents (at_ns, segment, pid, resident_bytes, share_bytes)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let (pid, share) = (pid.map(|pid| pid.0), share.map(integer));
    connection.prepare_cached(sql)?.execute(params![integer(at.0), id.0, pid, integer(bytes), share])?;
    Ok(())
}

pub(crate) fn process(
    connection: &Connection,
    at: Nanos,
    process: ProcessRef,
    resident: &Resident,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO process_residents
               (at_ns, process, rss_bytes, anonymous_bytes, files_bytes, shared_bytes, segments_bytes, share_bytes)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let Resident { total, anonymous, files, shared, segments, share } = *resident;
    connection.prepare_cached(sql)?.execute(params![
        integer(at.0),
        process.0,
        integer(total),
        integer(anonymous),
        integer(files),
        integer(shared),
        integer(segments),
        integer(share)
    ])?;
    Ok(())
}

pub(crate) fn slab(connection: &Connection, at: Nanos, id: ArenaId, address: u64, bytes: u64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO arena_slabs (at_ns, arena, address, bytes) VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(sql)?.execute(params![integer(at.0), id.0, integer(address), integer(bytes)])?;
    Ok(())
}

pub(crate) fn data(connection: &Connection, id: MemInfoId, address: u64) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO meminfo_data (meminfo, address) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute(params![id.0, integer(address)])?;
    Ok(())
}

/// Where the data of MemInfos lies.
pub(crate) fn read_data(source: &Source, damage: &mut Damage) -> Result<HashMap<MemInfoId, u64>, Error> {
    let mut places = HashMap::new();
    source.scan("meminfo_data", &["address"], "", damage, |id, row| {
        places.insert(MemInfoId(u32::try_from(id).ok()?), row.number(1)?);
        Some(())
    })?;
    Ok(places)
}

/// From the recording's beginning on: what lies where follows from all that began and ended.
pub(crate) fn read(
    source: &Source,
    damage: &mut Damage,
    range: Range,
    mut each: impl FnMut(Event),
) -> Result<(), Error> {
    let until = Range { from: None, ..range }.condition();
    let columns = ["at_ns", "segment", "pid", "address", "bytes", "offset"];
    source.scan("segment_mappings", &columns, &until, damage, |_, row| {
        let (at, id, pid) = (Nanos(row.number(1)?), SegmentId(row.small(2)?), Pid(row.small(3)?));
        let (address, bytes) = (row.number(4)?, row.number(5)?);
        let change = match row.maybe_number(6)? {
            Some(offset) => SegmentChange::Mapped { pid, address, bytes, offset },
            None => SegmentChange::Unmapped { pid, address, bytes },
        };
        each(Event::Segment { at, id, change });
        Some(())
    })?;
    let columns = ["at_ns", "segment", "pid", "resident_bytes", "share_bytes"];
    source.scan("segment_residents", &columns, &until, damage, |_, row| {
        let (at, id, resident) = (Nanos(row.number(1)?), SegmentId(row.small(2)?), row.number(4)?);
        let change = match row.maybe_small(3)?.map(Pid) {
            Some(pid) => SegmentChange::Shown { pid, resident, share: row.number(5)? },
            None => SegmentChange::Allocated(resident),
        };
        each(Event::Segment { at, id, change });
        Some(())
    })?;
    let columns = [
        "at_ns",
        "process",
        "rss_bytes",
        "anonymous_bytes",
        "files_bytes",
        "shared_bytes",
        "segments_bytes",
        "share_bytes",
    ];
    source.scan("process_residents", &columns, &until, damage, |_, row| {
        let resident = Resident {
            total: row.number(3)?,
            anonymous: row.number(4)?,
            files: row.number(5)?,
            shared: row.number(6)?,
            segments: row.number(7)?,
            share: row.number(8)?,
        };
        each(Event::Resident { at: Nanos(row.number(1)?), process: ProcessRef(row.small(2)?), resident });
        Some(())
    })?;
    source.scan("arena_slabs", &["at_ns", "arena", "address", "bytes"], &until, damage, |_, row| {
        let (at, id) = (Nanos(row.number(1)?), ArenaId(row.small(2)?));
        each(Event::Arena { at, id, change: ArenaChange::Slab { address: row.number(3)?, bytes: row.number(4)? } });
        Some(())
    })
}
