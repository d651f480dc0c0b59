//! The family `shm`: segments and what happened to them.

use std::sync::Arc;

use pyobs_model::{Event, Nanos, Pid, Segment, SegmentChange, SegmentId, SegmentKind, StackId};
use rusqlite::{Connection, Result};

use super::lookup::Lookup;
use super::scan::Dense;
use super::{Reading, Rows, regions};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};
use crate::value::Name;

tables! {
    /// Family `shm`: segments of shared memory.
    #[insert(OR REPLACE)]
    SegmentRow in "segments" {
        #[key] id: SegmentId = "number of the segment",
        at as "begun_ns": Nanos = "when it was first seen",
        dev: u64 = "device, as stat(2) has it",
        ino: u64 = "inode",
        generation: u32 = "tells two uses of one inode apart; 0 when unknown",
        kind: SegmentKind = "`shm`, `memfd`, `file` or `anonymous`",
        name: Option<Arc<str>> = "last component of its name; NULL if it has none",
        linked: bool = "1 if its name was in the file system then",
        bytes: u64 = "its size then",
        creator: Option<Pid> = "pid of the process that created it; NULL if that was not seen",
    }

    /// Family `shm`: what happened to segments.
    ChangeRow in "segment_changes" {
        at as "at_ns": Nanos = "when",
        id as "segment": SegmentId = "`segments.id`",
        change: Name = "`born`, `resized`, `holds`, `ended`, `unlinked`, `sent`, `passed`, `released` (memory given \
            back) or `gone` (no process can reach it any more)",
        #[sparse] {
            pid: Pid = "who holds it from then on; who has ended, having held it; who unlinked it; who got a \
                descriptor",
            from as "from_pid": Pid = "who sent a descriptor",
            fds: u32 = "`holds`: descriptors that the process has of it",
            mappings: u32 = "`holds`: mappings that it has of it",
            bytes: u64 = "`resized`: its size",
            stack: StackId = "`born`: `stacks.id`, where it was made",
        }
    }
}

impl ChangeRow {
    fn change(&self) -> Option<SegmentChange> {
        let (pid, from) = (self.pid, self.from);
        Some(match &*self.change {
            "born" => SegmentChange::Born(self.stack?),
            "resized" => SegmentChange::Resized(self.bytes?),
            "holds" => SegmentChange::Holds { pid: pid?, fds: self.fds?, mappings: self.mappings? },
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

pub(crate) fn change(connection: &Connection, at: Nanos, id: SegmentId, change: &SegmentChange) -> Result<()> {
    let named = |change: &'static str| ChangeRow::of(at, id, change.into());
    let row = match *change {
        SegmentChange::Begun(ref segment) => return begun(connection, at, id, segment),
        SegmentChange::Mapped { pid, address, bytes, offset } => {
            return regions::mapping(connection, at, id, (pid, address, bytes, Some(offset)));
        }
        SegmentChange::Unmapped { pid, address, bytes } => {
            return regions::mapping(connection, at, id, (pid, address, bytes, None));
        }
        SegmentChange::Allocated(bytes) => return regions::resident(connection, at, id, bytes, None),
        SegmentChange::Shown { pid, resident, share } => {
            return regions::resident(connection, at, id, resident, Some((pid, share)));
        }
        SegmentChange::Born(stack) => ChangeRow { stack: Some(stack), ..named("born") },
        SegmentChange::Resized(bytes) => ChangeRow { bytes: Some(bytes), ..named("resized") },
        SegmentChange::Holds { pid, fds, mappings } => {
            ChangeRow { pid: Some(pid), fds: Some(fds), mappings: Some(mappings), ..named("holds") }
        }
        SegmentChange::Ended { pid } => ChangeRow { pid: Some(pid), ..named("ended") },
        SegmentChange::Unlinked { by } => ChangeRow { pid: by, ..named("unlinked") },
        SegmentChange::Sent { from } => ChangeRow { from: Some(from), ..named("sent") },
        SegmentChange::Passed { from, to } => ChangeRow { pid: Some(to), from, ..named("passed") },
        SegmentChange::Released => named("released"),
        SegmentChange::Gone => named("gone"),
    };
    row.insert(connection)
}

fn begun(connection: &Connection, at: Nanos, id: SegmentId, segment: &Segment) -> Result<()> {
    let Segment { dev, ino, generation, kind, name, linked, bytes, creator } = segment.clone();
    SegmentRow { id, at, dev, ino, generation, kind, name, linked, bytes, creator }.insert(connection)
}

/// Reads from the beginning of the recording, because a segment's state depends on all its changes.
pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    let range = reading.range;
    let mut ids = Dense::default();
    merge.table(reading, Rows::All, &["begun_ns"], move |_, row: SegmentRow, events| {
        let SegmentRow { id, at, dev, ino, generation, kind, name, linked, bytes, creator } = row;
        let _ = ids.missing(id.0)?;
        if range.ends_after(at) {
            let segment = Segment { dev, ino, generation, kind, name, linked, bytes, creator };
            events.push(Event::Segment { at, id, change: SegmentChange::Begun(segment) });
        }
        Some(())
    })?;
    let mut begun = Lookup::new::<SegmentRow>(reading)?;
    merge.table(reading, Rows::Until, &["at_ns"], move |reading, row: ChangeRow, events| {
        // A change is never earlier than the segment's beginning.
        let begun = begun.get(reading, row.id.0, |row: SegmentRow| (row.id.0, row.at));
        let at = row.at.max(begun.filter(|begun| range.ends_after(*begun))?);
        events.push(Event::Segment { at, id: row.id, change: row.change()? });
        Some(())
    })
}
