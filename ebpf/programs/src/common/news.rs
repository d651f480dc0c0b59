//! Whether user space should come by at once: code that it may not know can be gone before it is named.

use aya_ebpf::{macros::map, maps::Array};
use pyobs_abi::control;

use super::maps::control;

/// Stacks of code objects that were seen lately, by the end of their hashes. Not a hash map: a sampler may not update one.
#[map]
static SEEN: Array<u64> = Array::with_max_entries(SEEN_COUNT, 0);
const SEEN_COUNT: u32 = 8192;

/// When user space was called last.
#[map]
static CALLED: Array<u64> = Array::with_max_entries(1, 0);

/// The hash of a stack with one frame more.
#[inline(always)]
pub fn hash(stack: u64, code: u64, check: u32) -> u64 {
    (stack ^ code ^ (u64::from(check) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Whether to call user space for a stack with this hash. Two CPUs may both take what one should; then one call is lost
/// or one too many.
#[inline(always)]
pub fn is_worth_a_call(stack: u64, now: u64) -> bool {
    let (Some(called), Some(seen)) = (CALLED.get_ptr_mut(0), SEEN.get_ptr_mut(stack as u32 & (SEEN_COUNT - 1))) else {
        return false;
    };
    // SAFETY: the pointers are into elements of arrays, words that are read and written as one.
    unsafe {
        if now.wrapping_sub(*called) < control(control::CALL_GAP) || *seen == stack {
            return false;
        }
        (*called, *seen) = (now, stack);
    }
    true
}
