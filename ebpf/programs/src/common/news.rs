//! Whether user space should come by at once: code that it may not know can be gone before it is named.

use aya_ebpf::{macros::map, maps::Array};
use pyobs_abi::control;

use super::maps::control;

/// Code objects that were in a stack lately: a part of each one's hash, in the place that another part gives. Not a hash map,
/// which a sampler may not update.
#[map]
static SEEN: Array<u32> = Array::with_max_entries(SEEN_COUNT, 0);
const SEEN_COUNT: u32 = 1 << 16;

/// The calls to user space.
#[repr(C)]
#[derive(Clone, Copy)]
struct Calls {
    last: u64,
    /// Not 0 while a call is owed that came too early.
    owed: u64,
}

#[map]
static CALLS: Array<Calls> = Array::with_max_entries(1, 0);

/// Whether this is the first stack of the process that contains the code object. Marks it as seen.
///
/// Two CPUs may both find it new, and code that shares a place with other code is new each time: that makes one copy too many.
#[inline(always)]
pub fn is_new(pid: u32, code: u64, check: u32) -> bool {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = (code ^ (u64::from(check) << 32)).wrapping_mul(SPREAD);
    let hash = (hash.rotate_left(23) ^ u64::from(pid)).wrapping_mul(SPREAD);
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

/// Whether to call user space now: a stack with code that could not be copied was taken, and the last call is long enough ago.
#[inline(always)]
pub fn is_due(has_unknown_code: bool, now: u64) -> bool {
    let Some(calls) = CALLS.get_ptr_mut(0) else { return false };
    // SAFETY: the pointer is into an element of the array, words that are each read and written as one.
    let calls = unsafe { &mut *calls };
    if has_unknown_code {
        calls.owed = 1;
    }
    if calls.owed == 0 || now.wrapping_sub(calls.last) < control(control::CALL_GAP) {
        return false;
    }
    (calls.last, calls.owed) = (now, 0);
    true
}
