//! One file per group of tables: their description, and how events become rows and rows become events.
//!
//! A new probe family is a new file here, its line in [`FAMILIES`], and its events in [`insert`]. Then
//! tests/documentation.rs writes its section of docs/recording.md.

pub(crate) mod arena;
pub(crate) mod cpu;
pub(crate) mod eval;
pub(crate) mod gil;
pub(crate) mod health;
pub(crate) mod heap;
pub(crate) mod limits;
mod lookup;
pub(crate) mod machine;
pub(crate) mod meta;
pub(crate) mod nrt;
pub(crate) mod offcpu;
pub(crate) mod processes;
pub(crate) mod redundancy;
pub(crate) mod regions;
mod scan;
pub(crate) mod shm;
pub(crate) mod stacks;
pub(crate) mod tasks;
pub(crate) mod ucx;

use pyobs_model::{Event, Nanos};
use rusqlite::{CachedStatement, Connection};

pub(crate) use scan::{Damage, Range, Reading, Rows, Source, Span};

use crate::Error;
use crate::merge::Merge;
use crate::table::{Description, Table};

/// The tables of one family or more, and how their rows become events.
type Group = (&'static [Description], fn(&mut Reading<'_>, &mut Merge<'_>) -> Result<(), Error>);

/// In the order in which events of the same time are given.
const FAMILIES: &[Group] = &[
    (offcpu::TABLES, offcpu::read),
    (gil::TABLES, gil::read),
    (eval::TABLES, eval::read),
    (arena::TABLES, arena::read),
    (heap::TABLES, heap::read),
    (nrt::TABLES, nrt::read),
    (redundancy::TABLES, redundancy::read),
    (shm::TABLES, shm::read),
    (ucx::TABLES, ucx::read),
    (regions::TABLES, regions::read),
    (tasks::TABLES, tasks::read),
    (limits::TABLES, limits::read),
    (machine::TABLES, machine::read),
];

/// Every table, in the order of creation.
pub(crate) fn all() -> impl Iterator<Item = &'static Description> {
    let before = [meta::TABLES, processes::TABLES, stacks::TABLES, cpu::TABLES];
    let families = FAMILIES.iter().map(|(tables, _)| *tables);
    before.into_iter().chain(families).chain([health::TABLES]).flatten()
}

/// Merges the events that have a time. `period` is that of the samples.
pub(crate) fn read(reading: &mut Reading<'_>, period: Nanos, merge: &mut Merge<'_>) -> Result<(), Error> {
    cpu::read(reading, period, merge)?;
    processes::read_ends(reading, merge)?;
    health::read(reading, merge)?;
    FAMILIES.iter().try_for_each(|(_, read)| read(reading, merge))
}

/// Inserts an event.
pub(crate) fn insert(
    connection: &Connection,
    often: &mut Often<'_>,
    nodes: &mut stacks::Nodes,
    event: &Event,
) -> rusqlite::Result<()> {
    match event {
        Event::Frame { id, frame } => stacks::frame(connection, *id, frame),
        Event::Stack { id, frames } => stacks::stack((&mut often.node, &mut often.stack), nodes, *id, frames),
        Event::Task { id, task } => tasks::task(connection, *id, task),
        Event::StackTask { stack, task } => tasks::of_stack(connection, *stack, *task),
        Event::TaskStatus(status) => tasks::status(connection, status),
        Event::Process { id, process } => processes::process(connection, *id, process),
        Event::Placement { process, placement } => processes::placement(connection, *process, placement),
        Event::Limits(limits) => limits::insert(connection, limits),
        Event::Machine { at, used } => machine::insert(connection, *at, *used),
        Event::ProcessEnd { id, at } => processes::ended(connection, *id, *at),
        Event::Thread { process, tid, name } => processes::thread(connection, *process, *tid, name),
        Event::Sample(sample) => cpu::sample(&mut often.sample, sample),
        Event::Sleep(sleep) => offcpu::sleep(connection, sleep),
        Event::GilWait(wait) => gil::wait(connection, wait),
        Event::GilHeld { at, process, tid, held } => gil::held(connection, *at, *process, *tid, *held),
        Event::Calls(calls) => calls.insert(connection),
        Event::Arena { at, id, change } => arena::change(connection, *at, *id, change),
        Event::Heap { at, process, change } => heap::change(connection, *at, *process, change),
        Event::MemInfo { at, id, change } => nrt::change(connection, *at, *id, change),
        Event::Transfer { at, id, change } => ucx::change(connection, *at, *id, change),
        Event::Transfers(transfers) => transfers.insert(connection),
        Event::TransferThread(thread) => thread.insert(connection),
        Event::Access(access) => redundancy::access(connection, access),
        Event::Pair(pair) => redundancy::pair(connection, pair),
        Event::Call(call) => redundancy::call(connection, call),
        Event::Watchpoints { at, counts } => redundancy::watchpoints(connection, *at, counts),
        Event::Segment { at, id, change } => shm::change(connection, *at, *id, change),
        Event::Resident { at, process, resident } => regions::process(connection, *at, *process, resident),
        Event::Loss { at, reason, count } => health::loss(connection, *at, *reason, *count),
        Event::Cost { at, bpf, cpu, startup, rss_bytes } => {
            health::cost(connection, *at, [*bpf, *cpu, *startup], *rss_bytes)
        }
        Event::Shed { at, what } => health::shed(connection, *at, what),
        Event::Measure { at, family, measure, on } => health::measure(connection, *at, family, measure, *on),
    }
}

/// Prepared statements that run often: finding one by its text takes as long as running it.
pub(crate) struct Often<'c> {
    sample: CachedStatement<'c>,
    node: CachedStatement<'c>,
    stack: CachedStatement<'c>,
}

impl<'c> Often<'c> {
    pub(crate) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            sample: connection.prepare_cached(cpu::INSERT)?,
            node: connection.prepare_cached(stacks::INSERT_NODE)?,
            stack: connection.prepare_cached(stacks::INSERT)?,
        })
    }
}

/// When a wait began, and how many stacks its figures are based on. Older recordings lack both.
fn since_and_stacks(
    (from, stacks): (Option<Nanos>, Option<u64>),
    (at, total, count): (Nanos, Nanos, u64),
) -> (Nanos, u64) {
    (from.unwrap_or(at.saturating_sub(total)), stacks.unwrap_or(count))
}
