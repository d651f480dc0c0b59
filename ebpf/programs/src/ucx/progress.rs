//! Counts how often threads make progress.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::uprobe, programs::ProbeContext};
use pyobs_abi::{control::PROGRESS_UNTIL, ucx::activity};

use super::table::thread;
use crate::common::{
    maps::{control, watched},
    probe,
};

/// A thread makes progress. The probe is attached for a few milliseconds at a time. Hits while it is being removed do
/// not count.
#[uprobe]
pub fn ucx_progress(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    // SAFETY: the helper has no preconditions.
    if watched().is_none() || unsafe { bpf_ktime_get_ns() } >= control(PROGRESS_UNTIL) {
        return 0;
    }
    if let Some(thread) = thread() {
        // SAFETY: the pointer is to an element of the map; the key is the current thread.
        unsafe { (*thread).counts[activity::PROGRESS] += 1 };
    }
    0
}
