//! The family `cpu`: samples.

use std::collections::HashMap;
use std::num::NonZeroU32;

use pyobs_model::{Event, Nanos, Outcome, ProcessRef, Reason, Sample, StackId, Tid};
use rusqlite::{Connection, Result, Statement};

use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};
use crate::value::{Name, integer, integers};

/// The number of an outcome in a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct OutcomeId(u64);

integers! { OutcomeId, of "outcomes": |it| integer(it.0), Self; }

tables! {
    /// How the walk of a sample's stack ended.
    OutcomeRow in "outcomes" {
        #[key] id: OutcomeId = "number; differs from file to file",
        name: Name = "`complete`, `truncated` (deeper than pyobs walks: the innermost frames are there), `no_python` \
            (a thread without Python frames), `failed`, `cut` (all Python frames are there, but not all native ones)",
        reason: Option<Reason> = "why it failed or was cut, as in `losses`",
    }

    /// Family `cpu`: samples, `rate_hz` times per second and CPU. To get CPU time, sum `weight_ns` rather than count samples:
    /// to hold the budget samples are dropped at random, and the weights of the others make up for it.
    SampleRow in "samples" {
        at as "at_ns": Nanos = "when",
        process: ProcessRef = "`processes.id`",
        tid: Tid = "thread id",
        cpu: u32 = "number of the CPU",
        stack: StackId = "`stacks.id`",
        outcome: OutcomeId = "`outcomes.id`",
        #[newer] weight as "weight_ns": Nanos = "the CPU time that the sample stands for; in recordings without this \
            column 1 / `rate_hz` seconds",
        #[newer] turn_us: Option<u32> = "how long the thread's event loop had run callbacks without looking for input, in \
            microseconds; NULL outside of asyncio's loops",
    }
}

/// The number of an outcome in the files that this pyobs writes. The files contain the names as well.
fn number(outcome: Outcome) -> OutcomeId {
    OutcomeId(match outcome {
        Outcome::Complete => 0,
        Outcome::Truncated => 1,
        Outcome::NoPython => 2,
        Outcome::Failed(reason) => 3 + 2 * reason as u64,
        Outcome::NativePartial(reason) => 4 + 2 * reason as u64,
    })
}

fn name(outcome: Outcome) -> (&'static str, Option<Reason>) {
    match outcome {
        Outcome::Complete => ("complete", None),
        Outcome::Truncated => ("truncated", None),
        Outcome::NoPython => ("no_python", None),
        Outcome::Failed(reason) => ("failed", Some(reason)),
        Outcome::NativePartial(reason) => ("cut", Some(reason)),
    }
}

pub(crate) fn prepare(connection: &Connection) -> Result<()> {
    let failed = Reason::ALL.iter().flat_map(|reason| [Outcome::Failed(*reason), Outcome::NativePartial(*reason)]);
    [Outcome::Complete, Outcome::Truncated, Outcome::NoPython].into_iter().chain(failed).try_for_each(|outcome| {
        let (name, reason) = name(outcome);
        OutcomeRow { id: number(outcome), name: name.into(), reason }.insert(connection)
    })
}

/// Inserts a sample.
pub(crate) const INSERT: &str = SampleRow::INSERT;

pub(crate) fn sample(insert: &mut Statement<'_>, sample: &Sample) -> Result<()> {
    let Sample { at, process, tid, cpu, stack, weight, turn_us, outcome } = *sample;
    let outcome = number(outcome);
    SampleRow {
        at,
        process,
        tid,
        cpu,
        stack,
        outcome,
        weight: Some(weight),
        turn_us: Some(turn_us.map(NonZeroU32::get)),
    }
    .insert_with(insert)
}

/// In recordings without weights each sample stands for `period`.
pub(crate) fn read(reading: &mut Reading<'_>, period: Nanos, merge: &mut Merge<'_>) -> Result<(), Error> {
    let mut outcomes = HashMap::new();
    reading.scan(Rows::All, |row: OutcomeRow| {
        let outcome = match &*row.name {
            "complete" => Outcome::Complete,
            "truncated" => Outcome::Truncated,
            "no_python" => Outcome::NoPython,
            "cut" => Outcome::NativePartial(row.reason?),
            // An outcome of a newer pyobs, which has a reason.
            _ => Outcome::Failed(row.reason?),
        };
        outcomes.insert(row.id, outcome);
        Some(())
    })?;
    merge.events(reading, Rows::Within, move |row: SampleRow| {
        let SampleRow { at, process, tid, cpu, stack, outcome, weight, turn_us } = row;
        let outcome = *outcomes.get(&outcome)?;
        let (weight, turn_us) = (weight.unwrap_or(period), turn_us.flatten().and_then(NonZeroU32::new));
        Some(Event::Sample(Sample { at, process, tid, cpu, stack, weight, turn_us, outcome }))
    })
}
