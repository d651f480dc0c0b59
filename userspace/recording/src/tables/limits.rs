//! Limits of control groups.

use std::sync::Arc;

use pyobs_model::{CpuLimit, Event, Limits, MemoryLimit, Nanos};
use rusqlite::{Connection, Result};

use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};

tables! {
    /// Control groups that have a limit, with what they used of it since they were made. A group is read about every two
    /// seconds; a row is written if it differs from the group's previous one. Older recordings have no rows.
    LimitRow in "limits" {
        at as "at_ns": Nanos = "when",
        cgroup: Arc<str> = "control group, from the root of the hierarchy, as in `placements.cgroup`",
        quota as "quota_ns": Option<Nanos> = "CPU time that it may use in each period; NULL without a limit, and so are the four columns below",
        period as "period_ns": Option<Nanos> = "length of a period",
        periods: Option<u64> = "periods in which it ran",
        throttled_periods: Option<u64> = "periods in which it used its CPU time up",
        throttled as "throttled_ns": Option<Nanos> = "time for which threads waited for the next period, summed over CPUs",
        limit_bytes: Option<u64> = "memory that it may use; NULL without a limit, and so are the two columns below",
        used_bytes: Option<u64> = "memory that it uses, without pages of files that the kernel can drop at once",
        killed: Option<u64> = "processes that the kernel killed because its memory was used up",
    }
}

pub(crate) fn insert(connection: &Connection, limits: &Limits) -> Result<()> {
    let Limits { at, cgroup, cpu, memory } = limits.clone();
    let row = LimitRow {
        at,
        cgroup,
        quota: cpu.map(|cpu| cpu.quota),
        period: cpu.map(|cpu| cpu.period),
        periods: cpu.map(|cpu| cpu.periods),
        throttled_periods: cpu.map(|cpu| cpu.throttled_periods),
        throttled: cpu.map(|cpu| cpu.throttled),
        limit_bytes: memory.map(|memory| memory.limit_bytes),
        used_bytes: memory.map(|memory| memory.used_bytes),
        killed: memory.map(|memory| memory.killed),
    };
    row.insert(connection)
}

fn cpu(row: &LimitRow) -> Option<CpuLimit> {
    Some(CpuLimit {
        quota: row.quota?,
        period: row.period?,
        periods: row.periods?,
        throttled_periods: row.throttled_periods?,
        throttled: row.throttled?,
    })
}

fn memory(row: &LimitRow) -> Option<MemoryLimit> {
    Some(MemoryLimit { limit_bytes: row.limit_bytes?, used_bytes: row.used_bytes?, killed: row.killed? })
}

/// Reads from the beginning of the recording, because a time's use is the difference of two states.
pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> std::result::Result<(), Error> {
    merge.events(reading, Rows::Until, |row: LimitRow| {
        let (cpu, memory) = (cpu(&row), memory(&row));
        Some(Event::Limits(Limits { at: row.at, cgroup: row.cgroup, cpu, memory }))
    })
}
