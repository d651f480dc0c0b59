//! Stacks of the threads that begin transfers, as many as a token bucket for each CPU allows.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::map, maps::PerCpuArray, programs::ProbeContext};
use pyobs_abi::{
    process::Process,
    record,
    ucx::{Transfer, flags},
};

use crate::common::probe;

/// The bucket's size, and its rate. A stack costs as much as dozens of probes, so transfers beyond that have none.
const AT_ONCE: u64 = 256;
const PER_SECOND: u64 = 50;
const APART: u64 = 1_000_000_000 / PER_SECOND;

/// The bucket, as the time at which it will be full again: each stack moves that on by `APART`, and the bucket is empty
/// when it is `AT_ONCE * APART` ahead.
#[map(name = "UCX_STACKS_DUE")]
static DUE: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Returns the transfer's id if its stack is wanted, else 0.
#[inline(always)]
pub fn wants_stack(transfer: &Transfer) -> u64 {
    if transfer.flags & flags::REPORTED != 0 { transfer.id } else { 0 }
}

/// Sends the stack of the current thread, which begins the transfer with this id; nothing for 0. Not inlined, to keep
/// the caller's frame small.
#[inline(never)]
pub fn send_stack(context: &ProbeContext, process: &Process, id: u64) {
    if id != 0 && has_token() {
        probe::send_stack(context, process, record::UCX_STACK, [id, 0]);
    }
}

#[inline(always)]
fn has_token() -> bool {
    let Some(due) = DUE.get_ptr_mut(0) else { return false };
    // SAFETY: the pointer is into this CPU's slot, and another program on this CPU can at most let one more or less
    // through; the helper has no preconditions.
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
