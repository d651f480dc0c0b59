//! One file for each group of tables: its SQL, how events become rows and how rows become events.
//!
//! A new probe family is a new file here, its `SCHEMA` in [`SCHEMA`], a call in `Writer::insert` and one in
//! `Reader::play`.

pub(crate) mod arena;
pub(crate) mod cpu;
pub(crate) mod eval;
pub(crate) mod gil;
pub(crate) mod health;
pub(crate) mod meta;
pub(crate) mod nrt;
pub(crate) mod offcpu;
pub(crate) mod processes;
pub(crate) mod redundancy;
pub(crate) mod regions;
mod scan;
pub(crate) mod shm;
pub(crate) mod stacks;
pub(crate) mod ucx;

use pyobs_model::Nanos;
use rusqlite::Row;

pub(crate) use scan::{Damage, Field, Range, Source};

/// The SQL of every table, in the order of creation.
pub(crate) const SCHEMA: &[&str] = &[
    meta::SCHEMA,
    processes::SCHEMA,
    stacks::SCHEMA,
    cpu::SCHEMA,
    offcpu::SCHEMA,
    gil::SCHEMA,
    eval::SCHEMA,
    arena::SCHEMA,
    shm::SCHEMA,
    nrt::SCHEMA,
    ucx::SCHEMA,
    redundancy::SCHEMA,
    regions::SCHEMA,
    health::SCHEMA,
];

/// Longer text is cut: 100 times what any interpreter, linker or shell produces in earnest.
pub(crate) const MAX_TEXT: usize = 1 << 20;

/// A text as a recording holds it.
pub(crate) fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

/// When a wait began, and the number of stacks that it rests on: `column` and the next one. Older recordings have neither.
fn since_and_stacks(row: &Row<'_>, column: usize, (at, total, count): (Nanos, Nanos, u64)) -> Option<(Nanos, u64)> {
    match row.number(column) {
        Some(from) => Some((Nanos(from), row.number(column + 1)?)),
        None => Some((at.saturating_sub(total), count)),
    }
}

/// SQLite's integers are signed; no time or size of this universe needs the last bit.
pub(crate) fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
