//! Where the families `arena`, `nrt` and `shm` have found things in processes' memory, and what of it was there.

use pyobs_model::{ArenaChange, ArenaId, Event, MemInfoId, Nanos, Pid, ProcessRef, Resident, SegmentChange, SegmentId};
use rusqlite::{Connection, Result};

use super::lookup::Lookup;
use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};

// Addresses of user space fit SQLite's integers.

tables! {
    /// Family `shm`: where processes map segments. The end of a process ends its mappings, too.
    MappingRow in "segment_mappings" {
        at as "at_ns": Nanos = "when",
        id as "segment": SegmentId = "`segments.id`",
        pid: Pid = "process id",
        address: u64 = "where it begins in the process",
        bytes: u64 = "how long it is",
        offset: Option<u64> = "where in the segment it begins; NULL when what was mapped there is gone",
    }

    /// Family `shm`: what of segments was in memory when somebody looked.
    SegmentResidentRow in "segment_residents" {
        at as "at_ns": Nanos = "when",
        id as "segment": SegmentId = "`segments.id`",
        pid: Option<Pid> = "whose mappings it lies in; NULL for the whole segment, in all processes",
        bytes as "resident_bytes": u64 = "how much; of a file on a disk and without `pid`, what it takes there",
        share as "share_bytes": Option<u64> = "the same, each page divided by the number of processes that have it; \
            NULL with `pid`",
    }

    /// Family `shm`: what of a watched process's memory was there when somebody looked.
    /// `rss_bytes - segments_bytes + share_bytes`, summed over processes, counts each page of a segment once.
    ProcessResidentRow in "process_residents" {
        at as "at_ns": Nanos = "when",
        process: ProcessRef = "`processes.id`",
        total as "rss_bytes": u64 = "what the kernel counts as the process's",
        anonymous as "anonymous_bytes": u64 = "of that its own",
        files as "files_bytes": u64 = "of that pages of files",
        shared as "shared_bytes": u64 = "of that memory to be shared",
        segments as "segments_bytes": u64 = "of that what lies in known segments",
        share as "share_bytes": u64 = "what lies in known segments, each page divided by the number of processes that \
            have it",
    }

    /// Family `arena`: memory that a library's arena was given, where its description says where it lies.
    SlabRow in "arena_slabs" {
        at as "at_ns": Nanos = "when",
        id as "arena": ArenaId = "`arenas.id`",
        address: u64 = "in the process",
        bytes: u64 = "its size",
    }

    /// Family `nrt`: where the data of MemInfos lies.
    #[insert(OR REPLACE)]
    DataRow in "meminfo_data" {
        #[key] meminfo: MemInfoId = "`meminfos.id`",
        address: u64 = "in the process",
    }
}

/// Without an offset the mapping is gone.
pub(crate) fn mapping(
    connection: &Connection,
    at: Nanos,
    id: SegmentId,
    (pid, address, bytes, offset): (Pid, u64, u64, Option<u64>),
) -> Result<()> {
    MappingRow { at, id, pid, address, bytes, offset }.insert(connection)
}

/// In one process with its share of it, or as a whole.
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

/// From the recording's beginning on: what lies where follows from all that began and ended.
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
