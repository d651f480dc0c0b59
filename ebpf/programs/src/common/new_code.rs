//! Code objects that stacks contain for the first time, and whether user space has to be woken for one: it can be freed
//! before user space reads its name.

use aya_ebpf::{macros::map, maps::Array};
use pyobs_abi::{control, hash::mix};

use super::maps::control;

/// Code objects that stacks contained lately: a part of each one's hash, at the index that another part gives. Not a
/// hash map, which a sampler may not update.
#[map]
static SEEN: Array<u32> = Array::with_max_entries(SEEN_COUNT, 0);
const SEEN_COUNT: u32 = 1 << 16;

/// The wake-ups of user space.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wakes {
    last: u64,
    /// Not 0 while a wake-up is owed that came too soon after the last.
    owed: u64,
}

#[map]
static WAKES: Array<Wakes> = Array::with_max_entries(1, 0);

/// Whether this is the first stack of the process that contains the code object. Marks it as seen.
///
/// Two CPUs may both find it new, and code objects with the same index replace each other. The cost of either is one
/// needless copy.
#[inline(always)]
pub fn mark_seen(pid: u32, code: u64, check: u32) -> bool {
    let hash = mix(mix(0, code ^ (u64::from(check) << 32)), pid.into());
    let (place, mark) = ((hash >> 16) as u32 & (SEEN_COUNT - 1), (hash >> 32) as u32 | 1);
    let Some(seen) = SEEN.get_ptr_mut(place) else { return false };
    // SAFETY: the pointer is into an element of the array, a word that is read and written as one.
    unsafe {
        if *seen == mark {
            return false;
        }
        *seen = mark;
    }
    true
}

/// Whether to wake user space now: a stack contained code that could not be copied, and the last wake-up is long enough
/// ago.
#[inline(always)]
pub fn should_wake(has_unknown_code: bool, now: u64) -> bool {
    let Some(wakes) = WAKES.get_ptr_mut(0) else { return false };
    // SAFETY: the pointer is into an element of the array, words that are each read and written as one.
    let wakes = unsafe { &mut *wakes };
    if has_unknown_code {
        wakes.owed = 1;
    }
    if wakes.owed == 0 || now.wrapping_sub(wakes.last) < control(control::WAKE_GAP) {
        return false;
    }
    (wakes.last, wakes.owed) = (now, 0);
    true
}
