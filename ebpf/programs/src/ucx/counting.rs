//! Counts transfers when they are submitted, if there are too many to follow. Each transfer waits for this program, so
//! it looks up as few tables as possible: they are rarely in the CPU's caches, which the process fills with the data
//! that it sends.

use aya_ebpf::programs::ProbeContext;
use pyobs_abi::ucx::{Thread, activity};

use super::{
    submission::Submitted,
    table::{is_of_ucxx, known_thread, sum, thread},
};
use crate::common::maps::watched;

/// A call that submits a transfer begins. Not inlined, to keep the caller's frame small.
#[inline(never)]
pub fn submitted(context: &ProbeContext) {
    let _ = count(context);
}

#[inline(always)]
fn count(context: &ProbeContext) -> Option<()> {
    let thread = match known_thread() {
        // A known thread is that of a watched process.
        Some(known) => known,
        None => {
            watched()?;
            thread()?
        }
    };
    let call = Submitted::of(context)?;
    // SAFETY: the pointer is to an element of the map; the key is the current thread.
    let is_ucxx = unsafe {
        (*thread).counts[activity::SUBMIT] += 1;
        (*thread).counts[activity::REGISTER] += 1;
        is_ucxx_callback(thread, call.callback)
    };
    sum(call.submission.operation(), is_ucxx, call.bytes);
    Some(())
}

/// Whether the callback that a thread passes is UCXX's. Most threads pass the same one again and again.
#[inline(always)]
unsafe fn is_ucxx_callback(thread: *mut Thread, callback: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if callback != 0 && (*thread).of_ucxx == callback {
            return true;
        }
        let is_ucxx = is_of_ucxx(callback);
        if is_ucxx {
            (*thread).of_ucxx = callback;
        }
        is_ucxx
    }
}
