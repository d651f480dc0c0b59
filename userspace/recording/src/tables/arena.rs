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

// Addresses of user space have fewer than 63 bits, so they fit SQLite's signed integers.

tables! {
    /// Family `arena`: memory that an allocator gets from the kernel and hands out in small pieces.
    #[insert(OR REPLACE)]
    ArenaRow in "arenas" {
        #[key] id: ArenaId = "number of the arena",
        at as "begun_ns": Nanos = "when it was first seen",
        process: ProcessRef = "`processes.id`",
        kind: Arc<str> = "`pymalloc` or `mimalloc` for CPython's own, else the name of a library",
        address: u64 = "address in the process; 0 if a library's is unknown",
        bytes: u64 = "its size; 0 for a library's, whose size is in `arena_changes`",
        born: bool = "1 if it was created then, 0 if it existed before",
        parent: Option<ArenaId> = "`arenas.id` of the arena that it is a copy of, after a fork",
    }

    /// Family `arena`: what happened to arenas. When a process ends (`processes.ended_ns`), so do its arenas.
    ChangeRow in "arena_changes" {
        at as "at_ns": Nanos = "when",
        id as "arena": ArenaId = "`arenas.id`",
        change: Name = "`born`, `filled` (its use was read), `objects` (a library allocated or freed some), `closed` \
            (nothing more will be allocated in it), `escaped` (objects outlived that), `died` (given back) or `mistaken` \
            (it was none)",
        #[sparse] {
            stack: StackId = "`born`, `escaped`: `stacks.id`, where it was made, and where objects escaped",
            slabs: u32 = "`filled`: the parts that it is divided into (pools); `objects`: the slabs that it was \
                given so far",
            used: u32 = "`filled`: the pools in use",
            bytes: u64 = "`filled`: what lies in these; `objects`: of its slabs, else of the objects that live",
            objects_born: u64 = "`objects`: how many were allocated in it so far",
            objects_dead: u64 = "`objects`: how many of these were freed",
            escaped: u64 = "`closed`: how many objects were left",
            popped: bool = "`closed`: 0 if the library did not release it",
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

/// Reads from the beginning of the recording, because an arena's state depends on all its changes.
pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    let range = reading.range;
    let mut ids = Dense::default();
    merge.table(reading, Rows::All, &["begun_ns"], move |_, row: ArenaRow, events| {
        let ArenaRow { id, at, process, kind, address, bytes, born, parent } = row;
        let _ = ids.missing(id.0)?;
        if range.ends_after(at) {
            let change = ArenaChange::Begun(Arena { process, kind, address, bytes, born, parent });
            events.push(Event::Arena { at, id, change });
        }
        Some(())
    })?;
    let mut begun = Lookup::new::<ArenaRow>(reading)?;
    merge.table(reading, Rows::Until, &["at_ns"], move |reading, row: ChangeRow, events| {
        // A change is never earlier than the arena's beginning.
        let begun = begun.get(reading, row.id.0, |row: ArenaRow| (row.id.0, row.at));
        let at = row.at.max(begun.filter(|begun| range.ends_after(*begun))?);
        events.push(Event::Arena { at, id: row.id, change: row.change()? });
        Some(())
    })
}
