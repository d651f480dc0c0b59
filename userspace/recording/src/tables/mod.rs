//! One file per group of tables: their description, and how events become rows and rows become events.
//!
//! A new probe family is a new file here, its `TABLES` in [`TABLES`], a call in `Writer::insert` and one in
//! `Reader::play`. Then tests/documentation.rs writes its section of docs/recording.md.

pub(crate) mod arena;
pub(crate) mod cpu;
pub(crate) mod eval;
pub(crate) mod gil;
pub(crate) mod health;
mod lookup;
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

pub(crate) use scan::{Damage, Range, Reading, Rows, Source, Span};

use crate::table::Description;

/// Every table, in the order of creation.
pub(crate) const TABLES: &[&[Description]] = &[
    meta::TABLES,
    processes::TABLES,
    stacks::TABLES,
    cpu::TABLES,
    offcpu::TABLES,
    gil::TABLES,
    eval::TABLES,
    arena::TABLES,
    shm::TABLES,
    nrt::TABLES,
    ucx::TABLES,
    redundancy::TABLES,
    regions::TABLES,
    health::TABLES,
];

/// When a wait began, and how many stacks its figures are based on. Older recordings lack both.
fn since_and_stacks(
    (from, stacks): (Option<Nanos>, Option<u64>),
    (at, total, count): (Nanos, Nanos, u64),
) -> (Nanos, u64) {
    (from.unwrap_or(at.saturating_sub(total)), stacks.unwrap_or(count))
}
