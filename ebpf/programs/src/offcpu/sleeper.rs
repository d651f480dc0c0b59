//! The sums of a thread's sleeps, and the choice of the sleeps whose stack is taken.
//!
//! All of it relies on plain stores by the CPU that a thread leaves, wakes on, or is woken from.

use core::hint::black_box;

use aya_ebpf::{
    helpers::generated::{bpf_get_prandom_u32, bpf_jiffies64},
    macros::map,
    maps::{Array, PerCpuArray},
};
use pyobs_abi::{
    control,
    offcpu::{ALWAYS, SLEEPERS, SLOTS, Sleeper, Slot, Wake},
    record,
};

use crate::common::{
    maps::{AT_A_PAGE, control},
    ring::{self, Route},
};

/// The number of first sleeps of a slot whose stacks are always taken.
const CREDIT: u32 = 16;
/// Minimum time between two evictions of a thread's slots, in units of 2^20 ns. Until then, a sleep without a slot
/// shares the slot of its system call. Only to make that slot, another one is evicted earlier.
const EVICTION_GAP: u32 = 16;
/// `Slot::chance` is computed once in this many sleeps, because it takes a division.
const ADJUST_EVERY: u32 = 8;
/// After this many stacks, a slot takes a quarter as many: its shares are then known to about 12 %. With a lower
/// threshold, the number of stacks would say too little about the error, because the first stacks represent much less
/// time than the later ones.
const PLENTY: u32 = 64;
const PLENTY_SHIFT: u32 = 2;
/// Gives a slot at least eight stacks a second (two beyond `PLENTY`) if it sleeps that often. The lower bound of its
/// `chance` is this value times the duration of its last `ADJUST_EVERY` sleeps in units of 2^10 ns.
const LEAST: u64 = (8 << 32) * 1024 / (ADJUST_EVERY as u64 * 1_000_000_000);
/// The weight of a sleep in `Slot::mean` is 2^-3.
const MEAN_SHIFT: u32 = 3;

#[map]
static SLEEPS: Array<Sleeper> = Array::with_max_entries(SLEEPERS, AT_A_PAGE);

/// Stacks that the slots of a CPU asked for, in seconds of 2^30 ns.
#[repr(C)]
#[derive(Clone, Copy)]
struct Demand {
    second: u64,
    asked: u32,
    asked_before: u32,
}

#[map]
static STACKS_ASKED: PerCpuArray<Demand> = PerCpuArray::with_max_entries(1, 0);

#[inline(always)]
pub fn sleeper(tid: u32) -> Option<&'static mut Sleeper> {
    // SAFETY: the pointer is to an element of the array. Other CPUs may write it at the same time, which can spoil the
    // length of one sleep.
    SLEEPS.get_ptr_mut(tid % SLEEPERS).map(|sleeper| unsafe { &mut *sleeper })
}

/// Returns the kernel's count of jiffies, which the verifier turns into a load.
#[inline(always)]
pub fn tick() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_jiffies64() }
}

/// Gives an element to a thread.
#[inline(always)]
pub fn claim(sleeper: &mut Sleeper, pid: u32, tid: u32, is_watched: bool) {
    (sleeper.tid, sleeper.pid, sleeper.is_watched) = (tid, pid, u16::from(is_watched));
    (sleeper.since, sleeper.woken, sleeper.fresh) = (0, 0, 0);
    (sleeper.gil, sleeper.gil_size, sleeper.tries, sleeper.evicted) = (0, 0, 0, 0);
    sleeper.keys = [0; SLOTS];
    // SAFETY: the helper has no preconditions.
    sleeper.random = unsafe { bpf_get_prandom_u32() } | 1;
}

/// A sleep ended at this time.
#[inline(always)]
pub fn awake(sleeper: &mut Sleeper, now: u64) {
    let (since, fresh, number) = (sleeper.since, sleeper.fresh, sleeper.slot as usize);
    sleeper.since = 0;
    let length = now.saturating_sub(since);
    let slot = slot(sleeper, number);
    slot.count = slot.count.wrapping_add(1);
    slot.total = slot.total.wrapping_add(length);
    if length > slot.longest {
        slot.longest = length;
    }
    let length = if length > u32::MAX.into() { u32::MAX } else { length as u32 };
    if slot.count == 1 {
        slot.mean = length;
    } else {
        slot.mean = slot.mean - (slot.mean >> MEAN_SHIFT) + (length >> MEAN_SHIFT);
    }
    if slot.count.is_multiple_of(ADJUST_EVERY) {
        let shift = if slot.taken < PLENTY { 0 } else { PLENTY_SHIFT };
        let by_time = chance(slot.mean.into(), control(control::SLEEP_PERIOD) << shift);
        let present = (now >> 10) as u32;
        let least = (u64::from(present.wrapping_sub(slot.chance_set)) * LEAST) >> shift;
        slot.chance_set = present;
        let least = if least > ALWAYS.into() { ALWAYS } else { least as u32 };
        slot.chance = if by_time > least { by_time } else { least };
    }
    if fresh != 0 || slot.reported == 0 {
        report(sleeper, number, if fresh != 0 { since } else { 0 }, now);
    }
}

/// Returns `part / all` as a probability, which is never 0.
#[inline(always)]
fn chance(part: u64, all: u64) -> u32 {
    if part >= all {
        return ALWAYS;
    }
    ((part << 32) / all) as u32 | 1
}

#[inline(always)]
pub fn slot(sleeper: &mut Sleeper, number: usize) -> &mut Slot {
    &mut sleeper.slots[masked(number)]
}

/// The number of a slot, hidden from the compiler, which would drop the mask as needless; the verifier needs it.
#[inline(always)]
fn masked(number: usize) -> usize {
    black_box(number) & (SLOTS - 1)
}

/// Returns the number of the slot with this key.
#[inline(always)]
pub fn find(sleeper: &mut Sleeper, key: u32) -> Option<usize> {
    let home = key as usize % SLOTS;
    (0..SLOTS).map(|probe| home ^ probe).find(|number| sleeper.keys[masked(*number)] == key)
}

/// Makes room for a key that has no slot. If too many keys take turns, their sleeps go to the slot of their system
/// call: their sums stay exact, and their stacks are sampled together.
///
/// Not inlined, because it is rarely called and needs stack for [`report`].
#[inline(never)]
pub fn make(sleeper: &mut Sleeper, key: u32, detail: u64, now: u64) -> usize {
    let stamp = stamp(now);
    let (mut key, mut victim, mut oldest) = (key, 0, 0);
    for number in 0..SLOTS {
        let is_free = sleeper.keys[masked(number)] == 0;
        let age = if is_free { u32::MAX } else { stamp.wrapping_sub(slot(sleeper, number).used) };
        if age >= oldest {
            (victim, oldest) = (number, age);
        }
    }
    if oldest != u32::MAX {
        if stamp.wrapping_sub(sleeper.evicted) < EVICTION_GAP {
            key = self::key(detail, 0, 0);
            if let Some(number) = find(sleeper, key) {
                return number;
            }
        }
        sleeper.evicted = stamp;
        report(sleeper, victim, 0, now);
    }
    sleeper.keys[masked(victim)] = key;
    let slot = slot(sleeper, victim);
    (slot.chance, slot.detail, slot.born) = (ALWAYS, detail, now);
    (slot.total, slot.longest, slot.count, slot.mean, slot.reported) = (0, 0, 0, 0, 0);
    (slot.used, slot.chance_set, slot.taken) = (stamp, (now >> 10) as u32, 0);
    victim
}

/// Sends the sums of a slot, unless they were sent before.
///
/// Not inlined: the frames of the program, of a walk's callback and of its step must fit into 512 bytes together
/// ([`crate::calls`]), and the record takes a fifth of that.
#[inline(never)]
pub fn report(sleeper: &mut Sleeper, number: usize, since: u64, now: u64) {
    let (pid, tid, chance) = (sleeper.pid, sleeper.tid, sleeper.fresh);
    let (waker_pid, waker_tid, waker_comm) = (sleeper.waker_pid, sleeper.waker_tid, sleeper.waker_comm);
    let is_free = sleeper.keys[masked(number)] == 0;
    let slot = slot(sleeper, number);
    if is_free || slot.count == slot.reported {
        return;
    }
    slot.reported = slot.count;
    let mut header = ring::header(record::OFFCPU_WAKE);
    (header.time, header.pid, header.tid) = (now, pid, tid);
    let (born, detail, total, count, longest) = (slot.born, slot.detail, slot.total, slot.count, slot.longest);
    slot.longest = 0;
    let wake = Wake { header, since, born, detail, total, count, chance, longest, waker_pid, waker_tid, waker_comm };
    ring::send(&wake, Route::lazy());
}

/// A thread ends, or executes another program: sends what it has slept.
#[inline(always)]
pub fn thread_ends(tid: u32, now: u64) {
    let Some(sleeper) = sleeper(tid) else { return };
    if sleeper.tid != tid {
        return;
    }
    (sleeper.waker_pid, sleeper.waker_tid, sleeper.fresh) = (0, 0, 0);
    for number in 0..SLOTS {
        report(sleeper, number, 0, now);
    }
    (sleeper.tid, sleeper.since, sleeper.is_watched) = (0, 0, 0);
}

/// Decides whether to take the stack of the sleep that begins now. Returns the probability with which it was chosen, or
/// 0.
///
/// The probability depends only on the past, so the stacks that are taken represent the others without bias: each
/// stands for as many sleeps as the inverse of its probability. It grows with the length of the slot's sleeps, which
/// makes about one stack in `SLEEP_PERIOD` of sleep, whatever that consists of. Its lower bound depends on how often
/// the slot sleeps.
#[inline(always)]
pub fn draw(sleeper: &mut Sleeper, number: usize, now: u64) -> u32 {
    let (random, stamp) = (sleeper.random, stamp(now));
    // Marsaglia's xorshift (Journal of Statistical Software 8/14): bpf_get_prandom_u32 takes as long as everything else
    // here.
    let random = random ^ (random << 13);
    let random = random ^ (random >> 17);
    let random = random ^ (random << 5);
    sleeper.random = random;
    let slot = slot(sleeper, number);
    slot.used = stamp;
    let of_slot = if slot.count < CREDIT { ALWAYS } else { slot.chance };
    if random > of_slot {
        return 0;
    }
    let of_cpu = of_cpu(now);
    if of_cpu != ALWAYS {
        // SAFETY: the helper has no preconditions.
        if unsafe { bpf_get_prandom_u32() } > of_cpu {
            return 0;
        }
    }
    slot.taken = slot.taken.saturating_add(1);
    if of_cpu == ALWAYS {
        return of_slot;
    }
    ((u64::from(of_slot) * u64::from(of_cpu)) >> 32) as u32 | 1
}

/// Returns the probability with which this CPU grants a stack that a slot asks for, so that it takes about
/// `SLEEP_STACKS` a second. It is never 0, because sleeps at the end of a second would never be sampled. So the first
/// second of a burst has more stacks.
#[inline(always)]
fn of_cpu(now: u64) -> u32 {
    let Some(demand) = STACKS_ASKED.get_ptr_mut(0) else { return ALWAYS };
    // SAFETY: the value of this CPU; the tracepoint cannot be hit again within itself.
    let demand = unsafe { &mut *demand };
    let second = now >> 30;
    if demand.second != second {
        demand.asked_before = if demand.second + 1 == second { demand.asked } else { 0 };
        (demand.second, demand.asked) = (second, 0);
    }
    demand.asked += 1;
    let asked = if demand.asked > demand.asked_before { demand.asked } else { demand.asked_before };
    chance(control(control::SLEEP_STACKS), asked.into())
}

#[inline(always)]
fn stamp(now: u64) -> u32 {
    (now >> 20) as u32
}

/// Stafford's variant 13 of the finalizer of MurmurHash3, folded. Never 0.
#[inline(always)]
pub fn key(detail: u64, argument: u64, stack: u64) -> u32 {
    let mut hash = argument ^ stack.rotate_left(21) ^ detail.rotate_left(52);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 32)) as u32 | 8
}
