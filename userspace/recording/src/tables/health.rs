//! What was lost, what pyobs cost and what it gave up.

use pyobs_model::{Event, Nanos, Reason};
use rusqlite::{Connection, params};

use super::{Damage, Field, Source, bounded, integer};
use crate::Error;

pub(crate) const SCHEMA: &str = "
CREATE TABLE losses (
    at_ns  INTEGER NOT NULL,
    reason TEXT NOT NULL,
    count  INTEGER NOT NULL
);
CREATE TABLE costs (
    at_ns     INTEGER NOT NULL,
    bpf_ns    INTEGER NOT NULL,
    cpu_ns    INTEGER NOT NULL,
    rss_bytes INTEGER NOT NULL,
    startup_ns INTEGER NOT NULL
);
CREATE TABLE sheds (
    at_ns INTEGER NOT NULL,
    what  TEXT NOT NULL
);
CREATE TABLE shed (
    from_ns INTEGER NOT NULL,
    to_ns   INTEGER,
    family  TEXT NOT NULL,
    measure TEXT NOT NULL
);";

pub(crate) fn loss(connection: &Connection, at: Nanos, reason: Reason, count: u64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO losses (at_ns, reason, count) VALUES (?1, ?2, ?3)";
    connection.prepare_cached(sql)?.execute(params![integer(at.0), reason.name(), integer(count)])?;
    Ok(())
}

pub(crate) fn cost(connection: &Connection, at: Nanos, times: [Nanos; 3], rss: u64) -> rusqlite::Result<()> {
    let sql = "INSERT INTO costs (at_ns, bpf_ns, cpu_ns, startup_ns, rss_bytes) VALUES (?1, ?2, ?3, ?4, ?5)";
    let [bpf, cpu, startup] = times.map(|time| integer(time.0));
    connection.prepare_cached(sql)?.execute(params![integer(at.0), bpf, cpu, startup, integer(rss)])?;
    Ok(())
}

/// A row is there as soon as a measure begins, for a recording that is cut off.
pub(crate) fn measure(
    connection: &Connection,
    at: Nanos,
    family: &str,
    measure: &str,
    on: bool,
) -> rusqlite::Result<()> {
    let sql = if on {
        "INSERT INTO shed (from_ns, family, measure) VALUES (?1, ?2, ?3)"
    } else {
        "UPDATE shed SET to_ns = ?1 WHERE to_ns IS NULL AND family = ?2 AND measure = ?3"
    };
    connection.prepare_cached(sql)?.execute(params![integer(at.0), bounded(family), bounded(measure)])?;
    Ok(())
}

pub(crate) fn shed(connection: &Connection, at: Nanos, what: &str) -> rusqlite::Result<()> {
    let sql = "INSERT INTO sheds (at_ns, what) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute(params![integer(at.0), bounded(what)])?;
    Ok(())
}

pub(crate) fn read(source: &Source, damage: &mut Damage, timed: &mut Vec<Event>) -> Result<(), Error> {
    source.scan("losses", &["at_ns", "reason", "count"], "", damage, |_, row| {
        // A reason of a newer pyobs: something was lost all the same.
        let reason = Reason::from_name(&row.text(2)?).unwrap_or(Reason::RecordMalformed);
        // Sums of these must not overflow, whatever the file says.
        let count = row.number(3).filter(|count| *count <= 1 << 40)?;
        timed.push(Event::Loss { at: Nanos(row.number(1)?), reason, count });
        Some(())
    })?;
    let columns: (&[&str], &[&str]) = (&["at_ns", "bpf_ns", "cpu_ns", "rss_bytes"], &["startup_ns"]);
    source.scan_newer("costs", columns, "", damage, |_, row| {
        let (at, bpf, cpu) = (Nanos(row.number(1)?), Nanos(row.number(2)?), Nanos(row.number(3)?));
        let startup = Nanos(row.number(5).unwrap_or(0));
        timed.push(Event::Cost { at, bpf, cpu, startup, rss_bytes: row.number(4)? });
        Some(())
    })?;
    source.scan("sheds", &["at_ns", "what"], "", damage, |_, row| {
        timed.push(Event::Shed { at: Nanos(row.number(1)?), what: row.text(2)? });
        Some(())
    })?;
    source.scan("shed", &["from_ns", "to_ns", "family", "measure"], "", damage, |_, row| {
        let (from, to) = (Nanos(row.number(1)?), row.number(2).map(Nanos));
        let (family, measure) = (row.text(3)?, row.text(4)?);
        timed.push(Event::measure(from, &family, &measure, true));
        timed.extend(to.map(|to| Event::measure(to.max(from), &family, &measure, false)));
        Some(())
    })
}
