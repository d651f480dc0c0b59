//! The family `redundancy`: accesses of samples, pairs of accesses, and what the watchpoints came to.

use pyobs_model::{
    Access, Compared, Event, Nanos, NativeCall, Pair, PairKind, ProcessRef, Sampler, StackId, Tid, Touched, Watchpoints,
};
use rusqlite::{Connection, params};

use super::{Damage, Field, Range, Source, bounded, integer};
use crate::Error;

pub(crate) const SCHEMA: &str = "
CREATE TABLE accesses (
    at_ns   INTEGER NOT NULL,
    process INTEGER NOT NULL REFERENCES processes,
    tid     INTEGER NOT NULL,
    stack   INTEGER NOT NULL REFERENCES stacks,
    weight  INTEGER NOT NULL,
    memory  TEXT,
    detail  TEXT,
    stores  INTEGER NOT NULL,
    element_of TEXT
);
CREATE TABLE access_pairs (
    at_ns   INTEGER NOT NULL,
    process INTEGER NOT NULL REFERENCES processes,
    tid     INTEGER NOT NULL,
    first_stack  INTEGER NOT NULL REFERENCES stacks,
    second_stack INTEGER NOT NULL REFERENCES stacks,
    kind    TEXT NOT NULL,
    memory  TEXT NOT NULL,
    detail  TEXT,
    bytes   INTEGER NOT NULL,
    equal   INTEGER NOT NULL,
    unread  INTEGER,
    address INTEGER
);
CREATE TABLE native_calls (
    at_ns   INTEGER NOT NULL,
    process INTEGER NOT NULL REFERENCES processes,
    tid     INTEGER NOT NULL,
    stack   INTEGER NOT NULL REFERENCES stacks,
    callee  TEXT NOT NULL,
    varying INTEGER,
    same_result INTEGER
);
CREATE TABLE watchpoints (
    at_ns     INTEGER NOT NULL,
    sampler   TEXT NOT NULL,
    samples   INTEGER NOT NULL,
    undecoded INTEGER NOT NULL,
    armed     INTEGER NOT NULL,
    traps     INTEGER NOT NULL,
    timed_out INTEGER NOT NULL,
    taken     INTEGER NOT NULL,
    storms    INTEGER NOT NULL
);";

pub(crate) fn access(connection: &Connection, access: &Access) -> rusqlite::Result<()> {
    let sql = "INSERT INTO accesses (at_ns, process, tid, stack, weight, memory, detail, stores, element_of)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let touched = access.touched.as_ref();
    connection.prepare_cached(sql)?.execute(params![
        integer(access.at.0),
        access.process.0,
        access.tid.0,
        access.stack.0,
        access.weight,
        touched.map(Touched::name),
        touched.and_then(Touched::detail).map(|detail| bounded(detail)),
        access.stores,
        access.element_of.as_deref().map(bounded),
    ])?;
    Ok(())
}

pub(crate) fn pair(connection: &Connection, pair: &Pair) -> rusqlite::Result<()> {
    let sql = "INSERT INTO access_pairs
               (at_ns, process, tid, first_stack, second_stack, kind, memory, detail, bytes, equal, unread, address)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    connection.prepare_cached(sql)?.execute(params![
        integer(pair.at.0),
        pair.process.0,
        pair.tid.0,
        pair.first.0,
        pair.second.0,
        pair.kind.name(),
        pair.touched.name(),
        pair.touched.detail().map(|detail| bounded(detail)),
        integer(pair.bytes),
        pair.equal,
        pair.unread,
        pair.address.map(integer),
    ])?;
    Ok(())
}

pub(crate) fn call(connection: &Connection, call: &NativeCall) -> rusqlite::Result<()> {
    let sql = "INSERT INTO native_calls (at_ns, process, tid, stack, callee, varying, same_result)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let (varying, same_result) = match call.compared {
        Compared::Arguments { varying } => (Some(varying), None),
        Compared::Result { same } => (None, Some(same)),
    };
    let (at, callee) = (integer(call.at.0), bounded(&call.callee));
    let row = params![at, call.process.0, call.tid.0, call.stack.0, callee, varying, same_result];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

pub(crate) fn watchpoints(connection: &Connection, at: Nanos, counts: &Watchpoints) -> rusqlite::Result<()> {
    let sql = "INSERT INTO watchpoints (at_ns, sampler, samples, undecoded, armed, traps, timed_out, taken, storms)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let Watchpoints { sampler, samples, undecoded, armed, traps, timed_out, taken, storms } = *counts;
    let [samples, undecoded, armed, traps, timed_out, taken, storms] =
        [samples, undecoded, armed, traps, timed_out, taken, storms].map(integer);
    let row = params![integer(at.0), sampler.name(), samples, undecoded, armed, traps, timed_out, taken, storms];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

pub(crate) fn read(
    source: &Source,
    damage: &mut Damage,
    range: Range,
    mut each: impl FnMut(Event),
) -> Result<(), Error> {
    let columns = ["at_ns", "process", "tid", "stack", "weight", "memory", "detail", "stores"];
    source.scan_newer("accesses", (&columns, &["element_of"]), &range.condition(), damage, |_, row| {
        let touched = match row.maybe_text(6)? {
            Some(memory) => Some(Touched::from_name(&memory, row.maybe_text(7)?)?),
            None => None,
        };
        each(Event::Access(Access {
            at: Nanos(row.number(1)?),
            process: ProcessRef(row.small(2)?),
            tid: Tid(row.small(3)?),
            stack: StackId(row.small(4)?),
            weight: row.small(5)?,
            touched,
            stores: row.number(8)? != 0,
            element_of: row.maybe_text(9).flatten(),
        }));
        Some(())
    })?;
    let columns = [
        "at_ns",
        "process",
        "tid",
        "first_stack",
        "second_stack",
        "kind",
        "memory",
        "detail",
        "bytes",
        "equal",
        "unread",
    ];
    source.scan_newer("access_pairs", (&columns, &["address"]), &range.condition(), damage, |_, row| {
        each(Event::Pair(Pair {
            at: Nanos(row.number(1)?),
            process: ProcessRef(row.small(2)?),
            tid: Tid(row.small(3)?),
            first: StackId(row.small(4)?),
            second: StackId(row.small(5)?),
            kind: PairKind::from_name(&row.text(6)?)?,
            touched: Touched::from_name(&row.text(7)?, row.maybe_text(8)?)?,
            address: row.maybe_number(12).flatten(),
            bytes: row.number(9)?,
            equal: row.number(10)? != 0,
            unread: row.maybe_number(11)?.map(|unread| unread != 0),
        }));
        Some(())
    })?;
    let columns = ["at_ns", "process", "tid", "stack", "callee", "varying", "same_result"];
    source.scan("native_calls", &columns, &range.condition(), damage, |_, row| {
        let compared = match (row.maybe_number(6)?, row.maybe_number(7)?) {
            (Some(varying), None) => Compared::Arguments { varying: u16::try_from(varying).ok()? },
            (None, Some(same)) => Compared::Result { same: same != 0 },
            _ => return None,
        };
        each(Event::Call(NativeCall {
            at: Nanos(row.number(1)?),
            process: ProcessRef(row.small(2)?),
            tid: Tid(row.small(3)?),
            stack: StackId(row.small(4)?),
            callee: row.text(5)?,
            compared,
        }));
        Some(())
    })?;
    let columns = ["at_ns", "sampler", "samples", "undecoded", "armed", "traps", "timed_out", "taken", "storms"];
    source.scan("watchpoints", &columns, &range.condition(), damage, |_, row| {
        let counts = Watchpoints {
            sampler: Sampler::from_name(&row.text(2)?)?,
            samples: row.number(3)?,
            undecoded: row.number(4)?,
            armed: row.number(5)?,
            traps: row.number(6)?,
            timed_out: row.number(7)?,
            taken: row.number(8)?,
            storms: row.number(9)?,
        };
        each(Event::Watchpoints { at: Nanos(row.number(1)?), counts });
        Some(())
    })
}
