//! The family `arena`: arenas and what happened to them.

use std::sync::Arc;

use pyobs_model::{Arena, ArenaChange, ArenaId, Event, Filled, Nanos, Objects, ProcessRef, StackId};
use rusqlite::{Connection, Result};

use super::lookup::Lookup;
use super::scan::Dense;
use super::{Reading, Rows, regions};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};
use crate::value::Name;

// An address has 64 bits and SQLite's integers a sign: addresses of user space are below either.

tables! {
    /// Family `arena`: memory that an allocator takes from the kernel to hand it out in small pieces.
    #[insert(OR REPLACE)]
    ArenaRow in "arenas" {
        #[key] id: ArenaId = "number of the arena",
        at as "begun_ns": Nanos = "when it was first seen",
        process: ProcessRef = "`processes.id`",
        kind: Arc<str> = "`pymalloc` or `mimalloc` for CPython's own, else the name of a library",
        address: u64 = "in the process; 0 where a library's is not known",
        bytes: u64 = "its size; of a library's 0, for `arena_changes` has it",
        born: bool = "1 when it was made then, 0 when it was there already",
        parent: Option<ArenaId> = "`arenas.id` of the one that it is a copy of, by a fork",
    }

    /// Family `arena`: what happened to arenas. The end of a process (`processes.ended_ns`) is the end of its arenas,
    /// too.
    ChangeRow in "arena_changes" {
        at as "at_ns": Nanos = "when",
        id as "arena": ArenaId = "`arenas.id`",
        change: Name = "`born`, `filled` (somebody looked), `objects` (a library's have come or gone), `closed` \
            (nothing more is to be made in it), `escaped` (objects outlived that), `died` (given back) or `mistaken` \
            (it was none)",
        #[sparse] {
            stack: StackId = "`born`, `escaped`: `stacks.id`, where it was made, and where objects escaped",
            slabs: u32 = "`filled`: the parts that it is divided into (pools); `objects`: the slabs that it was \
                given so far",
            used: u32 = "`filled`: those that anything is in",
            bytes: u64 = "`filled`: what lies in these; `objects`: of its slabs, else of the objects that live",
            objects_born: u64 = "`objects`: how many were made in it so far",
            objects_dead: u64 = "`objects`: how many of these have gone",
            escaped: u64 = "`closed`: how many were left",
            popped: bool = "`closed`: 0 where the library did not let go of it",
        }
    }
}

impl ChangeRow {
    fn change(&self) -> Option<ArenaChange> {
        Some(match &*self.change {
            "born" => ArenaChange::Born(self.stack?),
            "filled" => ArenaChange::Filled(Filled { slabs: self.slabs?, used: self.used?, bytes: self.bytes? }),
            "objects" => {
                let (born, dead) = (self.objects_born?, self.objects_dead?);
                ArenaChange::Objects(Objects { born, dead: dead.min(born), slabs: self.slabs?, bytes: self.bytes? })
            }
            "closed" => ArenaChange::Closed { escaped: self.escaped?, popped: self.popped? },
            "escaped" => ArenaChange::Escaped(self.stack?),
            "died" => ArenaChange::Died,
            "mistaken" => ArenaChange::Mistaken,
            _ => return None,
        })
    }
}

pub(crate) fn change(connection: &Connection, at: Nanos, id: ArenaId, change: &ArenaChange) -> Result<()> {
    let named = |change: &'static str| ChangeRow::of(at, id, change.into());
    let row = match *change {
        ArenaChange::Begun(ref arena) => return begun(connection, at, id, arena),
        ArenaChange::Slab { address, bytes } => return regions::slab(connection, at, id, address, bytes),
        ArenaChange::Born(stack) => ChangeRow { stack: Some(stack), ..named("born") },
        ArenaChange::Filled(Filled { slabs, used, bytes }) => {
            ChangeRow { slabs: Some(slabs), used: Some(used), bytes: Some(bytes), ..named("filled") }
        }
        ArenaChange::Objects(Objects { born, dead, slabs, bytes }) => {
            let (objects_born, objects_dead) = (Some(born), Some(dead));
            ChangeRow { slabs: Some(slabs), bytes: Some(bytes), objects_born, objects_dead, ..named("objects") }
        }
        ArenaChange::Closed { escaped, popped } => {
            ChangeRow { escaped: Some(escaped), popped: Some(popped), ..named("closed") }
        }
        ArenaChange::Escaped(stack) => ChangeRow { stack: Some(stack), ..named("escaped") },
        ArenaChange::Died => named("died"),
        ArenaChange::Mistaken => named("mistaken"),
    };
    row.insert(connection)
}

fn begun(connection: &Connection, at: Nanos, id: ArenaId, arena: &Arena) -> Result<()> {
    let Arena { process, kind, address, bytes, born, parent } = arena.clone();
    ArenaRow { id, at, process, kind, address, bytes, born, parent }.insert(connection)
}

/// From the recording's beginning on: what an arena is follows from all that happened to it.
pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    let range = reading.range;
    let mut ids = Dense::default();
    merge.table(reading, Rows::All, &["begun_ns"], move |_, row: ArenaRow, events| {
        let ArenaRow { id, at, process, kind, address, bytes, born, parent } = row;
        let _ = ids.missing(id.0)?;
        if range.ends_after(at) {
            let change = ArenaChange::Begun(Arena { process, kind, address, bytes, born, parent });
            events.push_back(Event::Arena { at, id, change });
        }
        Some(())
    })?;
    let mut begun = Lookup::new::<ArenaRow>(reading)?;
    merge.table(reading, Rows::Until, &["at_ns"], move |reading, row: ChangeRow, events| {
        // What is told of an arena was never before its beginning.
        let begun = begun.get(reading, row.id.0, |row: ArenaRow| (row.id.0, row.at));
        let at = row.at.max(begun.filter(|begun| range.ends_after(*begun))?);
        events.push_back(Event::Arena { at, id: row.id, change: row.change()? });
        Some(())
    })
}
