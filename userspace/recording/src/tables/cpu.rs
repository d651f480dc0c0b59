//! The family `cpu`: samples.

use std::collections::HashMap;

use pyobs_model::{Nanos, Outcome, ProcessRef, Reason, Sample, StackId, Tid};
use rusqlite::{Connection, Statement, params};

use super::{Damage, Field, Range, Source, integer};
use crate::Error;

pub(crate) const SCHEMA: &str = "
CREATE TABLE outcomes (
    id     INTEGER PRIMARY KEY,
    name   TEXT NOT NULL,
    reason TEXT
);
CREATE TABLE samples (
    at_ns   INTEGER NOT NULL,
    process INTEGER NOT NULL REFERENCES processes,
    tid     INTEGER NOT NULL,
    cpu     INTEGER NOT NULL,
    stack   INTEGER NOT NULL REFERENCES stacks,
    outcome INTEGER NOT NULL REFERENCES outcomes,
    weight_ns INTEGER NOT NULL
);";

/// The number of an outcome in the files that this pyobs writes; they carry the names along.
fn number(outcome: Outcome) -> u32 {
    match outcome {
        Outcome::Complete => 0,
        Outcome::Truncated => 1,
        Outcome::NoPython => 2,
        Outcome::Failed(reason) => 3 + 2 * reason as u32,
        Outcome::Cut(reason) => 4 + 2 * reason as u32,
    }
}

fn name(outcome: Outcome) -> (&'static str, Option<&'static str>) {
    match outcome {
        Outcome::Complete => ("complete", None),
        Outcome::Truncated => ("truncated", None),
        Outcome::NoPython => ("no_python", None),
        Outcome::Failed(reason) => ("failed", Some(reason.name())),
        Outcome::Cut(reason) => ("cut", Some(reason.name())),
    }
}

pub(crate) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    let mut insert = connection.prepare("INSERT INTO outcomes (id, name, reason) VALUES (?1, ?2, ?3)")?;
    let failed = Reason::ALL.iter().flat_map(|reason| [Outcome::Failed(*reason), Outcome::Cut(*reason)]);
    for outcome in [Outcome::Complete, Outcome::Truncated, Outcome::NoPython].into_iter().chain(failed) {
        let (name, reason) = name(outcome);
        insert.execute(params![number(outcome), name, reason])?;
    }
    Ok(())
}

/// Inserts a sample.
pub(crate) const INSERT: &str =
    "INSERT INTO samples (at_ns, process, tid, cpu, stack, outcome, weight_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

pub(crate) fn sample(insert: &mut Statement<'_>, sample: &Sample) -> rusqlite::Result<()> {
    insert.execute(params![
        integer(sample.at.0),
        sample.process.0,
        sample.tid.0,
        sample.cpu,
        sample.stack.0,
        number(sample.outcome),
        integer(sample.weight.0),
    ])?;
    Ok(())
}

/// The samples in the order in which they were written. In recordings before there were weights each stands for `period`.
pub(crate) fn read(
    source: &Source,
    damage: &mut Damage,
    range: Range,
    period: Nanos,
    mut each: impl FnMut(Sample),
) -> Result<(), Error> {
    let mut outcomes = HashMap::new();
    source.scan("outcomes", &["name", "reason"], "", damage, |id, row| {
        let outcome = match &*row.text(1)? {
            "complete" => Outcome::Complete,
            "truncated" => Outcome::Truncated,
            "no_python" => Outcome::NoPython,
            "cut" => Outcome::Cut(Reason::from_name(&row.text(2)?).unwrap_or(Reason::RecordMalformed)),
            // A reason of a newer pyobs: the sample failed all the same.
            _ => Outcome::Failed(Reason::from_name(&row.text(2)?).unwrap_or(Reason::RecordMalformed)),
        };
        outcomes.insert(id, outcome);
        Some(())
    })?;
    let columns = ["at_ns", "process", "tid", "cpu", "stack", "outcome"];
    source.scan_newer("samples", (&columns, &["weight_ns"]), &range.condition(), damage, |_, row| {
        each(Sample {
            at: Nanos(row.number(1)?),
            process: ProcessRef(row.small(2)?),
            tid: Tid(row.small(3)?),
            cpu: row.small(4)?,
            stack: StackId(row.small(5)?),
            weight: if row.get_ref(7).is_ok() { Nanos(row.number(7)?) } else { period },
            outcome: *outcomes.get(&row.number(6)?)?,
        });
        Some(())
    })
}
