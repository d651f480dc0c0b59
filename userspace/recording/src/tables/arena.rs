//! The family `arena`: arenas and what happened to them.

use std::collections::HashMap;

use pyobs_model::{Arena, ArenaChange, ArenaId, Event, Filled, Nanos, Objects, ProcessRef, StackId};
use rusqlite::{Connection, params};

use super::scan::Dense;
use super::{Damage, Field, Range, Source, bounded, integer, regions};
use crate::Error;

/// An address has 64 bits and SQLite's integers a sign: addresses of user space are below either.
pub(crate) const SCHEMA: &str = "
CREATE TABLE arenas (
    id       INTEGER PRIMARY KEY,
    begun_ns INTEGER NOT NULL,
    process  INTEGER NOT NULL REFERENCES processes,
    kind     TEXT NOT NULL,
    address  INTEGER NOT NULL,
    bytes    INTEGER NOT NULL,
    born     INTEGER NOT NULL,
    parent   INTEGER REFERENCES arenas
);
CREATE TABLE arena_changes (
    at_ns  INTEGER NOT NULL,
    arena  INTEGER NOT NULL REFERENCES arenas,
    change TEXT NOT NULL,
    stack  INTEGER REFERENCES stacks,
    slabs  INTEGER,
    used   INTEGER,
    bytes  INTEGER,
    objects_born INTEGER,
    objects_dead INTEGER,
    escaped      INTEGER,
    popped       INTEGER
);";

/// The columns of a change that not every one has.
#[derive(Default)]
struct Columns {
    change: &'static str,
    stack: Option<StackId>,
    filled: Option<Filled>,
    objects: Option<Objects>,
    /// How many escaped, and whether the library let go.
    closed: Option<(u64, bool)>,
}

impl Columns {
    fn of(change: &ArenaChange) -> Self {
        let named = |change| Self { change, ..Self::default() };
        match change {
            ArenaChange::Begun(_) => named("begun"),
            ArenaChange::Born(stack) => Self { stack: Some(*stack), ..named("born") },
            ArenaChange::Filled(filled) => Self { filled: Some(*filled), ..named("filled") },
            ArenaChange::Slab { .. } => named("slab"),
            ArenaChange::Objects(objects) => Self { objects: Some(*objects), ..named("objects") },
            ArenaChange::Closed { escaped, popped } => Self { closed: Some((*escaped, *popped)), ..named("closed") },
            ArenaChange::Escaped(stack) => Self { stack: Some(*stack), ..named("escaped") },
            ArenaChange::Died => named("died"),
            ArenaChange::Mistaken => named("mistaken"),
        }
    }

    fn event(&self, change: &str) -> Option<ArenaChange> {
        Some(match change {
            "born" => ArenaChange::Born(self.stack?),
            "filled" => ArenaChange::Filled(self.filled?),
            "objects" => ArenaChange::Objects(self.objects?),
            "closed" => self.closed.map(|(escaped, popped)| ArenaChange::Closed { escaped, popped })?,
            "escaped" => ArenaChange::Escaped(self.stack?),
            "died" => ArenaChange::Died,
            "mistaken" => ArenaChange::Mistaken,
            _ => return None,
        })
    }
}

pub(crate) fn change(connection: &Connection, at: Nanos, id: ArenaId, change: &ArenaChange) -> rusqlite::Result<()> {
    if let ArenaChange::Begun(arena) = change {
        return begun(connection, at, id, arena);
    }
    if let ArenaChange::Slab { address, bytes } = change {
        return regions::slab(connection, at, id, *address, *bytes);
    }
    let sql = "INSERT INTO arena_changes (at_ns, arena, change, stack, slabs, used, bytes, objects_born,
                                          objects_dead, escaped, popped)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    let columns = Columns::of(change);
    connection.prepare_cached(sql)?.execute(params![
        integer(at.0),
        id.0,
        columns.change,
        columns.stack.map(|stack| stack.0),
        columns.filled.map(|filled| filled.slabs).or(columns.objects.map(|objects| objects.slabs)),
        columns.filled.map(|filled| filled.used),
        columns.filled.map(|filled| filled.bytes).or(columns.objects.map(|objects| objects.bytes)).map(integer),
        columns.objects.map(|objects| integer(objects.born)),
        columns.objects.map(|objects| integer(objects.dead)),
        columns.closed.map(|(escaped, _)| integer(escaped)),
        columns.closed.map(|(_, popped)| popped),
    ])?;
    Ok(())
}

fn begun(connection: &Connection, at: Nanos, id: ArenaId, arena: &Arena) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO arenas (id, begun_ns, process, kind, address, bytes, born, parent)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    connection.prepare_cached(sql)?.execute(params![
        id.0,
        integer(at.0),
        arena.process.0,
        bounded(&arena.kind),
        integer(arena.address),
        integer(arena.bytes),
        arena.born,
        arena.parent.map(|parent| parent.0),
    ])?;
    Ok(())
}

/// From the recording's beginning on: what an arena is follows from all that happened to it.
pub(crate) fn read(
    source: &Source,
    damage: &mut Damage,
    range: Range,
    mut each: impl FnMut(Event),
) -> Result<(), Error> {
    let until = Range { from: None, ..range };
    let mut ids = Dense::default();
    let mut begun: HashMap<ArenaId, Nanos> = HashMap::new();
    let columns = ["begun_ns", "process", "kind", "address", "bytes", "born", "parent"];
    source.scan("arenas", &columns, "", damage, |id, row| {
        let at = Nanos(row.number(1)?);
        let arena = Arena {
            process: ProcessRef(row.small(2)?),
            kind: row.text(3)?,
            address: row.number(4)?,
            bytes: row.number(5)?,
            born: row.number(6)? != 0,
            parent: row.maybe_small(7)?.map(ArenaId),
        };
        let _ = ids.missing(id)?;
        let id = ArenaId(u32::try_from(id).ok()?);
        if range.to.is_none_or(|to| at < to) {
            begun.insert(id, at);
            each(Event::Arena { at, id, change: ArenaChange::Begun(arena) });
        }
        Some(())
    })?;
    let columns = [
        "at_ns",
        "arena",
        "change",
        "stack",
        "slabs",
        "used",
        "bytes",
        "objects_born",
        "objects_dead",
        "escaped",
        "popped",
    ];
    source.scan("arena_changes", &columns, &until.condition(), damage, |_, row| {
        let id = ArenaId(row.small(2)?);
        // What is told of an arena was never before its beginning.
        let at = Nanos(row.number(1)?).max(*begun.get(&id)?);
        let (slabs, used, bytes) = (row.maybe_small(5)?, row.maybe_small(6)?, row.maybe_number(7)?);
        let filled = slabs.zip(used).zip(bytes).map(|((slabs, used), bytes)| Filled { slabs, used, bytes });
        let objects = slabs.zip(row.maybe_number(8)?).zip(row.maybe_number(9)?).zip(bytes);
        let objects =
            objects.map(|(((slabs, born), dead), bytes)| Objects { born, dead: dead.min(born), slabs, bytes });
        let closed = row.maybe_number(10)?.zip(row.maybe_number(11)?).map(|(escaped, popped)| (escaped, popped != 0));
        let stack = row.maybe_small(4)?.map(StackId);
        let change = Columns { stack, filled, objects, closed, ..Columns::default() }.event(&row.text(3)?)?;
        each(Event::Arena { at, id, change });
        Some(())
    })
}
