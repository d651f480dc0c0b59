//! The family `redundancy`: memory that native code below Python accesses, and accesses that change nothing.
//!
//! A sample's registers and code show which memory the thread is about to access ([`emulator`]). A hardware
//! watchpoint on it ([`slots`]) traps at the access, and a BPF program reads the value and takes the stack.
//! Two traps in different native calls form a pair ([`pairs`]). A separate thread does all this ([`armer`]),
//! because a watchpoint is worth more the sooner it is set. The code here joins that thread's messages with
//! the stacks, which the session names.

mod armer;
mod boundary;
mod calls;
mod code;
mod collector;
mod emulator;
mod frames;
mod instances;
mod messages;
mod pairs;
mod place;
mod programs;
mod shares;
mod slots;
mod source;
mod state;
mod texts;
mod threads;
mod token_bucket;
mod turns;
mod types;
mod values;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use aya::maps::{HashMap as BpfMap, MapData, RingBuf};
use pyobs_abi::record;
use pyobs_abi::redundancy::{Watch, WatchKey};
use pyobs_model::{
    Access, CalledBy, Compared, Event, Family, Nanos, NativeCall, Pair, ProcessRef, Reason, Sample, StackId, Tid,
    Touched, Watchpoints,
};

use self::armer::Armer;
use self::calls::{Calls, Interpreter, Observed};
use self::messages::{Message, Order};
use self::token_bucket::SETTING;
use self::turns::Callee;
use crate::blocking;
use crate::family::FamilySpec;
use crate::kernel::release;
use crate::pipeline::processes::Running;
use crate::privileges;

pub const SPEC: FamilySpec = FamilySpec {
    stacks: &[record::REDUNDANCY_STACK],
    start: collector::start,
    programs: &programs::PROGRAMS,
    maps: &programs::MAPS,
    ..FamilySpec::new(Family::Redundancy, "loads and stores that change nothing")
};

/// Above this rate per CPU, samples are counted but not decoded: decoding an access and watching it costs a
/// multiple of the sample.
pub const INSPECTED_PER_SECOND: u32 = 250;
/// How long a pair waits for its stacks to be named, and a sample for its stack.
const PATIENCE: Duration = Duration::from_secs(12);
const STACKS_MAX: usize = 50_000;
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// How long the end of a recording waits for the thread, which checks several times a second whether it has
/// to stop.
const STOP_WAIT: Duration = Duration::from_secs(1);
const STOP_STEP: Duration = Duration::from_millis(5);

/// The maps and programs of the BPF side.
pub struct Parts {
    ring: RingBuf<MapData>,
    watches: BpfMap<MapData, WatchKey, Watch>,
    program: File,
    /// What a trap costs besides its program, in nanoseconds.
    trap_cost: u64,
    calls: calls::Maps,
}

/// A sample whose access may still be reported.
#[derive(Clone, Copy)]
struct Sampled {
    process: ProcessRef,
    stack: StackId,
    /// The number of samples at the full rate that it represents.
    weight: u32,
}

pub struct Redundancy {
    orders: Sender<Order>,
    messages: Receiver<Message>,
    counts: Arc<Mutex<Watchpoints>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    start: Nanos,
    trap_cost: u64,
    rate_hz: u32,
    /// One sample in this many is taken, as last told to the thread; 0 before that.
    keep_every: u64,
    /// The share of the possible watchpoints that may be set.
    kept: f64,
    processes: HashMap<u32, ProcessRef>,
    /// By thread and time.
    samples: HashMap<(u32, Nanos), Sampled>,
    sampled: VecDeque<(Instant, (u32, Nanos))>,
    /// Stacks of traps, by watchpoint and trap number.
    stacks: HashMap<(u64, u32), Option<StackId>>,
    stacked: VecDeque<(Instant, (u64, u32))>,
    waiting: VecDeque<(Instant, Message)>,
    reported_at: Instant,
}

impl Redundancy {
    /// Sets the time on the kernel's clock at which the recording begins.
    pub fn starts_at(&mut self, start: Nanos) {
        self.start = start;
    }

    pub fn start(parts: Parts, start: Nanos, rate_hz: u32) -> io::Result<Self> {
        let (orders, ordered) = channel();
        let (sender, messages) = channel();
        let (counts, stop) = (Arc::<Mutex<Watchpoints>>::default(), Arc::<AtomicBool>::default());
        let armer = Armer {
            ring: parts.ring,
            watches: parts.watches,
            program: parts.program,
            calls: Calls::new(parts.calls),
            trap_cost: parts.trap_cost,
            orders: ordered,
            messages: sender,
            counts: Arc::clone(&counts),
            stop: Arc::clone(&stop),
        };
        let thread = thread::Builder::new().name("pyobs-watch".to_owned()).spawn(move || {
            // If this fails, the thread runs with more privileges than it needs.
            let _ = privileges::drop_but_watching(release::version());
            privileges::go_first();
            // It reads memory for each sample, and delegating a read would take longer than the read itself.
            blocking::stand_alone();
            armer.run();
        })?;
        Ok(Self {
            orders,
            messages,
            counts,
            stop,
            thread: Some(thread),
            start,
            trap_cost: parts.trap_cost,
            rate_hz,
            keep_every: 0,
            kept: 1.0,
            processes: HashMap::new(),
            samples: HashMap::new(),
            sampled: VecDeque::new(),
            stacks: HashMap::new(),
            stacked: VecDeque::new(),
            waiting: VecDeque::new(),
            reported_at: Instant::now(),
        })
    }

    /// Takes a trap's stack; `None` if it could not be stored.
    pub fn stack(&mut self, watch: u64, number: u32, stack: Option<StackId>) {
        self.stacks.insert((watch, number), stack);
        self.stacked.push_back((Instant::now(), (watch, number)));
    }

    /// Sets this share of the watchpoints that could be set.
    pub fn set_share(&mut self, share: f64) {
        if share.to_bits() != self.kept.to_bits() {
            self.kept = share;
            self.order_rate();
        }
    }

    fn order_rate(&self) {
        let hz = f64::from(self.rate_hz) / self.keep_every.max(1) as f64 * self.kept;
        // Cannot fail: the thread outlives this sender.
        let _ = self.orders.send(Order::Rate(hz));
    }

    /// Call with the samples named since the last call.
    pub fn tick<'a>(
        &mut self,
        now: Nanos,
        keep_every: u64,
        running: impl Iterator<Item = Running<'a>>,
        at_the_end: bool,
        samples: &[Sample],
        events: &mut Vec<Event>,
    ) {
        if keep_every != self.keep_every {
            self.keep_every = keep_every;
            self.order_rate();
        }
        for Running { pid, id, python } in running {
            if self.processes.insert(pid, id) != Some(id) {
                // Cannot fail: the thread outlives this sender.
                let interpreter = Box::new(Interpreter { version: python.number, layout: python.layout.clone() });
                let _ = self.orders.send(Order::Process { pid, interpreter });
            }
        }
        let time = Instant::now();
        for sample in samples {
            let key = (sample.tid.0, sample.at);
            let weight = stands_for(sample.weight, self.rate_hz);
            let sampled = Sampled { process: sample.process, stack: sample.stack, weight };
            if self.samples.insert(key, sampled).is_none() {
                self.sampled.push_back((time, key));
            }
        }
        self.waiting.extend(self.messages.try_iter().map(|message| (time, message)));
        let mut unstacked = 0;
        for _ in 0..self.waiting.len() {
            let Some((since, message)) = self.waiting.pop_front() else { break };
            if self.report(&message, now, events) {
                continue;
            }
            if since.elapsed() > PATIENCE || at_the_end {
                unstacked += 1;
            } else {
                self.waiting.push_back((since, message));
            }
        }
        if unstacked > 0 {
            events.push(Event::Loss { at: now, reason: Reason::AccessUnstacked, count: unstacked });
        }
        self.forget();
        if at_the_end || self.reported_at.elapsed() >= REPORT_EVERY {
            self.reported_at = Instant::now();
            events.push(Event::Watchpoints { at: now, counts: self.counts() });
        }
    }

    /// Returns false if a stack is still missing.
    fn report(&mut self, message: &Message, now: Nanos, events: &mut Vec<Event>) -> bool {
        let done = match message {
            Message::Access { tid, time, touched, stores, element_of, calls } => {
                self.access(Tid(*tid), *time, events, (touched, *stores, element_of, calls))
            }
            Message::Pair { pid, tid, watch, touched, address, bytes, found } => {
                let pair = |process, first, second| {
                    Event::Pair(Pair {
                        at: now,
                        process,
                        tid: Tid(*tid),
                        first,
                        second,
                        kind: found.kind,
                        touched: touched.clone(),
                        address: Some(*address),
                        bytes: *bytes,
                        equal: found.equal,
                        unread: found.unread,
                    })
                };
                self.trapped(
                    *pid,
                    *watch,
                    [found.first, found.second],
                    |process, [first, second]| pair(process, first, second),
                    events,
                )
            }
            Message::Result { pid, tid, watch, number, callee, called_by, same } => {
                let compared = Compared::Result { same: *same };
                let by = *called_by;
                let call = |process, [stack]: [StackId; 1]| called(now, process, *tid, stack, (callee, by), compared);
                self.trapped(*pid, *watch, [*number], call, events)
            }
            Message::Turns { pid, tid, watch, number, callee, turns, time, bytes } => {
                let Callee { name, is_callback } = callee;
                let compared = Compared::Turns { count: *turns, time: Nanos(*time), bytes: *bytes };
                let by = if *is_callback { CalledBy::Library } else { CalledBy::Program };
                let call = |process, [stack]: [StackId; 1]| called(now, process, *tid, stack, (name, by), compared);
                self.trapped(*pid, *watch, [*number], call, events)
            }
        };
        done.is_some()
    }

    fn access(
        &mut self,
        tid: Tid,
        time: u64,
        events: &mut Vec<Event>,
        (touched, stores, element_of, calls): (&Option<Touched>, bool, &Option<Arc<str>>, &[Observed]),
    ) -> Option<()> {
        let at = Nanos(time).saturating_sub(self.start);
        let Sampled { process, stack, weight } = self.samples.remove(&(tid.0, at))?;
        let (touched, element_of) = (touched.clone(), element_of.clone());
        events.push(Event::Access(Access { at, process, tid, stack, weight, touched, stores, element_of }));
        for Observed { callee, called_by, compared } in calls {
            events.push(called(at, process, tid.0, stack, (callee, *called_by), *compared));
        }
        Some(())
    }

    /// Emits the traps of a watchpoint once their stacks are there. Traps without a stack are dropped.
    fn trapped<const N: usize>(
        &mut self,
        pid: u32,
        watch: u64,
        traps: [u32; N],
        event: impl FnOnce(ProcessRef, [StackId; N]) -> Event,
        events: &mut Vec<Event>,
    ) -> Option<()> {
        let process = *self.processes.get(&pid)?;
        let mut stacks = [StackId(0); N];
        let mut is_whole = true;
        for (stack, trap) in stacks.iter_mut().zip(traps) {
            match *self.stacks.get(&(watch, trap))? {
                Some(named) => *stack = named,
                None => is_whole = false,
            }
        }
        self.drop_stacks(watch);
        if is_whole {
            events.push(event(process, stacks));
        }
        Some(())
    }

    fn drop_stacks(&mut self, watch: u64) {
        while let Some((_, (of, number))) = self.stacked.front()
            && *of == watch
        {
            self.stacks.remove(&(*of, *number));
            self.stacked.pop_front();
        }
    }

    /// Drops samples and traps' stacks that no message has asked for in time, and the oldest messages if too many wait.
    fn forget(&mut self) {
        while let Some((since, key)) = self.sampled.front()
            && (since.elapsed() > PATIENCE || self.sampled.len() > STACKS_MAX)
        {
            self.samples.remove(key);
            self.sampled.pop_front();
        }
        while let Some((since, key)) = self.stacked.front()
            && (since.elapsed() > PATIENCE || self.stacked.len() > STACKS_MAX)
        {
            self.stacks.remove(key);
            self.stacked.pop_front();
        }
        while self.waiting.len() > STACKS_MAX {
            self.waiting.pop_front();
        }
    }

    /// Forgets a process that has ended or runs another program now.
    pub fn ended(&mut self, pid: u32) {
        if self.processes.contains_key(&pid) {
            // Cannot fail: the thread outlives this sender.
            let _ = self.orders.send(Order::Ended { pid });
        }
    }

    fn counts(&self) -> Watchpoints {
        self.counts.lock().map(|counts| *counts).unwrap_or_default()
    }

    /// What traps have cost so far besides the run time of their programs, plus the cost of setting
    /// watchpoints.
    pub fn trap_cost(&self) -> Nanos {
        let Watchpoints { traps, armed, .. } = self.counts();
        Nanos((traps + armed * SETTING).saturating_mul(self.trap_cost))
    }

    /// Removes all watchpoints. What they saw can be emitted afterwards.
    pub fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        let since = Instant::now();
        while !thread.is_finished() {
            if since.elapsed() > STOP_WAIT {
                // A watched process blocks the thread. Its watchpoints end with our process.
                return;
            }
            thread::sleep(STOP_STEP);
        }
        // A panic in the thread has already been logged.
        let _ = thread.join();
    }
}

fn called(
    at: Nanos,
    process: ProcessRef,
    tid: u32,
    stack: StackId,
    (callee, called_by): (&Arc<str>, CalledBy),
    compared: Compared,
) -> Event {
    Event::Call(NativeCall { at, process, tid: Tid(tid), stack, callee: Arc::clone(callee), called_by, compared })
}

/// The number of samples at the full rate that a sample of this weight represents. The budget may have
/// changed since, so the sample's own weight counts, not the present rate.
fn stands_for(weight: Nanos, rate_hz: u32) -> u32 {
    (weight.as_secs_f64() * f64::from(rate_hz)).round().max(1.0) as u32
}

impl Drop for Redundancy {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_stands_for_the_ticks_that_were_left_out_beside_it() {
        let weight = |periods: f64| Nanos::from_secs_f64(periods / 99.0);
        for (periods, samples) in [(1.0, 1), (0.9, 1), (1.1, 1), (2.0, 2), (8.0, 8), (64.0, 64), (0.0, 1)] {
            assert_eq!(stands_for(weight(periods), 99), samples);
        }
    }
}
