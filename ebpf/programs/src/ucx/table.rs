//! The tables of transfers under way, and of what they are joined by.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_current_pid_tgid, bpf_get_prandom_u32, bpf_get_smp_processor_id, bpf_ktime_get_ns},
    macros::map,
    maps::{HashMap, LruHashMap},
};
use pyobs_abi::{
    control::REPORT_EVERY,
    probe::Call,
    record::{self, Loss},
    ucx::{Callback, Done, Early, Future, Key, Kind, OF_UCXX, Thread, Total, Transfer, callback, flags},
};

use crate::common::{
    maps::{control, count_loss},
    memory::atomic_add,
    ring::{self, Route},
};

/// Transfers whose call has not returned. An LRU map, so that a call whose end is not seen is evicted in the end.
#[map(name = "UCX_CALLS")]
pub static CALLS: LruHashMap<Call, Transfer> = LruHashMap::with_max_entries(8192, 0);

/// Pending transfers, by request.
#[map(name = "UCX_OPEN")]
pub static OPEN: HashMap<Key, Transfer> = HashMap::with_max_entries(32_768, 0);

/// Requests that were completed before they were seen to be pending.
#[map(name = "UCX_EARLY")]
pub static EARLY: LruHashMap<Key, Early> = LruHashMap::with_max_entries(8192, 0);

/// Requests of UCXX. A completed one stays until its memory is reused.
#[map(name = "UCX_REQUESTS")]
pub static REQUESTS: LruHashMap<Key, Transfer> = LruHashMap::with_max_entries(32_768, 0);

/// Python futures that were notified and are not set yet.
#[map(name = "UCX_FUTURES")]
pub static FUTURES: LruHashMap<Key, Future> = LruHashMap::with_max_entries(16_384, 0);

#[map(name = "UCX_THREADS")]
static THREADS: LruHashMap<u64, Thread> = LruHashMap::with_max_entries(4096, 0);

#[map(name = "UCX_TOTALS")]
static TOTALS: HashMap<Kind, Total> = HashMap::with_max_entries(8192, 0);

/// Known callbacks, and for each process the number that user space knows of.
#[map(name = "UCX_CALLBACKS")]
static CALLBACKS: LruHashMap<Key, u32> = LruHashMap::with_max_entries(1024, 0);

#[inline(always)]
pub fn key(address: u64) -> Key {
    Key { pid: (bpf_get_current_pid_tgid() >> 32) as u32, padding: 0, address }
}

/// A new transfer, with its id, and the choice whether it is reported singly.
#[inline(always)]
pub fn new() -> Transfer {
    // SAFETY: these helpers have no preconditions.
    let (now, cpu, chance) = unsafe { (bpf_ktime_get_ns(), bpf_get_smp_processor_id(), bpf_get_prandom_u32()) };
    let every = control(REPORT_EVERY) as u32;
    let is_reported = every <= 1 || chance % every == 0;
    // A CPU's clock never stands still, and eight bits tell apart CPUs that read the same time.
    let id = now << 8 | u64::from(cpu & 0xff);
    Transfer { id, flags: if is_reported { flags::REPORTED } else { 0 }, ..Transfer::default() }
}

/// Returns the current thread's element, if it has one.
#[inline(always)]
pub fn known_thread() -> Option<*mut Thread> {
    THREADS.get_ptr_mut(bpf_get_current_pid_tgid())
}

/// Returns the current thread's element, which is new for a new thread.
#[inline(always)]
pub fn thread() -> Option<*mut Thread> {
    let thread = bpf_get_current_pid_tgid();
    if let Some(known) = THREADS.get_ptr_mut(thread) {
        return Some(known);
    }
    let _ = THREADS.insert(thread, Thread::default(), 0);
    THREADS.get_ptr_mut(thread)
}

/// Removes and returns the pending transfer with this request, unless another thread does.
#[inline(always)]
pub fn take(handle: u64) -> Option<Transfer> {
    let key = key(handle);
    // SAFETY: the value is copied.
    let transfer = unsafe { OPEN.get(key) }.copied()?;
    OPEN.remove(key).is_ok().then_some(transfer)
}

/// A transfer is complete: adds it to the totals, and reports it if it is one of those reported singly.
#[inline(always)]
pub fn finish(transfer: &Transfer) {
    let is_ucxx = transfer.flags & flags::UCXX != 0;
    // SAFETY: the pointer is to an element of the map.
    count(transfer.operation, is_ucxx, transfer.bytes, |total| unsafe {
        atomic_add(&raw mut (*total).immediate, u64::from(transfer.flags & flags::IMMEDIATE != 0));
        atomic_add(&raw mut (*total).failed, u64::from(transfer.status < 0));
        atomic_add(&raw mut (*total).spent, transfer.completed.wrapping_sub(transfer.submitted));
    });
    if transfer.flags & flags::REPORTED != 0 {
        // SAFETY: the pointer is to room for a record, of which everything is written.
        let record = ring::in_place(|done: *mut Done| unsafe {
            (*done).header = ring::header(record::UCX_TRANSFER);
            (*done).transfer = *transfer;
            true
        });
        ring::send(record, Route::lazy());
    }
}

/// Adds a transfer to the totals that is not followed to its end.
#[inline(always)]
pub fn sum(operation: u32, is_ucxx: bool, bytes: u64) {
    // SAFETY: the pointer is to an element of the map.
    count(operation, is_ucxx, bytes, |total| unsafe { atomic_add(&raw mut (*total).unfollowed, 1) });
}

/// Counts a transfer. `more` gets the totals of its kind.
#[inline(always)]
fn count(operation: u32, is_ucxx: bool, bytes: u64, more: impl FnOnce(*mut Total)) {
    let kind = Kind {
        pid: (bpf_get_current_pid_tgid() >> 32) as u32,
        operation: operation | if is_ucxx { OF_UCXX } else { 0 },
    };
    let total = match TOTALS.get_ptr_mut(kind) {
        Some(total) => Some(total),
        None => {
            let _ = TOTALS.insert(kind, Total::default(), BPF_NOEXIST.into());
            TOTALS.get_ptr_mut(kind)
        }
    };
    match total {
        // SAFETY: the pointer is to an element of the map, which lives on until this program has ended.
        Some(total) => unsafe {
            atomic_add(&raw mut (*total).count, 1);
            atomic_add(&raw mut (*total).bytes, bytes);
            more(total);
        },
        None => count_loss(Loss::TransferTable),
    }
}

/// UCXX has passed this callback with a request that it had registered.
#[inline(always)]
pub fn remember(address: u64) {
    let own = of_ucxx(address);
    if address != 0 && CALLBACKS.get_ptr(own).is_none() {
        let _ = CALLBACKS.insert(own, callback::OF_UCXX, BPF_NOEXIST.into());
    }
}

/// The key that marks a callback as UCXX's, beside the callback's own key: other callers can pass it, too. No function
/// has such an address.
#[inline(always)]
fn of_ucxx(address: u64) -> Key {
    key(address | 1 << 63)
}

/// Whether this callback is known to be UCXX's.
#[inline(always)]
pub fn is_of_ucxx(address: u64) -> bool {
    // SAFETY: the value is copied.
    unsafe { CALLBACKS.get(of_ucxx(address)) }.copied() == Some(callback::OF_UCXX)
}

/// Bounds the callbacks of a process that are announced. A program that makes a callback for each call must not wake
/// user space each time.
const ANNOUNCED_MAX: u32 = 256;

/// Announces a completion callback to user space, once for each process.
#[inline(always)]
pub fn announce(address: u64, kind: u32) {
    // The number of callbacks of the process is at address 0, where no function is.
    let (own, all) = (key(address), key(0));
    if address == 0 || CALLBACKS.get_ptr(own).is_some() {
        return;
    }
    // SAFETY: the value is copied.
    let count = unsafe { CALLBACKS.get(all) }.copied().unwrap_or(0);
    if count >= ANNOUNCED_MAX || CALLBACKS.insert(own, kind, BPF_NOEXIST.into()).is_err() {
        return;
    }
    let _ = CALLBACKS.insert(all, count + 1, 0);
    let callback = Callback { header: ring::header(record::UCX_CALLBACK), address, kind, padding: 0 };
    ring::send(&callback, Route::urgent());
}
