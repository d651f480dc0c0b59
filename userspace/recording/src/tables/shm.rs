//! The family `shm`: segments and what happened to them.

use std::collections::HashMap;

use pyobs_model::{Event, Nanos, Pid, Segment, SegmentChange, SegmentId, SegmentKind, StackId};
use rusqlite::{Connection, params};

use super::scan::Dense;
use super::{Damage, Field, Range, Source, bounded, integer, regions};
use crate::Error;

pub(crate) const SCHEMA: &str = "
CREATE TABLE segments (
    id         INTEGER PRIMARY KEY,
    begun_ns   INTEGER NOT NULL,
    dev        INTEGER NOT NULL,
    ino        INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    name       TEXT,
    linked     INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    creator    INTEGER
);
CREATE TABLE segment_changes (
    at_ns    INTEGER NOT NULL,
    segment  INTEGER NOT NULL REFERENCES segments,
    change   TEXT NOT NULL,
    pid      INTEGER,
    from_pid INTEGER,
    fds      INTEGER,
    mappings INTEGER,
    bytes    INTEGER,
    stack    INTEGER REFERENCES stacks
);";

/// The columns of a change that not every one has.
#[derive(Default)]
struct Columns {
    change: &'static str,
    pid: Option<Pid>,
    from: Option<Pid>,
    fds: Option<u32>,
    mappings: Option<u32>,
    bytes: Option<u64>,
    stack: Option<StackId>,
}

impl Columns {
    fn of(change: &SegmentChange) -> Option<Self> {
        let named = |change| Self { change, ..Self::default() };
        Some(match change {
            SegmentChange::Begun(_) => named("begun"),
            SegmentChange::Born(stack) => Self { stack: Some(*stack), ..named("born") },
            SegmentChange::Resized(bytes) => Self { bytes: Some(*bytes), ..named("resized") },
            SegmentChange::Holds { pid, fds, mappings } => {
                Self { pid: Some(*pid), fds: Some(*fds), mappings: Some(*mappings), ..named("holds") }
            }
            SegmentChange::Ended { pid } => Self { pid: Some(*pid), ..named("ended") },
            SegmentChange::Unlinked { by } => Self { pid: *by, ..named("unlinked") },
            SegmentChange::Sent { from } => Self { from: Some(*from), ..named("sent") },
            SegmentChange::Passed { from, to } => Self { pid: Some(*to), from: *from, ..named("passed") },
            // These have tables of their own.
            SegmentChange::Mapped { .. }
            | SegmentChange::Unmapped { .. }
            | SegmentChange::Allocated(_)
            | SegmentChange::Shown { .. } => return None,
            SegmentChange::Released => named("released"),
            SegmentChange::Gone => named("gone"),
        })
    }

    fn event(change: &str, pid: Option<Pid>, from: Option<Pid>, rest: &Rest) -> Option<SegmentChange> {
        Some(match change {
            "born" => SegmentChange::Born(rest.stack?),
            "resized" => SegmentChange::Resized(rest.bytes?),
            "holds" => SegmentChange::Holds { pid: pid?, fds: rest.fds?, mappings: rest.mappings? },
            "ended" => SegmentChange::Ended { pid: pid? },
            "unlinked" => SegmentChange::Unlinked { by: pid },
            "sent" => SegmentChange::Sent { from: from? },
            "passed" => SegmentChange::Passed { from, to: pid? },
            "released" => SegmentChange::Released,
            "gone" => SegmentChange::Gone,
            _ => return None,
        })
    }
}

struct Rest {
    fds: Option<u32>,
    mappings: Option<u32>,
    bytes: Option<u64>,
    stack: Option<StackId>,
}

pub(crate) fn change(
    connection: &Connection,
    at: Nanos,
    id: SegmentId,
    change: &SegmentChange,
) -> rusqlite::Result<()> {
    if let SegmentChange::Begun(segment) = change {
        return begun(connection, at, id, segment);
    }
    let sql = "INSERT INTO segment_changes (at_ns, segment, change, pid, from_pid, fds, mappings, bytes, stack)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    if regions::segment(connection, at, id, change)? {
        return Ok(());
    }
    let Some(columns) = Columns::of(change) else { return Ok(()) };
    connection.prepare_cached(sql)?.execute(params![
        integer(at.0),
        id.0,
        columns.change,
        columns.pid.map(|pid| pid.0),
        columns.from.map(|pid| pid.0),
        columns.fds,
        columns.mappings,
        columns.bytes.map(integer),
        columns.stack.map(|stack| stack.0),
    ])?;
    Ok(())
}

fn begun(connection: &Connection, at: Nanos, id: SegmentId, segment: &Segment) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO segments
               (id, begun_ns, dev, ino, generation, kind, name, linked, bytes, creator)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    connection.prepare_cached(sql)?.execute(params![
        id.0,
        integer(at.0),
        integer(segment.dev),
        integer(segment.ino),
        segment.generation,
        segment.kind.name(),
        segment.name.as_deref().map(bounded),
        segment.linked,
        integer(segment.bytes),
        segment.creator.map(|pid| pid.0),
    ])?;
    Ok(())
}

/// From the recording's beginning on: what a segment is follows from all that happened to it.
pub(crate) fn read(
    source: &Source,
    damage: &mut Damage,
    range: Range,
    mut each: impl FnMut(Event),
) -> Result<(), Error> {
    let until = Range { from: None, ..range };
    let mut ids = Dense::default();
    let mut begun: HashMap<SegmentId, Nanos> = HashMap::new();
    let columns = ["begun_ns", "dev", "ino", "generation", "kind", "name", "linked", "bytes", "creator"];
    source.scan("segments", &columns, "", damage, |id, row| {
        let at = Nanos(row.number(1)?);
        let segment = Segment {
            dev: row.number(2)?,
            ino: row.number(3)?,
            generation: row.small(4)?,
            kind: SegmentKind::from_name(&row.text(5)?)?,
            name: row.maybe_text(6)?,
            linked: row.number(7)? != 0,
            bytes: row.number(8)?,
            creator: row.maybe_small(9)?.map(Pid),
        };
        let _ = ids.missing(id)?;
        let id = SegmentId(u32::try_from(id).ok()?);
        if range.to.is_none_or(|to| at < to) {
            begun.insert(id, at);
            each(Event::Segment { at, id, change: SegmentChange::Begun(segment) });
        }
        Some(())
    })?;
    let columns = ["at_ns", "segment", "change", "pid", "from_pid", "fds", "mappings", "bytes", "stack"];
    source.scan("segment_changes", &columns, &until.condition(), damage, |_, row| {
        let id = SegmentId(row.small(2)?);
        // What is told of a segment was never before its beginning.
        let at = Nanos(row.number(1)?).max(*begun.get(&id)?);
        let rest = Rest {
            fds: row.maybe_small(6)?,
            mappings: row.maybe_small(7)?,
            bytes: row.maybe_number(8)?,
            stack: row.maybe_small(9)?.map(StackId),
        };
        let (pid, from) = (row.maybe_small(4)?.map(Pid), row.maybe_small(5)?.map(Pid));
        let change = Columns::event(&row.text(3)?, pid, from, &rest)?;
        each(Event::Segment { at, id, change });
        Some(())
    })
}
