//! The way out.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, BPF_RB_RING_SIZE},
    helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_ktime_get_ns},
};
use pyobs_abi::record::{COMM_LEN, Header, Loss};

use super::maps::{RECORDS, count_loss};

/// A header of the current thread.
#[inline(always)]
pub fn header(kind: u32) -> Header {
    let both = bpf_get_current_pid_tgid();
    Header {
        // SAFETY: these helpers have no preconditions.
        time: unsafe { bpf_ktime_get_ns() },
        kind,
        // SAFETY: as above.
        cpu: unsafe { bpf_get_smp_processor_id() },
        pid: (both >> 32) as u32,
        tid: both as u32,
        comm: bpf_get_current_comm().unwrap_or([0; COMM_LEN]),
    }
}

/// Sends a record that is looked at when user space next comes by, or sooner when the ring fills up: user space is
/// woken a few times a second instead of once a sample.
#[inline(always)]
pub fn send(record: &[u8]) {
    output(record, unhurried(), Loss::RingFull);
}

/// Wakes user space only when a quarter of the ring is waiting for it.
#[inline(always)]
fn unhurried() -> u64 {
    let is_filling = RECORDS.query(BPF_RB_AVAIL_DATA.into()) > RECORDS.query(BPF_RB_RING_SIZE.into()) / 4;
    if is_filling { BPF_RB_FORCE_WAKEUP.into() } else { BPF_RB_NO_WAKEUP.into() }
}

/// Sends a record that user space should look at now.
#[inline(always)]
pub fn send_now(record: &[u8]) {
    send_now_or_count(record, Loss::RingFull);
}

/// The same; counts what does not fit as `full`.
#[inline(always)]
pub fn send_now_or_count(record: &[u8], full: Loss) {
    output(record, BPF_RB_FORCE_WAKEUP.into(), full);
}

#[inline(always)]
fn output(record: &[u8], flags: u64, full: Loss) {
    if RECORDS.output::<[u8]>(record, flags).is_err() {
        count_loss(full);
    }
}

/// Sends a record that is filled in place, unless `fill` says that there is nothing to send.
#[inline(always)]
pub fn send_filled<T: 'static>(fill: impl FnOnce(*mut T) -> bool) -> bool {
    let Some(mut entry) = RECORDS.reserve::<T>(0) else {
        count_loss(Loss::RingFull);
        return false;
    };
    let filled = fill(entry.as_mut_ptr());
    if filled {
        entry.submit(unhurried());
    } else {
        entry.discard(BPF_RB_NO_WAKEUP.into());
    }
    filled
}
