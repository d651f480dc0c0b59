//! The unwind tables that user space makes: which file an address lies in, and the rule for it.

use aya_ebpf::{
    btf_maps::{self, ArrayOfMaps},
    macros::{btf_map, map},
    maps::{Array, PerCpuArray},
};
use pyobs_abi::unwind::{
    CHUNK_ROWS, CHUNKS_MAX, FILES_MAX, File, MAPPINGS_MAX, Mapping, PAGE_BITS, PROCESS_MAPPINGS_MAX, Rule,
};

use super::walk::SLOTS;

#[map]
pub static FILES: Array<File> = Array::with_max_entries(FILES_MAX, 0);

#[map]
static MAPPINGS: Array<Mapping> = Array::with_max_entries(MAPPINGS_MAX, 0);

/// BPF_F_MMAPABLE: user space fills a chunk by a copy instead of a call for each row.
const MMAPABLE: usize = 1 << 10;

/// The space of rows. User space adds chunks as it needs them.
#[btf_map]
static ROWS: ArrayOfMaps<btf_maps::Array<u64, { CHUNK_ROWS as usize }, MMAPABLE>, { CHUNKS_MAX as usize }> =
    ArrayOfMaps::new();

#[inline(always)]
fn word(number: u32) -> Option<u64> {
    ROWS.get_value(number / CHUNK_ROWS, &(number % CHUNK_ROWS)).copied()
}

/// The mapping of a process that holds an address.
#[inline(always)]
pub fn mapping(start: u32, count: u32, address: u64) -> Option<&'static Mapping> {
    MAPPINGS.get(find_mapping(start, count, address) as u32)
}

/// The number of the mapping, or all ones. A function of its own is verified once; in line its branches would multiply
/// with all that follows.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn find_mapping(start: u32, count: u32, address: u64) -> u64 {
    const STEPS: u32 = PROCESS_MAPPINGS_MAX.ilog2() + 1;
    let (mut low, mut high) = (0, count);
    for _ in 0..STEPS {
        if low >= high {
            break;
        }
        let middle = low.wrapping_add(high) >> 1;
        let number = start.wrapping_add(middle);
        let Some(mapping) = MAPPINGS.get(number) else { break };
        if address < mapping.start {
            high = middle;
        } else if address >= mapping.end {
            low = middle.wrapping_add(1);
        } else {
            return number.into();
        }
    }
    u64::MAX
}

/// A rule that was found.
#[repr(C)]
#[derive(Clone, Copy)]
struct Found {
    /// The table's serial number and the offset.
    key: u64,
    rule: u64,
}

const FOUND: usize = 2048;

/// Of each CPU, for each context that walks: stacks are much like those before.
#[map]
static RULES: PerCpuArray<[Found; FOUND]> = PerCpuArray::with_max_entries(SLOTS, 0);

/// The rule for an offset in a file, for a walk in this slot.
#[inline(always)]
pub fn rule(slot: u32, file: &File, offset: u64) -> Rule {
    if offset >= u64::from(file.pages) << PAGE_BITS {
        return Rule(0);
    }
    let key = (u64::from(file.serial) << 32) | offset;
    let index = (offset ^ (offset >> 11) ^ u64::from(file.serial) << 4) as usize & (FOUND - 1);
    let Some(rules) = RULES.get_ptr_mut(slot) else { return Rule(0) };
    // SAFETY: the pointer is to this CPU's value, which only the walk in this slot uses.
    let found = unsafe { &mut (*rules)[index] };
    if found.key != key {
        *found = Found { key, rule: find_rule(file.start, file.pages, offset as u32) };
    }
    Rule(found.rule as u32)
}

/// The rule, or 0, which is none. `offset` lies in one of the pages.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn find_rule(start: u32, pages: u32, offset: u32) -> u64 {
    /// A page of 1 KiB has at most as many rows as bytes.
    const STEPS: u32 = PAGE_BITS + 1;
    let Some(range) = word(start.wrapping_add(offset >> PAGE_BITS)) else { return 0 };
    let rows = start.wrapping_add(pages);
    // Between `low`, which begins at or before the offset, and the last of the page.
    let (mut low, mut high) = (range as u32, (range >> 32) as u32);
    for _ in 0..STEPS {
        if low >= high {
            break;
        }
        let middle = low.wrapping_add(high).wrapping_add(1) >> 1;
        let Some(row) = word(rows.wrapping_add(middle)) else { return 0 };
        if (row >> 32) as u32 <= offset {
            low = middle;
        } else {
            high = middle.wrapping_sub(1);
        }
    }
    word(rows.wrapping_add(low)).map_or(0, |row| u64::from(row as u32))
}
