//! Arenas of native libraries, at the functions that a description names.

use core::hint::black_box;

use aya_ebpf::{
    macros::{map, uprobe},
    maps::{Array, LruHashMap},
    programs::ProbeContext,
};
use pyobs_abi::{
    arena::library::{Arguments, Hit, READS_MAX, RESULT, SITES_MAX, Site, Value, flags, value},
    probe::Call,
    record,
};

use crate::common::{
    maps::watched,
    memory::user,
    probe::{self, arguments, call},
    ring::{self, Route},
};

#[map]
static ARENA_SITES: Array<Site> = Array::with_max_entries(SITES_MAX, 0);

/// An LRU map, so that a call whose end is not seen is evicted in the end.
#[map]
static ARENA_CALLS: LruHashMap<Call, Arguments> = LruHashMap::with_max_entries(8192, 0);

/// The beginning of a function whose end needs its arguments.
#[uprobe]
pub fn arena_library_enter(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    if watched().is_some() {
        let arguments = Arguments { words: arguments(&context) };
        // An LRU map makes room by itself.
        let _ = ARENA_CALLS.insert(call(&context), arguments, 0);
    }
    0
}

/// The beginning or the end of a function.
#[uprobe]
pub fn arena_library_hit(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    let Some(process) = watched() else { return 0 };
    let number = probe::cookie(&context) as u32;
    let Some(site) = ARENA_SITES.get(number) else { return 0 };
    let Some(words) = words(&context, site.flags & flags::ARGUMENTS != 0) else { return 0 };
    // SAFETY: the pointer is to room for a record, of which everything is written.
    let hit = ring::in_place(|hit: *mut Hit| unsafe { fill(hit, number, site, &words) });
    let is_sent = ring::send(hit, Route::lazy());
    if is_sent && site.flags & flags::STACK != 0 {
        probe::send_stack(&context, process, record::ARENA_STACK, [0; 2]);
    }
    0
}

/// # Safety
/// `hit` is to room for a record.
#[inline(always)]
unsafe fn fill(hit: *mut Hit, number: u32, site: &Site, words: &[u64; 8]) -> bool {
    let mut known = 0;
    let mut arena = 0;
    // Hidden from the compiler, which would unroll the loop.
    let count = black_box(value::COUNT);
    let mut index = 0;
    while index < count {
        if index >= value::COUNT {
            break;
        }
        let read = if site.has & (1 << index) == 0 { None } else { evaluate(&site.values[index], words) };
        known |= u32::from(read.is_some()) << index;
        let word = read.unwrap_or(0);
        if index == value::ARENA {
            arena = word;
        }
        // SAFETY: the index is below the number of values.
        unsafe { (&raw mut (*hit).values).cast::<u64>().add(index).write(word) };
        index += 1;
    }
    // SAFETY: as the caller says.
    unsafe {
        (*hit).header = ring::header(record::ARENA_HIT);
        (*hit).site = number;
        (*hit).known = known;
    }
    arena != 0 || site.flags & flags::IN_ARENA == 0
}

#[inline(always)]
fn evaluate(value: &Value, words: &[u64; 8]) -> Option<u64> {
    let mut word = match value.register {
        0 => words[0],
        1 => words[1],
        2 => words[2],
        3 => words[3],
        4 => words[4],
        5 => words[5],
        RESULT => words[6],
        _ => words[7],
    };
    let reads = value.reads as usize;
    let mut step = 0;
    while step < READS_MAX {
        if step >= reads {
            break;
        }
        let address = word.wrapping_add(value.offsets[step]);
        let bytes = if step + 1 == reads { value.bytes } else { 8 };
        word = match bytes {
            1 => u64::from(user::<u8>(address)?),
            2 => u64::from(user::<u16>(address)?),
            4 => u64::from(user::<u32>(address)?),
            _ => user::<u64>(address)?,
        };
        step += 1;
    }
    Some(word.wrapping_add(value.offsets[step]))
}

/// Returns the arguments, the result and the stack pointer.
#[inline(always)]
fn words(context: &ProbeContext, kept: bool) -> Option<[u64; 8]> {
    let (mut arguments, call) = (arguments(context), call(context));
    if kept {
        // SAFETY: the value is copied; its thread is here.
        arguments = unsafe { ARENA_CALLS.get(call) }?.words;
        let _ = ARENA_CALLS.remove(call);
    }
    let [a, b, c, d, e, f] = arguments;
    Some([a, b, c, d, e, f, probe::result(context), call.stack])
}
