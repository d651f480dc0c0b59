//! Where arenas, MemInfos and segments lie in memory, and how much of it is resident.

use pyobs_model::{ArenaChange, ArenaId, Event, MemInfoId, Nanos, Pid, ProcessRef, Resident, SegmentChange, SegmentId};
use rusqlite::{Connection, Result};

use super::lookup::Lookup;
use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};

// Addresses of user space fit SQLite's integers.

tables! {
    /// Family `shm`: where processes map segments. When a process ends, so do its mappings.
    MappingRow in "segment_mappings" {
        at as "at_ns": Nanos = "when",
        id as "segment": SegmentId = "`segments.id`",
        pid: Pid = "process id",
        address: u64 = "its address in the process",
        bytes: u64 = "its length",
        offset: Option<u64> = "offset in the segment; NULL if the range was unmapped",
    }

    /// Family `shm`: how much of a segment was resident.
    SegmentResidentRow in "segment_residents" {
        at as "at_ns": Nanos = "when",
        id as "segment": SegmentId = "`segments.id`",
        pid: Option<Pid> = "process whose mappings were examined; NULL for the whole segment",
        bytes as "resident_bytes": u64 = "resident bytes; for a file on a disk and without `pid`, the disk space that it uses",
        share as "share_bytes": Option<u64> = "the same, each page divided by the number of processes that have it; \
            NULL with `pid`",
    }

    /// Family `shm`: the resident memory of a watched process.
    /// `rss_bytes - segments_bytes + share_bytes`, summed over processes, counts each page of a segment once.
    ProcessResidentRow in "process_residents" {
        at as "at_ns": Nanos = "when",
        process: ProcessRef = "`processes.id`",
        total as "rss_bytes": u64 = "resident memory as the kernel counts it",
        anonymous as "anonymous_bytes": u64 = "the anonymous part of it",
        files as "files_bytes": u64 = "the part that maps files",
        shared as "shared_bytes": u64 = "the part in shared memory",
        segments as "segments_bytes": u64 = "the part in known segments",
        share as "share_bytes": u64 = "the part in known segments, each page divided by the number of processes that map \
            it",
    }

    /// Family `arena`: memory of a library's arena, if the library's description says where it lies.
    SlabRow in "arena_slabs" {
        at as "at_ns": Nanos = "when",
        id as "arena": ArenaId = "`arenas.id`",
        address: u64 = "address in the process",
        bytes: u64 = "its size",
    }

    /// Family `nrt`: where the data of MemInfos lies.
    #[insert(OR REPLACE)]
    DataRow in "meminfo_data" {
        #[key] meminfo: MemInfoId = "`meminfos.id`",
        address: u64 = "address in the process",
    }
}

/// Without an offset, the range was unmapped.
pub(crate) fn mapping(
    connection: &Connection,
    at: Nanos,
    id: SegmentId,
    (pid, address, bytes, offset): (Pid, u64, u64, Option<u64>),
) -> Result<()> {
    MappingRow { at, id, pid, address, bytes, offset }.insert(connection)
}

/// Of one process with its share, or of the whole segment.
pub(crate) fn resident(
    connection: &Connection,
    at: Nanos,
    id: SegmentId,
    bytes: u64,
    shown: Option<(Pid, u64)>,
) -> Result<()> {
    let (pid, share) = shown.unzip();
    SegmentResidentRow { at, id, pid, bytes, share }.insert(connection)
}

pub(crate) fn process(connection: &Connection, at: Nanos, process: ProcessRef, resident: &Resident) -> Result<()> {
    let Resident { total, anonymous, files, shared, segments, share } = *resident;
    ProcessResidentRow { at, process, total, anonymous, files, shared, segments, share }.insert(connection)
}

pub(crate) fn slab(connection: &Connection, at: Nanos, id: ArenaId, address: u64, bytes: u64) -> Result<()> {
    SlabRow { at, id, address, bytes }.insert(connection)
}

pub(crate) fn data(connection: &Connection, id: MemInfoId, address: u64) -> Result<()> {
    DataRow { meminfo: id, address }.insert(connection)
}

/// Where the data of a MemInfo lies.
pub(crate) fn places(
    reading: &mut Reading<'_>,
) -> Result<impl FnMut(&mut Reading<'_>, MemInfoId) -> Option<u64> + use<>, Error> {
    let mut places = Lookup::new::<DataRow>(reading)?;
    Ok(move |reading: &mut Reading<'_>, id: MemInfoId| {
        places.get(reading, id.0, |row: DataRow| (row.meminfo.0, row.address))
    })
}

/// Reads from the beginning of the recording, because the map depends on all changes before.
pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    merge.events(reading, Rows::Until, |row| {
        let MappingRow { at, id, pid, address, bytes, offset } = row;
        let change = match offset {
            Some(offset) => SegmentChange::Mapped { pid, address, bytes, offset },
            None => SegmentChange::Unmapped { pid, address, bytes },
        };
        Some(Event::Segment { at, id, change })
    })?;
    merge.events(reading, Rows::Until, |row| {
        let SegmentResidentRow { at, id, pid, bytes: resident, share } = row;
        let change = match pid {
            Some(pid) => SegmentChange::Shown { pid, resident, share: share? },
            None => SegmentChange::Allocated(resident),
        };
        Some(Event::Segment { at, id, change })
    })?;
    merge.events(reading, Rows::Until, |row| {
        let ProcessResidentRow { at, process, total, anonymous, files, shared, segments, share } = row;
        let resident = Resident { total, anonymous, files, shared, segments, share };
        Some(Event::Resident { at, process, resident })
    })?;
    merge.events(reading, Rows::Until, |row| {
        let SlabRow { at, id, address, bytes } = row;
        Some(Event::Arena { at, id, change: ArenaChange::Slab { address, bytes } })
    })
}
