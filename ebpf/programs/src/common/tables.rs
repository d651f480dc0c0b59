//! The unwind tables that user space makes: the mapping and the file that hold an address, and the rule for it. See
//! `pyobs_abi::unwind`.

use aya_ebpf::{
    btf_maps::{self, ArrayOfMaps},
    macros::{btf_map, map},
    maps::Array,
};
use pyobs_abi::unwind::{
    CHUNK_ROWS, CHUNKS_MAX, FILES_MAX, File, MAPPINGS_MAX, Mapping, PAGE_BITS, PROCESS_MAPPINGS_MAX, Rule,
};

use super::{maps::AT_A_PAGE, walk::SLOTS};

#[map]
pub static FILES: Array<File> = Array::with_max_entries(FILES_MAX, 0);

#[map]
static MAPPINGS: Array<Mapping> = Array::with_max_entries(MAPPINGS_MAX, 0);

/// User space fills a chunk by a copy instead of a system call for each row.
const MMAPABLE: usize = AT_A_PAGE as usize;

/// The space of rows. User space adds chunks as it needs them.
#[btf_map]
static ROWS: ArrayOfMaps<btf_maps::Array<u64, { CHUNK_ROWS as usize }, MMAPABLE>, { CHUNKS_MAX as usize }> =
    ArrayOfMaps::new();

#[inline(always)]
fn word(number: u32) -> Option<u64> {
    ROWS.get_value(number / CHUNK_ROWS, &(number % CHUNK_ROWS)).copied()
}

/// Returns the mapping of a process that holds an address.
#[inline(always)]
pub fn mapping(start: u32, count: u32, address: u64) -> Option<&'static Mapping> {
    MAPPINGS.get(find_mapping(start, count, address) as u32)
}

/// Returns the number of the mapping, or all ones. A function of its own is verified once; inlined, its branches would
/// multiply with all that follows.
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

/// The key of a remembered rule: an instruction of a process, and a period of about nine seconds. In each new period
/// the walker looks the rule up again, so that user space sees which tables are in use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The address, and in the upper 16 bits the lower half of the number of the set of mappings.
    low: u64,
    /// The upper half of that number, and above it the time.
    high: u32,
}

const ADDRESS_BITS: u32 = 48;
/// The unit of time: 2^33 ns.
const TIME_BITS: u32 = 33;

impl Place {
    /// `None` for what is not an address of a known process.
    #[inline(always)]
    pub fn new(mapping_set: u32, address: u64, time: u64) -> Option<Self> {
        if mapping_set == 0 || address >> ADDRESS_BITS != 0 {
            return None;
        }
        let low = (u64::from(mapping_set) << ADDRESS_BITS) | address;
        Some(Self { low, high: (((time >> TIME_BITS) as u32) << 16) | (mapping_set >> 16) })
    }

    #[inline(always)]
    fn index(self) -> usize {
        (self.low ^ (self.low >> 11) ^ (self.low >> 44)) as usize & (FOUND - 1)
    }
}

/// A rule that was found: the lower half of a place, and its upper half above the rule.
#[repr(C)]
#[derive(Clone, Copy)]
struct Found {
    low: u64,
    rest: u64,
}

const FOUND: usize = 2048;

/// The rules that each walk found lately. Stacks are much like those before. A lookup of a mapping, its file and its
/// rows touches a dozen places in memory, which are not in the CPU's caches if samples are far apart. User space sets
/// the size.
#[map]
static RULES: Array<[Found; FOUND]> = Array::with_max_entries(SLOTS, AT_A_PAGE);

/// Returns the rule that the walk of this number remembers for a place.
#[inline(always)]
pub fn remembered(walk: u32, place: Place) -> Option<Rule> {
    let rules = RULES.get_ptr(walk)?;
    // SAFETY: the pointer is to the walk's own element.
    let found = unsafe { &(*rules)[place.index()] };
    (found.low == place.low && (found.rest >> 32) as u32 == place.high).then_some(Rule(found.rest as u32))
}

#[inline(always)]
pub fn remember(walk: u32, place: Place, rule: Rule) {
    let Some(rules) = RULES.get_ptr_mut(walk) else { return };
    let found = Found { low: place.low, rest: (u64::from(place.high) << 32) | u64::from(rule.0) };
    // SAFETY: as in `remembered`.
    unsafe { (*rules)[place.index()] = found };
}

/// Returns the rule for an offset in a file.
#[inline(always)]
pub fn rule(file: &File, offset: u64) -> Rule {
    if offset >= u64::from(file.pages) << PAGE_BITS {
        return Rule(0);
    }
    Rule(find_rule(file.start, file.pages, offset as u32) as u32)
}

/// Returns the rule, or 0 for none. `offset` lies in one of the pages.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn find_rule(start: u32, pages: u32, offset: u32) -> u64 {
    /// A page of 1 KiB has at most as many rows as bytes.
    const STEPS: u32 = PAGE_BITS + 1;
    let Some(range) = word(start.wrapping_add(offset >> PAGE_BITS)) else { return 0 };
    let rows = start.wrapping_add(pages);
    // The row is between `low`, which begins at or before the offset, and the last of the page.
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
