//! Where there are too many transfers to be followed, they are counted when they are submitted. This is in the way of each of them:
//! what it looks up in tables is rarely in the processor's caches, which the program fills with what it sends.

use aya_ebpf::programs::ProbeContext;
use pyobs_abi::ucx::{Thread, deed};

use super::{
    Submitted,
    table::{is_of_ucxx, known_thread, sum, thread},
};
use crate::common::maps::watched;

/// A call begins that submits a transfer. Not inlined, to keep the caller's frame small.
#[inline(never)]
pub fn submitted(context: &ProbeContext) {
    let _ = count(context);
}

#[inline(always)]
fn count(context: &ProbeContext) -> Option<()> {
    let thread = match known_thread() {
        // It was watched when it became known.
        Some(known) => known,
        None => {
            watched()?;
            thread()?
        }
    };
    let asked = Submitted::of(context)?;
    // SAFETY: the pointer is to an element of the map; the key is the current thread.
    let is_ucxx = unsafe {
        (*thread).counts[deed::SUBMIT] += 1;
        (*thread).counts[deed::REGISTER] += 1;
        gives_ucxx(thread, asked.callback)
    };
    sum(asked.submission.operation(), is_ucxx, asked.bytes);
    Some(())
}

/// Whether the function that a thread gives to be called back is UCXX's. Most give the same again and again.
///
/// # Safety
/// `thread` must point to the current thread's element.
#[inline(always)]
unsafe fn gives_ucxx(thread: *mut Thread, callback: u64) -> bool {
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
