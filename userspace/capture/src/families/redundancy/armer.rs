//! The thread that sets watchpoints: it takes the registers of samples and the traps out of the family's ring, and tells
//! the session what they were.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use aya::maps::{HashMap as BpfMap, MapData, RingBuf};
use pyobs_abi::record::{self, Header};
use pyobs_abi::redundancy::{Registers, SpotKey, Trap, Watch, WatchKey};
use pyobs_model::Touched;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::calls::{Calls, Wanted};
use super::code::{Code, Did};
use super::emulator::Access;
use super::pairs::{Seen, of_accesses, of_stores};
use super::place::Place;
use super::slots::{Aim, SLOTS, Slot};
use super::source::{Part, Source};
use super::told::{Counts, Order, Told};
use crate::record::read;

/// A watchpoint is taken off after this time without an end.
const TIMEOUT: Duration = Duration::from_millis(200);
/// Native calls that one watchpoint sees: those of two stores, and what says that the second is over; those of a load or
/// store, of what may come between, and of the next.
const STORE_CALLS: u32 = 3;
const READ_CALLS: u32 = 4;
/// Traps of one watchpoint.
const TRAPS_MAX: u32 = 64;
/// How often it looks whether something is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// While nothing is set.
const REST: Duration = Duration::from_millis(100);
/// Threads that have watchpoints at the most, and how long one keeps them without a sample.
const THREADS_MAX: usize = 128;
const IDLE: Duration = Duration::from_secs(2);
/// Traps in a second, for each sample in a second, before no more watchpoints are set for a while.
const TRAPS_PER_SAMPLE: u64 = 10;
const STORM_PAUSE: Duration = Duration::from_millis(250);
/// Of stores every so many-th is watched for reads as well, to see whether it is ever read.
const WATCH_READS: u64 = 3;

struct Armed {
    id: u64,
    pid: u32,
    tid: u32,
    key: WatchKey,
    aim: Aim,
    bytes: u64,
    since: Instant,
    touched: Option<Touched>,
    traps: Vec<Seen>,
    /// It is where the result of this instruction goes.
    result: Option<SpotKey>,
}

#[derive(Default)]
struct Thread {
    slots: Vec<(Slot, Option<Armed>, u64)>,
    /// How many it can have: fewer where others have taken some.
    room: usize,
    used: Option<Instant>,
}

pub struct Armer {
    pub ring: RingBuf<MapData>,
    pub watches: BpfMap<MapData, WatchKey, Watch>,
    pub program: File,
    pub source: Box<dyn Source + Send>,
    pub calls: Calls,
    pub orders: Receiver<Order>,
    pub told: Sender<Told>,
    pub counts: Arc<std::sync::Mutex<Counts>>,
    pub stop: Arc<AtomicBool>,
    pub rate_hz: u32,
}

struct State {
    places: HashMap<u32, Place>,
    threads: HashMap<u32, Thread>,
    code: Code,
    counts: Counts,
    next: u64,
    random: u64,
    window: (Instant, u64),
    paused: Option<Instant>,
}

impl Armer {
    pub fn run(mut self) {
        let mut state = State {
            places: HashMap::new(),
            threads: HashMap::new(),
            code: Code::default(),
            counts: Counts::default(),
            next: 1,
            random: 0x9e37_79b9_7f4a_7c15,
            window: (Instant::now(), 0),
            paused: None,
        };
        let mut looked = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            self.wait(state.threads.values().any(|thread| thread.slots.iter().any(|slot| slot.1.is_some())));
            let orders: Vec<Order> = self.orders.try_iter().collect();
            for order in orders {
                match order {
                    Order::Process { pid, interpreter } => {
                        state.places.insert(pid, Place::new(pid, *interpreter));
                        state.code.forget(pid);
                        self.calls.forget(pid);
                    }
                    Order::Ended { pid } => {
                        state.places.remove(&pid);
                        state.code.forget(pid);
                        self.calls.forget(pid);
                        self.release(&mut state, |armed| armed.pid == pid);
                    }
                }
            }
            while let Some(bytes) = self.ring.next().map(|bytes| bytes.to_vec()) {
                let kind = read::<Header>(&bytes, 0).map_or(0, |header| header.kind);
                match kind {
                    record::REDUNDANCY_REGISTERS => {
                        if let Some(sample) = read::<Registers>(&bytes, 0) {
                            self.sampled(&mut state, &sample);
                        }
                    }
                    record::REDUNDANCY_TRAP => {
                        if let Some(trap) = read::<Trap>(&bytes, 0) {
                            self.trapped(&mut state, &trap);
                        }
                    }
                    _ => {}
                }
            }
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                self.expire(&mut state);
            }
            if let Ok(mut counts) = self.counts.lock() {
                *counts = state.counts;
            }
        }
        self.release(&mut state, |_| true);
    }

    fn wait(&self, is_armed: bool) {
        let period = if is_armed { LOOK_EVERY } else { REST };
        let timeout = Timespec { tv_sec: 0, tv_nsec: period.subsec_nanos().into() };
        let ring = self.ring.as_fd();
        // An error is an interrupted wait: it is taken for a wait that is over.
        let _ = poll(&mut [PollFd::new(&ring, PollFlags::IN)], Some(&timeout));
    }

    fn sampled(&mut self, state: &mut State, sample: &Registers) {
        let Some(place) = state.places.get_mut(&sample.header.pid) else { return };
        if !place.is_below_extension(sample) {
            return;
        }
        state.counts.samples += 1;
        let access = self.source.access(sample).ok();
        let access = access.filter(|access| place.is_shared_data(access.address, sample));
        let (again, wanted) = self.calls.sampled(place, sample);
        let (tid, time) = (sample.header.tid, sample.header.time);
        // Results of calls and memory take turns.
        let wanted = wanted.filter(|_| state.random().is_multiple_of(2));
        if let Some(wanted) = &wanted {
            self.arm_result(state, sample, wanted);
        }
        let Some(access) = access else {
            state.counts.undecoded += 1;
            return self.tell(Told::Access { tid, time, touched: None, stores: false, again });
        };
        // Set first, looked at afterwards: the sooner the better.
        let armed = if wanted.is_none() { self.arm(state, sample, &access) } else { None };
        let touched = state.places.get_mut(&sample.header.pid).and_then(|place| place.classify(access.address, sample));
        if let Some(id) = armed {
            match &touched {
                Some(touched) => state.touched(sample.header.tid, id, touched),
                // A header: counts of references.
                None => self.release(state, |armed| armed.id == id),
            }
        }
        self.tell(Told::Access { tid, time, touched, stores: access.writes, again });
    }

    /// Watches where a call's result goes, until one was seen.
    fn arm_result(&mut self, state: &mut State, sample: &Registers, wanted: &Wanted) {
        let aim = Aim { address: wanted.address, length: 8, reads: false };
        let watch = Watch {
            read_address: wanted.address,
            read_length: 8,
            calls_max: 1,
            instruction: wanted.instruction,
            ..unset()
        };
        self.set(state, sample, aim, watch, 8, Some(wanted.key));
    }

    /// Watches memory. Returns the watchpoint's number.
    fn arm(&mut self, state: &mut State, sample: &Registers, access: &Access) -> Option<u64> {
        let part = Part::of(access, state.random());
        let watches_reads = !access.writes || access.reads || state.random().is_multiple_of(WATCH_READS);
        let (aim, read_address, read_length) = if watches_reads {
            if part.length == 1 {
                return None;
            }
            let (byte, start, others) = part.around_one_byte(access.is_float);
            (Aim { address: byte, length: 1, reads: true }, start, others)
        } else {
            (Aim { address: part.start, length: part.length, reads: false }, part.start, part.length as u32)
        };
        let calls_max = if aim.reads { READ_CALLS } else { STORE_CALLS };
        self.set(state, sample, aim, Watch { read_address, read_length, calls_max, ..unset() }, part.length, None)
    }

    fn set(
        &mut self,
        state: &mut State,
        sample: &Registers,
        aim: Aim,
        watch: Watch,
        bytes: u64,
        result: Option<SpotKey>,
    ) -> Option<u64> {
        if state.is_stormy(self.rate_hz) {
            state.counts.storms += 1;
            return None;
        }
        let (pid, tid) = (sample.header.pid, sample.header.tid);
        let number = self.free_slot(state, tid, aim)?;
        let id = state.next;
        state.next += 1;
        let key = WatchKey { tid, padding: 0, address: aim.address };
        self.watches.insert(key, Watch { id, ..watch }, 0).ok()?;
        let thread = state.threads.get_mut(&tid)?;
        let (slot, armed, survived) = thread.slots.get_mut(number)?;
        if slot.turn(aim).and_then(|()| slot.on()).is_err() {
            // The thread is gone, or has become another program.
            let _ = self.watches.remove(&key);
            state.threads.remove(&tid);
            return None;
        }
        let since = Instant::now();
        *armed = Some(Armed { id, pid, tid, key, aim, bytes, since, touched: None, traps: Vec::new(), result });
        *survived = 0;
        state.counts.armed += 1;
        Some(id)
    }

    /// A slot of the thread that is off: a new one, one that is free, or by chance one that was on.
    fn free_slot(&mut self, state: &mut State, tid: u32, aim: Aim) -> Option<usize> {
        if state.threads.len() >= THREADS_MAX && !state.threads.contains_key(&tid) {
            return None;
        }
        let mut random = state.random();
        let thread = state.threads.entry(tid).or_insert_with(|| Thread { room: SLOTS, ..Thread::default() });
        thread.used = Some(Instant::now());
        let near = |armed: &Armed| armed.key.address.abs_diff(aim.address) < 8;
        if thread.slots.iter().any(|slot| slot.1.as_ref().is_some_and(near)) {
            return None;
        }
        if let Some(free) = thread.slots.iter().position(|slot| slot.1.is_none()) {
            return Some(free);
        }
        if thread.slots.len() < thread.room {
            match Slot::open(tid, aim, &self.program) {
                Ok(slot) => {
                    thread.slots.push((slot, None, 0));
                    return Some(thread.slots.len() - 1);
                }
                Err(error) => {
                    if error.raw_os_error() == Some(libc::ENOSPC) {
                        state.counts.taken += 1;
                        thread.room = thread.slots.len();
                    }
                }
            }
        }
        // All are on. Each gives way by a chance that keeps every sample equally likely to have one.
        let count = thread.slots.len();
        for index in 0..count {
            let number = (random as usize).wrapping_add(index) % count;
            let (_, armed, survived) = &mut thread.slots[number];
            *survived += 1;
            random = random.rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if random.is_multiple_of(*survived + 1) {
                let id = armed.as_ref().map(|armed| armed.id)?;
                self.release(state, |armed| armed.id == id);
                return Some(number);
            }
        }
        None
    }

    fn trapped(&mut self, state: &mut State, trap: &Trap) {
        state.counts.traps += 1;
        state.window.1 += 1;
        let pid = trap.header.pid;
        let thread = state.threads.get_mut(&trap.header.tid);
        let armed = thread.and_then(|thread| {
            thread.slots.iter_mut().filter_map(|slot| slot.1.as_mut()).find(|armed| armed.id == trap.id)
        });
        let Some(armed) = armed else { return };
        if let Some(key) = armed.result {
            return self.returned(state, key, trap);
        }
        let did = if armed.aim.reads { state.code.before(pid, trap.ip) } else { Did::Store };
        let value = (trap.read != 0).then_some(trap.value);
        armed.traps.push(Seen { did, call: trap.call, value, stack: trap.stack });
        if trap.last != 0 {
            self.release(state, |armed| armed.id == trap.id);
        }
    }

    fn returned(&mut self, state: &mut State, key: SpotKey, trap: &Trap) {
        let place = state.places.get_mut(&key.pid).filter(|_| trap.read != 0);
        if let Some((callee, same)) = place.and_then(|place| self.calls.returned(place, key, trap)) {
            let (pid, tid, watch, number) = (key.pid, trap.header.tid, trap.id, trap.stack);
            self.tell(Told::Result { pid, tid, watch, number, callee, same });
        }
        self.release(state, |armed| armed.id == trap.id);
    }

    /// Takes watchpoints off and tells what they saw.
    fn release(&mut self, state: &mut State, which: impl Fn(&Armed) -> bool) {
        let mut over = Vec::new();
        for thread in state.threads.values_mut() {
            for (slot, armed, _) in &mut thread.slots {
                if armed.as_ref().is_some_and(&which) {
                    // One whose thread is gone is off.
                    let _ = slot.off();
                    over.extend(armed.take());
                }
            }
        }
        for armed in over {
            let _ = self.watches.remove(&armed.key);
            // Objects come and go within calls.
            let outlives = !matches!(armed.touched, Some(Touched::Metadata(_)));
            let found = if armed.aim.reads { of_accesses(&armed.traps, outlives) } else { of_stores(&armed.traps) };
            let Armed { id: watch, pid, tid, bytes, .. } = armed;
            if let (Some(found), Some(touched)) = (found, armed.touched) {
                self.tell(Told::Pair { pid, tid, watch, touched, bytes, found });
            }
        }
    }

    fn expire(&mut self, state: &mut State) {
        let late = |armed: &Armed| armed.since.elapsed() > TIMEOUT;
        let all = state.threads.values().flat_map(|thread| &thread.slots);
        state.counts.timed_out += all.filter(|slot| slot.1.as_ref().is_some_and(late)).count() as u64;
        self.release(state, late);
        state.threads.retain(|_, thread| {
            thread.used.is_some_and(|at| at.elapsed() < IDLE) || thread.slots.iter().any(|slot| slot.1.is_some())
        });
        let calls = &mut self.calls;
        state.places.retain(|pid, place| {
            let lives = !place.is_idle() || std::path::Path::new(&format!("/proc/{pid}")).exists();
            if !lives {
                calls.forget(*pid);
            }
            lives
        });
    }

    fn tell(&self, what: Told) {
        // The session ends before us.
        let _ = self.told.send(what);
    }
}

/// A watchpoint that has not been hit.
fn unset() -> Watch {
    Watch {
        id: 0,
        read_address: 0,
        read_length: 0,
        traps_max: TRAPS_MAX,
        calls_max: 0,
        traps: 0,
        calls: 0,
        stack: 0,
        call: 0,
        instruction: 0,
    }
}

impl State {
    fn touched(&mut self, tid: u32, id: u64, touched: &Touched) {
        let slots = self.threads.get_mut(&tid).map(|thread| &mut thread.slots);
        let armed =
            slots.and_then(|slots| slots.iter_mut().filter_map(|slot| slot.1.as_mut()).find(|armed| armed.id == id));
        if let Some(armed) = armed {
            armed.touched = Some(touched.clone());
        }
    }

    /// xorshift: its numbers choose what is watched and need not be hard to foresee.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn is_stormy(&mut self, rate_hz: u32) -> bool {
        const WINDOW: Duration = Duration::from_millis(100);
        if self.window.0.elapsed() > WINDOW {
            self.window = (Instant::now(), 0);
        }
        let most = (u64::from(rate_hz) * TRAPS_PER_SAMPLE / 10).max(100);
        if self.window.1 > most {
            self.paused = Some(Instant::now());
            self.window = (Instant::now(), 0);
        }
        self.paused.is_some_and(|since| since.elapsed() < STORM_PAUSE)
    }
}
