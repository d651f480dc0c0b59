//! What is known of transfers under way.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_current_pid_tgid, bpf_get_prandom_u32, bpf_get_smp_processor_id, bpf_ktime_get_ns},
    macros::map,
    maps::{HashMap, LruHashMap},
};
use pyobs_abi::{
    arena::library::Call,
    control::TELL_EVERY,
    record::{self, Loss},
    ucx::{Callback, Done, Early, Future, Key, Kind, OF_UCXX, Thread, Total, Transfer, callback, flags},
};

use crate::common::{
    maps::{control, count_loss},
    memory::atomic_add,
    ring,
};

/// Transfers whose call has not returned. The oldest give way: an end that is not seen must not stay for ever.
#[map(name = "UCX_CALLS")]
pub static CALLS: LruHashMap<Call, Transfer> = LruHashMap::with_max_entries(8192, 0);

/// Transfers that are pending, by their requests.
#[map(name = "UCX_OPEN")]
pub static OPEN: HashMap<Key, Transfer> = HashMap::with_max_entries(32_768, 0);

/// Requests that were completed before they were seen to be pending.
#[map(name = "UCX_EARLY")]
pub static EARLY: LruHashMap<Key, Early> = LruHashMap::with_max_entries(8192, 0);

/// Requests of UCXX. They stay when they are completed, until their memory is used again.
#[map(name = "UCX_REQUESTS")]
pub static REQUESTS: LruHashMap<Key, Transfer> = LruHashMap::with_max_entries(32_768, 0);

/// Python's futures that were notified and are not set yet.
#[map(name = "UCX_FUTURES")]
pub static FUTURES: LruHashMap<Key, Future> = LruHashMap::with_max_entries(16_384, 0);

#[map(name = "UCX_THREADS")]
static THREADS: LruHashMap<u64, Thread> = LruHashMap::with_max_entries(4096, 0);

#[map(name = "UCX_TOTALS")]
static TOTALS: HashMap<Kind, Total> = HashMap::with_max_entries(8192, 0);

/// Functions that are given to be called back and are known, and how many user space knows of.
#[map(name = "UCX_CALLBACKS")]
static CALLBACKS: LruHashMap<Key, u32> = LruHashMap::with_max_entries(1024, 0);

#[inline(always)]
pub fn key(address: u64) -> Key {
    Key { pid: (bpf_get_current_pid_tgid() >> 32) as u32, padding: 0, address }
}

/// A transfer of which only the number is known, and whether it is told of.
#[inline(always)]
pub fn new() -> Transfer {
    // SAFETY: these helpers have no preconditions.
    let (now, cpu, chance) = unsafe { (bpf_ktime_get_ns(), bpf_get_smp_processor_id(), bpf_get_prandom_u32()) };
    let every = control(TELL_EVERY) as u32;
    let is_told = every <= 1 || chance % every == 0;
    // A CPU's clock does not stand still, and eight bits tell CPUs apart that read it at the same time.
    let id = now << 8 | u64::from(cpu & 0xff);
    Transfer { id, flags: if is_told { flags::TOLD } else { 0 }, ..Transfer::default() }
}

/// The current thread's element, if it has one.
#[inline(always)]
pub fn known_thread() -> Option<*mut Thread> {
    THREADS.get_ptr_mut(bpf_get_current_pid_tgid())
}

/// The current thread's element.
#[inline(always)]
pub fn thread() -> Option<*mut Thread> {
    let thread = bpf_get_current_pid_tgid();
    if let Some(known) = THREADS.get_ptr_mut(thread) {
        return Some(known);
    }
    let _ = THREADS.insert(thread, Thread::default(), 0);
    THREADS.get_ptr_mut(thread)
}

/// Takes the pending transfer with this request, unless another takes it.
#[inline(always)]
pub fn took(handle: u64) -> Option<Transfer> {
    let key = key(handle);
    // SAFETY: the value is copied.
    let transfer = unsafe { OPEN.get(key) }.copied()?;
    OPEN.remove(key).is_ok().then_some(transfer)
}

/// A transfer is over.
#[inline(always)]
pub fn finish(transfer: &Transfer) {
    let is_ucxx = transfer.flags & flags::UCXX != 0;
    // SAFETY: the pointer is to an element of the map.
    count(transfer.operation, is_ucxx, transfer.bytes, |total| unsafe {
        atomic_add(&raw mut (*total).immediate, u64::from(transfer.flags & flags::IMMEDIATE != 0));
        atomic_add(&raw mut (*total).failed, u64::from(transfer.status < 0));
        atomic_add(&raw mut (*total).spent, transfer.completed.wrapping_sub(transfer.submitted));
    });
    if transfer.flags & flags::TOLD != 0 {
        // SAFETY: the pointer is to room for a record, of which everything is written.
        ring::send_filled::<Done>(|done| unsafe {
            (*done).header = ring::header(record::UCX_TRANSFER);
            (*done).transfer = *transfer;
            true
        });
    }
}

/// A transfer begins that is not followed to its end.
#[inline(always)]
pub fn sum(operation: u32, is_ucxx: bool, bytes: u64) {
    // SAFETY: the pointer is to an element of the map.
    count(operation, is_ucxx, bytes, |total| unsafe { atomic_add(&raw mut (*total).unfollowed, 1) });
}

/// Counts a transfer; `more` is for its kind's element.
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

/// UCXX has given this function to be called back with a request that it had registered.
#[inline(always)]
pub fn remember(address: u64) {
    let own = of_ucxx(address);
    if address != 0 && CALLBACKS.get_ptr(own).is_none() {
        let _ = CALLBACKS.insert(own, callback::OF_UCXX, BPF_NOEXIST.into());
    }
}

/// Where it stands besides: it may be given with others, which it completes. No function is there.
#[inline(always)]
fn of_ucxx(address: u64) -> Key {
    key(address | 1 << 63)
}

/// Whether it was seen that this function is UCXX's.
#[inline(always)]
pub fn is_of_ucxx(address: u64) -> bool {
    // SAFETY: the value is copied.
    unsafe { CALLBACKS.get(of_ucxx(address)) }.copied() == Some(callback::OF_UCXX)
}

/// A program that makes a function for each call must not call user space each time.
const ANNOUNCED_MAX: u32 = 256;

/// Lets user space know of a function that completes transfers, once for each process.
#[inline(always)]
pub fn announce(address: u64, kind: u32) {
    // How many of the process's are known stands where no function can be.
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
    // SAFETY: plain integers without padding (pyobs-abi asserts it).
    ring::send_now(unsafe { core::slice::from_raw_parts((&raw const callback).cast(), size_of::<Callback>()) });
}
