//! The family `offcpu`: exact sleep times of threads, split over sampled stacks. Waits for the GIL also go to
//! the family `gil`.
//!
//! The BPF programs sum up all sleeps of a thread by what its registers say ([`pyobs_abi::offcpu::Slot`]) and
//! sample stacks with known probabilities. While a slot has the stack of every sleep, each sleep becomes an
//! event. Otherwise the slot's sums wait until there are enough stacks to split them over (`split.rs`).

mod collector;
mod programs;
pub mod reason;
mod slot;
mod split;
mod thread;

use std::sync::Arc;

use foldhash::HashMap;
use pyobs_abi::control;
use pyobs_abi::offcpu::{Sleeper, Wake};
use pyobs_abi::record;
use pyobs_abi::stack::{Sample, flags};
use pyobs_model::{Event, Family, GilHolder, Nanos, Pid, ProcessRef, Reason, StackId, Tid, Waker};

pub use self::programs::throttled_offsets;
use self::slot::Out;
use self::thread::Thread;
use super::gil::Gil;
use crate::family::FamilySpec;
use crate::pipeline::decode::name;

pub const SPEC: FamilySpec = FamilySpec {
    is_on_by_default: true,
    stacks: &[record::OFFCPU_SLEEP, record::GIL_HOLDER],
    records: &[record::OFFCPU_WAKE],
    programs: &programs::PROGRAMS,
    serves: &[Family::Gil],
    start: collector::start,
    control_bit: control::FAMILY_OFFCPU,
    offsets: Some(throttled_offsets),
    ..FamilySpec::new(Family::OffCpu, "where threads sleep, and who wakes them")
};

/// Threads with state; sleeps of further threads are counted as not seen.
const THREADS_MAX: usize = 100_000;
const REPORT_EVERY: Nanos = Nanos(1_000_000_000);

/// Identifies a sampled sleep: the thread, and when it began on the kernel's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub tid: u32,
    pub since: u64,
}

impl Key {
    pub fn of(sample: &Sample) -> Self {
        Self { tid: sample.header.tid, since: sample.header.time }
    }
}

pub struct OffCpu {
    start: Nanos,
    /// False if only waits for the GIL are reported.
    sleeps: bool,
    threads: HashMap<u32, Thread>,
    reported: Nanos,
}

impl OffCpu {
    /// Sets the time on the kernel's clock at which the recording begins.
    pub fn starts_at(&mut self, start: Nanos) {
        self.start = start;
    }

    pub fn new(start: Nanos, sleeps: bool) -> Self {
        Self { start, sleeps, threads: HashMap::default(), reported: Nanos(0) }
    }

    /// The state of the thread with this tid, fresh if the tid now belongs to another process.
    fn thread(
        &mut self,
        tid: u32,
        process: ProcessRef,
        at: Nanos,
        gil: &mut Gil,
        events: &mut Vec<Event>,
    ) -> Option<&mut Thread> {
        if let Some(other) = self.threads.get_mut(&tid).filter(|thread| thread.process != process) {
            let mut out = out(self.start, self.sleeps, tid, other.process, gil, events);
            other.report(at, None, true, None, &mut out);
            self.threads.remove(&tid);
        }
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&tid) {
            events.push(Event::Loss { at, reason: Reason::SleepUnseen, count: 1 });
            return None;
        }
        Some(self.threads.entry(tid).or_insert_with(|| Thread::new(process, at)))
    }

    /// Records that a thread went to sleep; its stack was taken and is being named.
    pub fn asleep(&mut self, sample: &Sample, process: ProcessRef, gil: &mut Gil, events: &mut Vec<Event>) {
        let (key, start) = (Key::of(sample), self.start);
        let at = Nanos(key.since).saturating_sub(start);
        let [detail, born] = sample.detail;
        let holds_gil = sample.flags & flags::HOLDS_GIL != 0;
        if let Some(thread) = self.thread(key.tid, process, at, gil, events) {
            thread.asleep(born, detail, key.since, holds_gil, start);
        }
    }

    /// Records that the stack of the GIL's holder, for which a sleeper waits, is being named.
    pub fn held(&mut self, key: Key) {
        if let Some(thread) = self.threads.get_mut(&key.tid) {
            thread.held(key.since);
        }
    }

    pub fn named(&mut self, key: Key, stack: Option<StackId>, gil: &mut Gil, events: &mut Vec<Event>) {
        let Some(thread) = self.threads.get_mut(&key.tid) else { return };
        thread.named(key.since, stack);
        let process = thread.process;
        thread.report_each(&mut out(self.start, self.sleeps, key.tid, process, gil, events));
    }

    pub fn holder_named(
        &mut self,
        key: Key,
        holder: u32,
        stack: Option<StackId>,
        gil: &mut Gil,
        events: &mut Vec<Event>,
    ) {
        let Some(thread) = self.threads.get_mut(&key.tid) else { return };
        thread.holder_named(key.since, stack.map(|stack| GilHolder { tid: Tid(holder), stack }));
        let process = thread.process;
        thread.report_each(&mut out(self.start, self.sleeps, key.tid, process, gil, events));
    }

    /// Handles the sums of one of a thread's slots and the end of its sleep. `process` is `None` while the
    /// process is not known.
    pub fn woken(
        &mut self,
        wake: &Wake,
        process: Option<ProcessRef>,
        next: Option<GilHolder>,
        gil: &mut Gil,
        events: &mut Vec<Event>,
    ) {
        let (tid, start, sleeps) = (wake.header.tid, self.start, self.sleeps);
        let at = Nanos(wake.header.time).saturating_sub(start);
        let Some(process) = process.or_else(|| Some(self.threads.get(&tid)?.process)) else {
            return events.push(Event::Loss { at, reason: Reason::SleepUnseen, count: 1 });
        };
        let born = Nanos(wake.born).saturating_sub(start);
        let Some(thread) = self.thread(tid, process, born, gil, events) else { return };
        thread.woken(wake, waker(wake), next, start);
        thread.report_each(&mut out(start, sleeps, tid, process, gil, events));
    }

    /// Call once a second and at the end: emits what is left. `observe` looks up a thread in the kernel's
    /// table, and `no_stack` is a stack without frames.
    pub fn report_open(
        &mut self,
        now: Nanos,
        at_the_end: bool,
        observe: impl Fn(u32) -> Option<Sleeper>,
        no_stack: Option<StackId>,
        gil: &mut Gil,
        events: &mut Vec<Event>,
    ) {
        if !at_the_end && now.saturating_sub(self.reported) < REPORT_EVERY {
            return;
        }
        self.reported = now;
        let (start, sleeps) = (self.start, self.sleeps);
        self.threads.retain(|&tid, thread| {
            let sleeper = observe(tid).filter(|sleeper| sleeper.tid == tid && sleeper.is_watched != 0);
            let mut out = out(start, sleeps, tid, thread.process, gil, events);
            !thread.report(now, sleeper.as_ref(), at_the_end, no_stack, &mut out)
        });
    }
}

fn out<'a>(
    start: Nanos,
    sleeps: bool,
    tid: u32,
    process: ProcessRef,
    gil: &'a mut Gil,
    events: &'a mut Vec<Event>,
) -> Out<'a> {
    Out { start, process, tid: Tid(tid), sleeps, gil, events }
}

fn waker(wake: &Wake) -> Option<Waker> {
    let name = || Arc::from(name(&wake.waker_comm));
    (wake.waker_tid != 0).then(|| Waker { pid: Pid(wake.waker_pid), tid: Tid(wake.waker_tid), name: name() })
}

#[cfg(test)]
mod tests;
