//! What is kept of a thread's sleeps: how long they were at each place, the stacks that were paid for, and which are passed over.

use core::hint::black_box;

use aya_ebpf::{
    helpers::generated::{bpf_get_prandom_u32, bpf_jiffies64},
    macros::map,
    maps::{Array, PerCpuArray},
};
use pyobs_abi::{
    control,
    offcpu::{PLACES, Place, SLEEPERS, Sleeper, Wake},
    record,
};

use crate::common::{maps::control, ring};

/// Stacks that may be owed for.
const CREDIT: u64 = 64;
/// How much more a stack costs the CPU that takes it for a place that has one already.
const REFRESH: u64 = 10;
/// As many sleeps are passed over on the average, at the most.
const PASSED_MAX: u64 = 100;
/// They count for no more than so many times the time that there was.
const MISSED_MAX: u64 = 4;

/// Plain stores by the CPU that a thread is leaving, wakes on, or is woken from.
#[map]
static SLEEPS: Array<Sleeper> = Array::with_max_entries(SLEEPERS, 0);

/// Up to when each CPU has paid for stacks.
#[map]
static PAID: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

#[inline(always)]
pub fn sleeper(tid: u32) -> Option<&'static mut Sleeper> {
    // SAFETY: the pointer is to an element of the array; others may write it at the same time, and what is torn is one
    // sleep's length.
    SLEEPS.get_ptr_mut(tid % SLEEPERS).map(|sleeper| unsafe { &mut *sleeper })
}

/// A sleep ended at this time.
#[inline(always)]
pub fn awake(sleeper: &mut Sleeper, now: u64) {
    let since = sleeper.since;
    let (slept, count) = (slept(sleeper, now), sleeper.missed.wrapping_add(1));
    (sleeper.since, sleeper.ended) = (0, now);
    let number = sleeper.place as usize;
    let place = place(sleeper, number);
    place.total = place.total.wrapping_add(slept);
    place.count = place.count.wrapping_add(count);
    let is_much = place.total >= control(control::SLEEP_PERIOD);
    if sleeper.fresh != 0 || is_much {
        tell(sleeper, number, since, now);
    }
}

/// How long the present sleep has been, and those passed over before it: each as long as it, which is right on the average where
/// sleeps are of different lengths. Not where a rare one is that long, so that there is a bound.
#[inline(always)]
pub fn slept(sleeper: &Sleeper, now: u64) -> u64 {
    let length = now.saturating_sub(sleeper.since);
    let missed = length.wrapping_mul(sleeper.missed.into());
    length + missed.min(sleeper.since.saturating_sub(sleeper.ended).wrapping_mul(MISSED_MAX))
}

#[inline(always)]
pub fn place(sleeper: &mut Sleeper, number: usize) -> &mut Place {
    // Hidden from the compiler, which would know the mask to be needless; the verifier does not.
    &mut sleeper.places[black_box(number) & (PLACES - 1)]
}

/// Where the place with this key is kept: its own element, or one that is free, or another's whose turn it is to go.
#[inline(always)]
pub fn slot(sleeper: &mut Sleeper, key: u32) -> usize {
    let home = key as usize % PLACES;
    let mut free = home;
    for probe in (0..PLACES).rev() {
        let number = home ^ probe;
        match place(sleeper, number).key {
            known if known == key => return number,
            0 => free = number,
            _ => {}
        }
    }
    free
}

/// Tells what was slept at a place since it was told of last. Not inlined: the frames of the program, of a walk's callback
/// and of its step must fit into 512 bytes together ([`crate::calls`]), and the record would take a fifth of that.
#[inline(never)]
pub fn tell(sleeper: &mut Sleeper, number: usize, since: u64, now: u64) {
    let (pid, tid) = (sleeper.pid, sleeper.tid);
    let (waker_pid, waker_tid, waker_comm) = (sleeper.waker_pid, sleeper.waker_tid, sleeper.waker_comm);
    let place = place(sleeper, number);
    if place.count == 0 {
        return;
    }
    let mut header = ring::header(record::OFFCPU_WAKE);
    (header.time, header.pid, header.tid) = (now, pid, tid);
    let (stack, total, count) = (place.stack, place.total, place.count);
    (place.total, place.count) = (0, 0);
    let wake = Wake { header, since, stack, total, count, padding: 0, waker_pid, waker_tid, waker_comm };
    // SAFETY: plain integers without padding (pyobs-abi asserts it).
    ring::send(unsafe { core::slice::from_raw_parts((&raw const wake).cast(), size_of::<Wake>()) });
}

/// A thread is at its end: what it has slept is told.
#[inline(always)]
pub fn thread_ends(tid: u32, now: u64) {
    let Some(sleeper) = sleeper(tid) else { return };
    if sleeper.tid != tid {
        return;
    }
    (sleeper.waker_pid, sleeper.waker_tid) = (0, 0);
    for number in 0..PLACES {
        tell(sleeper, number, 0, now);
    }
    (sleeper.tid, sleeper.since) = (0, 0);
}

/// Whether the sleep that begins now is one of those that are not looked at.
#[inline(always)]
pub fn passes_over(sleeper: &mut Sleeper, pid: u32, tid: u32) -> bool {
    if sleeper.left == 0 || sleeper.since != 0 || sleeper.tid != tid || sleeper.pid != pid {
        return false;
    }
    // A thread that sleeps no longer as often as it did is looked at again.
    if tick().saturating_sub(sleeper.looked_tick) >= control(control::SLEEP_GAP_MAX) {
        return false;
    }
    sleeper.left -= 1;
    sleeper.passed += 1;
    true
}

/// The sleep that begins now is looked at, and so many after it are not.
#[inline(always)]
pub fn looks_at(sleeper: &mut Sleeper, now: u64) {
    sleeper.left = to_pass_over(sleeper, now);
    (sleeper.missed, sleeper.passed, sleeper.looked) = (sleeper.passed, 0, now);
    sleeper.looked_tick = tick();
}

/// The kernel's count of its ticks, which costs nothing beside the time (50 ns here).
#[inline(always)]
fn tick() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_jiffies64() }
}

/// So many that on the average one is looked at for every `SLEEP_GAP`. By chance: else they could all be the same of those
/// that take turns.
#[inline(always)]
fn to_pass_over(sleeper: &Sleeper, now: u64) -> u32 {
    let (gap, elapsed) = (control(control::SLEEP_GAP), now.saturating_sub(sleeper.looked));
    if gap == 0 || elapsed == 0 {
        return 0;
    }
    let many = (gap.wrapping_mul(u64::from(sleeper.passed) + 1) / elapsed).min(PASSED_MAX) as u32;
    // SAFETY: the helper has no preconditions.
    let chance = unsafe { bpf_get_prandom_u32() };
    chance % (2 * many + 1)
}

/// Whether the CPU has time for another stack of a place that has one.
#[inline(always)]
pub fn refreshes(now: u64) -> bool {
    let price = control(control::SLEEP_PERIOD).wrapping_mul(REFRESH);
    // SAFETY: the value of this CPU; the tracepoint cannot be hit again within itself.
    PAID.get_ptr_mut(0).is_some_and(|paid| pays(unsafe { &mut *paid }, price, now))
}

/// Whether who has paid up to some time can pay for a stack.
#[inline(always)]
pub fn pays(until: &mut u64, price: u64, now: u64) -> bool {
    let paid = (*until).max(now) + price;
    // At the end of its credit there is a stack for each `price`, and chance decides for which sleep: else it would be the
    // one that comes after a long one.
    // SAFETY: the helper has no preconditions.
    let is_lucky = || unsafe { bpf_get_prandom_u32() } & 1 == 0;
    let owed = paid - now;
    if owed > CREDIT * price || (owed > CREDIT / 2 * price && !is_lucky()) {
        return false;
    }
    *until = paid;
    true
}

/// Stafford's variant 13 of the finalizer of MurmurHash3, folded. Never 0.
#[inline(always)]
pub fn key(call: u32, argument: u64, instruction: u64) -> u32 {
    let mut hash = argument ^ instruction.rotate_left(21) ^ (u64::from(call) << 52);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 32)) as u32 | 8
}
