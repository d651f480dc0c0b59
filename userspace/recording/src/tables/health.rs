//! Losses, the cost of pyobs itself, and what was shed.

use std::sync::Arc;

use pyobs_model::{Event, Nanos, Reason};
use rusqlite::{Connection, Result, params};

use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};
use crate::value::{bounded, integer};

tables! {
    /// Records, samples and lookups that were lost.
    LossRow in "losses" {
        at as "at_ns": Nanos = "when it was noticed",
        reason: Reason = "name of the reason; `pyobs report` has a sentence for each",
        count: u64 = "how many since the previous row of this reason",
    }

    /// The resources that pyobs itself has used since the recording began.
    CostRow in "costs" {
        at as "at_ns": Nanos = "when",
        bpf as "bpf_ns": Nanos = "CPU time of its programs in the kernel",
        cpu as "cpu_ns": Nanos = "CPU time of its process",
        rss_bytes: u64 = "its memory",
        #[newer] startup as "startup_ns": Nanos = "the part of `cpu_ns` that is done once for each file or process: \
            unwind tables, names, the first look. It does not lower the sampling rate. Recordings of older versions \
            lack it: it counts as 0",
    }

    /// What was shed to hold `--budget`.
    ShedRow in "sheds" {
        at as "at_ns": Nanos = "when",
        what: Arc<str> = "one sentence",
    }

    /// The measures that held `--budget`, with their times. Older recordings have only `sheds`.
    MeasureRow in "shed" {
        from as "from_ns": Nanos = "when it began",
        to as "to_ns": Option<Nanos> = "when it ended; NULL if it lasted until the end",
        family: Arc<str> = "the family that it restricted",
        measure: Arc<str> = "what it did less, such as `samples 1/4`, `stacks 1/64`, `watchpoints 1/4`, `counted \
            only`, `windows` and `probes off`",
    }
}

pub(crate) fn loss(connection: &Connection, at: Nanos, reason: Reason, count: u64) -> Result<()> {
    LossRow { at, reason, count }.insert(connection)
}

pub(crate) fn cost(connection: &Connection, at: Nanos, times: [Nanos; 3], rss: u64) -> Result<()> {
    let [bpf, cpu, startup] = times;
    CostRow { at, bpf, cpu, rss_bytes: rss, startup: Some(startup) }.insert(connection)
}

/// A measure's row is written when it begins, in case the recording is cut off.
pub(crate) fn measure(
    connection: &Connection,
    at: Nanos,
    family: &Arc<str>,
    measure: &Arc<str>,
    on: bool,
) -> Result<()> {
    if on {
        let (family, measure) = (Arc::clone(family), Arc::clone(measure));
        return MeasureRow { from: at, to: None, family, measure }.insert(connection);
    }
    let sql = "UPDATE shed SET to_ns = ?1 WHERE to_ns IS NULL AND family = ?2 AND measure = ?3";
    connection.prepare_cached(sql)?.execute(params![integer(at.0), bounded(family), bounded(measure)])?;
    Ok(())
}

pub(crate) fn shed(connection: &Connection, at: Nanos, what: &Arc<str>) -> Result<()> {
    ShedRow { at, what: Arc::clone(what) }.insert(connection)
}

pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    merge.events(reading, Rows::All, |row| {
        let LossRow { at, reason, count } = row;
        // Sums of these must not overflow, whatever the file says.
        (count <= 1 << 40).then_some(Event::Loss { at, reason, count })
    })?;
    merge.events(reading, Rows::All, |row| {
        let CostRow { at, bpf, cpu, rss_bytes, startup } = row;
        Some(Event::Cost { at, bpf, cpu, startup: startup.unwrap_or_default(), rss_bytes })
    })?;
    merge.events(reading, Rows::All, |row: ShedRow| Some(Event::Shed { at: row.at, what: row.what }))?;
    merge.table(reading, Rows::All, &["from_ns"], |_, row: MeasureRow, events| {
        let MeasureRow { from, to, family, measure } = row;
        events.push(Event::measure(from, &family, &measure, true));
        events.extend(to.map(|to| Event::measure(to.max(from), &family, &measure, false)));
        Some(())
    })
}
