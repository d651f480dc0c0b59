//! The family `heap`: which line uses a process's private memory.
//!
//! The kernel side samples page faults by growth, and reports what is mapped as a block, unmapped or moved. Each
//! sampled page represents the growth since the one before it. Memory can also be given back without a system call that
//! is worth watching (madvise, brk), so the pages are looked up in `/proc/PID/pagemap` in turns.

mod collector;
mod pages;
mod programs;

use pyobs_abi::calls::{HEAP_BEGIN, HEAP_END};
use pyobs_abi::{control, record};
use pyobs_model::Family;

use crate::family::{AtMappings, FamilySpec, MapSize};

pub const SPEC: FamilySpec = FamilySpec {
    is_on_by_default: true,
    stacks: &[record::HEAP_TOUCHED, record::HEAP_MAPPED],
    records: &[record::HEAP_FREED],
    programs: &programs::PROGRAMS,
    maps: &[MapSize::new("HEAP_GROWTH"), MapSize::new("HEAP_PAGES"), MapSize::new("HEAP_FILTERS")],
    offsets: Some(programs::offsets),
    system_calls: [&HEAP_BEGIN, &HEAP_END],
    at_mappings: AtMappings::All,
    control_bit: control::FAMILY_HEAP,
    start: collector::start,
    ..FamilySpec::new(Family::Heap, "which line uses a process's memory")
};
