//! The thread that sets watchpoints: it takes sampled registers and traps from the family's ring buffer and
//! tells the session what they were.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use aya::maps::{HashMap as BpfMap, MapData, RingBuf};
use pyobs_abi::record::{self, Header};
use pyobs_abi::redundancy::{NOT_DECODED, Registers, SpotKey, Trap, Watch, WatchKey};
use pyobs_model::{Touched, Watchpoints};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::calls::{Calls, Sampled, Wanted};
use super::code::Did;
use super::emulator::Access;
use super::messages::{Message, Order};
use super::pairs::{Seen, found, of_accesses, of_stores};
use super::place::{Place, is_in_loop};
use super::slots::Aim;
use super::source::{Part, access};
use super::state::State;
use super::threads::{Armed, Room, Waiting};
use super::token_bucket::{SETTING, Use, cpu_time};
use super::turns::{self, Timed};
use super::values::Values;
use crate::bytes::read;

/// A watchpoint is removed after this time if it has not finished.
const TIMEOUT: Duration = Duration::from_millis(200);
/// Native calls that one watchpoint observes. Stores: two calls, and a third that proves the second is over.
/// Loads: the call, one that may come between, and the next load. Stores watched for reads: one more in
/// between.
const STORE_CALLS: u32 = 3;
const LOAD_CALLS: u32 = 3;
const READ_CALLS: u32 = 4;
/// Traps of one watchpoint; after these it is removed. The place of a result is written by every statement of its function, so
/// one that has not come by then is not worth waiting for.
const TRAPS_MAX: u32 = 64;
const RESULT_TRAPS_MAX: u32 = 32;
/// How often finished watchpoints are collected while any are set.
const INSPECT_EVERY: Duration = Duration::from_millis(20);
/// The same while none is set.
const REST: Duration = Duration::from_millis(100);
/// A random number of calls below this is skipped first. Otherwise an access after a long pause would be
/// chosen too often, and of alternating accesses one kind more than the other. Six evens out cycles of two,
/// three and six calls.
const TURNS: u64 = 6;
/// One store in this many is also watched for reads, to see whether it is ever read.
const WATCH_READS: u64 = 3;
/// One object in this many is watched. Nearly all loads of objects are equal, and no finding depends on them.
const WATCH_OBJECTS: u64 = 4;

pub struct Armer {
    pub ring: RingBuf<MapData>,
    pub watches: BpfMap<MapData, WatchKey, Watch>,
    pub program: File,
    pub calls: Calls,
    /// What a trap costs besides its program, in nanoseconds.
    pub trap_cost: u64,
    pub orders: Receiver<Order>,
    pub messages: Sender<Message>,
    pub counts: Arc<std::sync::Mutex<Watchpoints>>,
    pub stop: Arc<AtomicBool>,
}

impl Armer {
    pub fn run(mut self) {
        let mut state = State::default();
        let mut inspected = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            self.wait(state.threads.has_armed());
            let orders: Vec<Order> = self.orders.try_iter().collect();
            for order in orders {
                match order {
                    Order::Rate(hz) => state.bucket.sampled_at(hz),
                    Order::Process { pid, interpreter } => {
                        state.forget(pid);
                        self.calls.forget(pid);
                        state.places.insert(pid, Place::new(pid, *interpreter));
                    }
                    Order::Ended { pid } => {
                        state.forget(pid);
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
            if inspected.elapsed() >= INSPECT_EVERY {
                inspected = Instant::now();
                self.expire(&mut state);
            }
            if let Ok(mut counts) = self.counts.lock() {
                *counts = state.counts;
            }
        }
        self.release(&mut state, |_| true);
    }

    fn wait(&self, is_armed: bool) {
        let period = if is_armed { INSPECT_EVERY } else { REST };
        let timeout = Timespec { tv_sec: 0, tv_nsec: period.subsec_nanos().into() };
        let ring = self.ring.as_fd();
        // An error means the wait was interrupted, which is handled like a timeout.
        let _ = poll(&mut [PollFd::new(&ring, PollFlags::IN)], Some(&timeout));
    }

    fn sampled(&mut self, state: &mut State, sample: &Registers) {
        let Header { pid, tid, time, .. } = sample.header;
        let random = state.random();
        let Some(place) = state.places.get_mut(&pid) else { return };
        if is_in_loop(sample) {
            return self.time_turns(state, sample);
        }
        if !place.is_below_extension(sample) {
            if let Some(call) = self.calls.concatenated(place, sample) {
                let (touched, stores, element_of, calls) = (None, false, None, vec![call]);
                self.send(Message::Access { tid, time, touched, stores, element_of, calls });
            } else if sample.words != NOT_DECODED {
                self.time_turns(state, sample);
            }
            return;
        }
        if sample.words == NOT_DECODED {
            return self.send(Message::Access {
                tid,
                time,
                touched: None,
                stores: false,
                element_of: None,
                calls: Vec::new(),
            });
        }
        if let Some(ran) = cpu_time(pid) {
            let earned = state.bucket.earn(pid, ran, time);
            state.shares.sampled(spot(sample), earned);
        }
        state.counts.samples += 1;
        let access = access(sample).ok().filter(|access| place.is_shared_data(access.address, sample));
        let Sampled { mut calls, wanted, element_of } = self.calls.sampled(place, sample);
        let frames = state.functions.frames(place, sample);
        let turn = state.turns.wanted(place, &frames);
        let Sampled { calls: of_program, wanted: outer, .. } = self.calls.waiting(place, sample, &frames, random);
        calls.extend(of_program);
        // Chooses at random between the results of calls, the turns of a loop, and memory.
        let quarter = random >> 16 & 3;
        let wanted = wanted.filter(|wanted| quarter < state.shares.quarters_for_result(wanted.key));
        let wanted = outer.filter(|_| wanted.is_none() || random >> 24 & 3 > 0).or(wanted);
        let turn = turn.filter(|_| wanted.is_none() || random >> 32 & 1 > 0);
        if let Some(turn) = turn {
            self.arm_turns(state, sample, &turn);
        } else if let Some(wanted) = &wanted {
            self.arm_result(state, sample, wanted);
        }
        let Some(access) = access else {
            state.counts.undecoded += 1;
            return self.send(Message::Access { tid, time, touched: None, stores: false, element_of, calls });
        };
        let touched = if wanted.is_none() {
            self.watch(state, sample, &access)
        } else {
            state.places.get_mut(&pid).and_then(|place| place.classify(access.address, sample))
        };
        self.send(Message::Access { tid, time, touched, stores: access.writes, element_of, calls });
    }

    /// Sets a watchpoint that times the loop around a sample in the interpreter, if the loop makes small calls.
    fn time_turns(&mut self, state: &mut State, sample: &Registers) {
        let Header { pid, time, .. } = sample.header;
        let Some(place) = state.places.get_mut(&pid) else { return };
        if let Some(ran) = cpu_time(pid) {
            state.bucket.earn(pid, ran, time);
        }
        let frames = state.functions.frames(place, sample);
        if let Some(turn) = state.turns.wanted(place, &frames) {
            self.arm_turns(state, sample, &turn);
        }
    }

    /// Watches memory and classifies it. Sets the watchpoint first: the sooner, the better.
    fn watch(&mut self, state: &mut State, sample: &Registers, access: &Access) -> Option<Touched> {
        let is_plenty = state.bucket.is_half_full(sample.header.pid);
        let may = state.shares.may_watch(spot(sample), is_plenty);
        let armed = if may { self.arm(state, sample, access) } else { None };
        let is_kept = state.random().is_multiple_of(WATCH_OBJECTS);
        let place = state.places.get_mut(&sample.header.pid)?;
        let (is_shared, touched) = (place.is_shared_mapping(access.address), place.classify(access.address, sample));
        if let Some(id) = armed {
            match &touched {
                Some(Touched::Metadata(_)) if !is_kept => self.release(state, |armed| armed.id == id),
                Some(touched) => {
                    if let Some(armed) = state.threads.armed(sample.header.tid, id) {
                        (armed.touched, armed.is_shared) = (Some(touched.clone()), is_shared);
                    }
                }
                // An object's header with its reference count.
                None => self.release(state, |armed| armed.id == id),
            }
        }
        touched
    }

    /// Watches the slot for a call's result until one was seen.
    fn arm_result(&mut self, state: &mut State, sample: &Registers, wanted: &Wanted) {
        let aim = Aim { address: wanted.address, length: 8, reads: false };
        let watch = Watch {
            read_address: wanted.address,
            read_length: 8,
            calls_max: 1,
            traps_max: RESULT_TRAPS_MAX,
            instruction: wanted.instruction,
            caller: wanted.caller,
            ..unset()
        };
        let armed = self.set(state, sample, aim, watch, (8, 0), Use::Result);
        if let Some(armed) = armed.and_then(|id| state.threads.armed(sample.header.tid, id)) {
            armed.result = Some(wanted.clone());
        }
    }

    /// Watches the slot for the results of a call that the program makes in a loop. Other traps of the thread would count as
    /// the program's time.
    fn arm_turns(&mut self, state: &mut State, sample: &Registers, wanted: &turns::Wanted) {
        let Header { pid, tid, .. } = sample.header;
        if state.bucket.is_spent(pid, Use::Result) || state.threads.awaits_result(tid) {
            return;
        }
        self.release(state, |armed| armed.key.tid == tid);
        let aim = Aim { address: wanted.address, length: 8, reads: false };
        let watch = Watch {
            read_address: wanted.address,
            read_length: 8,
            calls_max: turns::RESULTS,
            instruction: wanted.instruction,
            ..unset()
        };
        let armed = self.set(state, sample, aim, watch, (8, 0), Use::Result);
        if let Some(armed) = armed.and_then(|id| state.threads.armed(tid, id)) {
            armed.timed = Some(Timed::new(wanted));
            state.turns.tried(wanted.key);
        }
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
        let calls_max = match access.writes {
            false => LOAD_CALLS,
            true if aim.reads => READ_CALLS,
            true => STORE_CALLS,
        };
        let passed = (state.random() % TURNS) as u32;
        let watch = Watch { read_address, read_length, calls_max: calls_max + passed, ..unset() };
        self.set(state, sample, aim, watch, (part.length, passed), Use::Memory)
    }

    fn set(
        &mut self,
        state: &mut State,
        sample: &Registers,
        aim: Aim,
        watch: Watch,
        (bytes, passed): (u64, u32),
        of: Use,
    ) -> Option<u64> {
        let Header { pid, tid, .. } = sample.header;
        if state.threads.is_timed(tid) {
            return None;
        }
        if state.bucket.is_spent(pid, of) {
            state.counts.storms += 1;
            return None;
        }
        let random = state.random();
        let mut waiting = Waiting::default();
        match state.threads.room(tid, (aim, of), random, &self.program, &mut state.counts.taken) {
            Room::Free => {}
            Room::Replaces(id, others) => {
                waiting = others;
                self.release(state, |armed| armed.id == id);
                // It may have been closed along with what it watched.
                let room = state.threads.room(tid, (aim, of), random, &self.program, &mut state.counts.taken);
                if !matches!(room, Room::Free) {
                    return None;
                }
            }
            Room::None => return None,
        }
        let id = state.next;
        state.next += 1;
        let key = WatchKey { tid, padding: 0, address: aim.address };
        self.watches.insert(key, Watch { id, ..watch }, 0).ok()?;
        let since = Instant::now();
        let (touched, is_shared, traps) = (None, false, Vec::new());
        let (spot, counted, result, timed) = (spot(sample), 0, None, None);
        let armed = Armed {
            id,
            pid,
            key,
            aim,
            bytes,
            passed,
            since,
            touched,
            is_shared,
            traps,
            counted,
            of,
            spot,
            result,
            timed,
        };
        if !state.threads.set(armed, waiting) {
            // The thread has ended or runs another program now.
            let _ = self.watches.remove(&key);
            self.release(state, |armed| armed.key.tid == tid);
            state.threads.forget(tid);
            return None;
        }
        state.counts.armed += 1;
        state.spend(of, spot, SETTING);
        Some(id)
    }

    fn trapped(&mut self, state: &mut State, trap: &Trap) {
        let pid = trap.header.pid;
        let Some(armed) = state.threads.armed(trap.header.tid, trap.id) else { return };
        let (new, of, spot, result) = (armed.count(trap.number), armed.of, armed.spot, armed.result.clone());
        if let Some(timed) = armed.timed.as_mut().filter(|_| trap.read != 0) {
            if timed.is_empty()
                && let Some(place) = state.places.get_mut(&pid)
            {
                timed.bytes = Values::new(place, 0).bytes(trap.object, trap.class);
            }
            timed.add(trap);
        }
        if of == Use::Memory {
            let did = if armed.aim.reads { state.code.before(pid, trap.ip) } else { Did::Store };
            let value = (trap.read != 0).then_some(trap.value);
            armed.traps.push(Seen { did, call: trap.call, value, stack: trap.stack });
        }
        state.counts.traps += new;
        state.spend(of, spot, new);
        if let Some(result) = result {
            self.returned(state, result, trap);
        } else if trap.last != 0 {
            self.release(state, |armed| armed.id == trap.id);
        }
    }

    fn returned(&mut self, state: &mut State, wanted: Wanted, trap: &Trap) {
        let place = state.places.get_mut(&wanted.key.pid).filter(|_| trap.read != 0);
        if let Some(same) = place.and_then(|place| self.calls.returned(place, &wanted, trap)) {
            let Wanted { key, callee, called_by, .. } = wanted;
            state.shares.returned(key);
            let (pid, tid, watch, number) = (key.pid, trap.header.tid, trap.id, trap.stack);
            self.send(Message::Result { pid, tid, watch, number, callee, called_by, same });
        }
        self.release(state, |armed| armed.id == trap.id);
    }

    /// Removes watchpoints and sends what they saw.
    fn release(&mut self, state: &mut State, which: impl Fn(&Armed) -> bool) {
        let is_over = |armed: &Armed| self.seen(armed).is_none_or(|watch| watch.is_over());
        for mut armed in state.threads.take(which, is_over) {
            // Not every trap produces a record, so take the kernel's count.
            let seen = self.seen(&armed);
            let new = seen.map_or(0, |watch| armed.count(watch.traps));
            let is_used_up = seen.is_some_and(|watch| watch.calls >= watch.calls_max);
            state.counts.traps += new;
            state.spend(armed.of, armed.spot, new);
            let _ = self.watches.remove(&armed.key);
            // Objects may be freed and created within calls.
            let outlives = !matches!(armed.touched, Some(Touched::Metadata(_)));
            let found = found(&armed.traps, armed.passed, is_used_up, |traps| match armed.aim.reads {
                true => of_accesses(traps, outlives),
                false => of_stores(traps),
            });
            let Armed { id: watch, pid, key: WatchKey { tid, address, .. }, bytes, spot, timed, .. } = armed;
            if let Some(timed) = timed {
                if let (Some((turns, turn)), Some(number)) = (timed.turns(self.trap_cost), timed.stack()) {
                    let time = state.turns.timed(timed.key, turn).saturating_mul(turns.into());
                    let Timed { callee, bytes, .. } = timed;
                    self.send(Message::Turns { pid, tid, watch, number, callee, turns, time, bytes });
                }
                continue;
            }
            if let (Some(mut found), Some(touched)) = (found, armed.touched) {
                if matches!(touched, Touched::Array(_)) {
                    state.shares.paired(spot);
                }
                found.unread = found.unread.filter(|is_unread| !is_unread || !armed.is_shared);
                self.send(Message::Pair { pid, tid, watch, touched, address, bytes, found });
            }
        }
    }

    /// The kernel side's entry for it.
    fn seen(&self, armed: &Armed) -> Option<Watch> {
        self.watches.get(&armed.key, 0).ok().filter(|watch| watch.id == armed.id)
    }

    fn expire(&mut self, state: &mut State) {
        let late = |armed: &Armed| armed.since.elapsed() > if armed.timed.is_some() { turns::TIMEOUT } else { TIMEOUT };
        state.counts.timed_out += state.threads.count(late);
        self.release(state, late);
        state.threads.forget_idle();
        let calls = &mut self.calls;
        state.places.retain(|pid, place| {
            let is_alive = !place.is_idle() || std::path::Path::new(&format!("/proc/{pid}")).exists();
            if !is_alive {
                calls.forget(*pid);
            }
            is_alive
        });
        let State { bucket, places, shares, .. } = state;
        bucket.forget_but(|pid| places.contains_key(&pid));
        shares.forget_but(|pid| places.contains_key(&pid));
    }

    fn send(&self, what: Message) {
        // Fails only if the session has already ended.
        let _ = self.messages.send(what);
    }
}

/// A watchpoint without hits.
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
        ended: 0,
        between: 0,
        between_least: u64::MAX,
        call: 0,
        instruction: 0,
        caller: 0,
    }
}

/// The instruction of the innermost Python frame of a sample.
fn spot(sample: &Registers) -> SpotKey {
    SpotKey { pid: sample.header.pid, padding: 0, code: sample.code, detail: sample.detail }
}
