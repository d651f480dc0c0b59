//! Stacks of those who ask for transfers, as many as are worth it.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::map, maps::PerCpuArray, programs::ProbeContext};
use pyobs_abi::{
    process::Process,
    record,
    ucx::{Transfer, flags},
};

use crate::common::probe::send_stack;

/// A stack costs as much as tens of probes do: on each CPU there are so many at once, and from then on so many a second.
const AT_ONCE: u64 = 256;
const PER_SECOND: u64 = 50;
const APART: u64 = 1_000_000_000 / PER_SECOND;

/// When the next one would be due, were they all the same time apart.
#[map(name = "UCX_STACKS_DUE")]
static DUE: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// The transfer's id if its stack is wanted, else 0.
#[inline(always)]
pub fn wants_stack(transfer: &Transfer) -> u64 {
    if transfer.flags & flags::TOLD != 0 { transfer.id } else { 0 }
}

/// Sends the stack of the current thread, which asks for the transfer with this id; nothing for 0. Not inlined, to keep
/// the caller's frame small.
#[inline(never)]
pub fn tell_stack(context: &ProbeContext, process: &Process, id: u64) {
    if id != 0 && is_due() {
        send_stack(context, process, record::UCX_ASKED, [id, 0]);
    }
}

#[inline(always)]
fn is_due() -> bool {
    let Some(due) = DUE.get_ptr_mut(0) else { return false };
    // SAFETY: the pointer is into this CPU's slot, and another program of this CPU may at most let one more or less through; the
    // helper has no preconditions.
    unsafe {
        let now = bpf_ktime_get_ns();
        let before = due.read_volatile();
        let next = if before > now { before } else { now } + APART;
        let has_room = next <= now + AT_ONCE * APART;
        if has_room {
            due.write_volatile(next);
        }
        has_room
    }
}
