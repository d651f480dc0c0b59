//! The family `offcpu`: what threads slept at each place of theirs, and the stack that was taken there. What is a wait for
//! the GIL goes to the family `gil` too.

use std::collections::HashMap;
use std::sync::Arc;

use pyobs_abi::offcpu::{PLACES, Sleeper, Wake, detail};
use pyobs_abi::stack::{Sample, flags};
use pyobs_model::{Event, GilHolder, Nanos, Pid, ProcessRef, Reason, Sleep, StackId, Tid, WaitReason, Waker};

use super::gil::{Gil, Piece};
use crate::record::name;

/// Threads that are known at the most, and stacks.
const THREADS_MAX: usize = 100_000;
/// What waits for the names of its stack, for one stack.
const WAITING_MAX: usize = 1_000;
/// A thread that sleeps on is told of so often, once it has slept for so long.
const TELL_EVERY: Nanos = Nanos(1_000_000_000);

/// Names a stack at which a thread went to sleep: the thread, and when on the kernel's clock.
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

/// What the sleeps at one place have in common.
struct Place {
    process: ProcessRef,
    reason: WaitReason,
    holds_gil: bool,
    stack: Option<StackId>,
    holder: Option<GilHolder>,
    /// A holder's stack is being named.
    holder_awaited: bool,
    /// Another stack has taken its place.
    is_past: bool,
    waiting: Vec<Slept>,
}

impl Place {
    fn is_named(&self) -> bool {
        self.stack.is_some() && !self.holder_awaited
    }
}

/// Sleeps that are told together.
struct Slept {
    at: Nanos,
    /// How long the last of them was; 0 where it was told of before.
    length: Nanos,
    total: Nanos,
    count: u64,
    waker: Option<Waker>,
    /// The thread of the same process that woke it: it has had the GIL, if that is what the sleeper waited for.
    next: Option<GilHolder>,
}

struct Thread {
    process: ProcessRef,
    /// When each place's stack was taken.
    places: [u64; PLACES],
    /// Of the sleep that began then, so much has been told.
    told: (u64, Nanos),
}

pub struct OffCpu {
    start: Nanos,
    /// Whether sleeps are told, or only waits for the GIL.
    sleeps: bool,
    places: HashMap<Key, Place>,
    threads: HashMap<u32, Thread>,
    told: Nanos,
}

impl OffCpu {
    /// The recording begins at this time of the kernel's clock.
    pub fn starts_at(&mut self, start: Nanos) {
        self.start = start;
    }

    pub fn new(start: Nanos, sleeps: bool) -> Self {
        Self { start, sleeps, places: HashMap::new(), threads: HashMap::new(), told: Nanos(0) }
    }

    /// A thread went to sleep where it had no stack yet, or needs another; it is being named.
    pub fn asleep(&mut self, sample: &Sample, process: ProcessRef) {
        if self.threads.len() >= THREADS_MAX || self.places.len() >= THREADS_MAX {
            self.threads.clear();
            self.places.clear();
        }
        let key = Key::of(sample);
        let thread = || Thread { process, places: [0; PLACES], told: (0, Nanos(0)) };
        let thread = self.threads.entry(key.tid).or_insert_with(thread);
        if thread.process != process {
            *thread = Thread { process, places: [0; PLACES], told: (0, Nanos(0)) };
        }
        let number = sample.detail[1] as usize % PLACES;
        let before = Key { tid: key.tid, since: std::mem::replace(&mut thread.places[number], key.since) };
        if let Some(place) = self.places.get_mut(&before) {
            place.is_past = true;
            if place.is_named() {
                self.places.remove(&before);
            }
        }
        let place = Place {
            process,
            reason: reason(sample.detail[0]),
            holds_gil: sample.flags & flags::HOLDS_GIL != 0,
            stack: None,
            holder: None,
            holder_awaited: false,
            is_past: false,
            waiting: Vec::new(),
        };
        self.places.insert(key, place);
    }

    /// The holder of the GIL that a sleeper waits for; its stack is being named.
    pub fn held(&mut self, key: Key) {
        if let Some(place) = self.places.get_mut(&key) {
            place.holder_awaited = true;
        }
    }

    pub fn named(&mut self, key: Key, stack: Option<StackId>, gil: &mut Gil, events: &mut Vec<Event>) {
        match (stack, self.places.get_mut(&key)) {
            (Some(stack), Some(place)) => place.stack = Some(stack),
            (None, _) => drop(self.places.remove(&key)),
            (_, None) => {}
        }
        self.settle(key, gil, events);
    }

    pub fn holder_named(
        &mut self,
        key: Key,
        holder: u32,
        stack: Option<StackId>,
        gil: &mut Gil,
        events: &mut Vec<Event>,
    ) {
        if let Some(place) = self.places.get_mut(&key) {
            place.holder_awaited = false;
            place.holder = stack.map(|stack| GilHolder { tid: Tid(holder), stack });
        }
        self.settle(key, gil, events);
    }

    /// Tells what has waited for names.
    fn settle(&mut self, key: Key, gil: &mut Gil, events: &mut Vec<Event>) {
        let Some(place) = self.places.get_mut(&key).filter(|place| place.is_named()) else { return };
        for slept in std::mem::take(&mut place.waiting) {
            tell(self.sleeps, key.tid, place, slept, gil, events);
        }
        if place.is_past {
            self.places.remove(&key);
        }
    }

    pub fn woken(&mut self, wake: &Wake, next: Option<GilHolder>, gil: &mut Gil, events: &mut Vec<Event>) {
        let at = Nanos(wake.header.time).saturating_sub(self.start);
        let key = Key { tid: wake.header.tid, since: wake.stack };
        let mut slept = Slept {
            at,
            length: Nanos(if wake.since == 0 { 0 } else { wake.header.time.saturating_sub(wake.since) }),
            total: Nanos(wake.total),
            count: wake.count.into(),
            waker: waker(wake),
            next,
        };
        if let Some(thread) = self.threads.get_mut(&key.tid)
            && thread.told.0 == wake.since
            && wake.since != 0
        {
            slept.total = slept.total.saturating_sub(thread.told.1);
            slept.count = slept.count.saturating_sub(1);
            thread.told = (0, Nanos(0));
        }
        self.add(key, slept, gil, events);
    }

    fn add(&mut self, key: Key, slept: Slept, gil: &mut Gil, events: &mut Vec<Event>) {
        let Some(place) = self.places.get_mut(&key) else {
            // Its stack was lost.
            return events.push(Event::Loss { at: slept.at, reason: Reason::SleepUnseen, count: slept.count.max(1) });
        };
        if place.is_named() {
            tell(self.sleeps, key.tid, place, slept, gil, events);
        } else if place.waiting.len() < WAITING_MAX {
            place.waiting.push(slept);
        } else {
            events.push(Event::Loss { at: slept.at, reason: Reason::SleepUnseen, count: slept.count.max(1) });
        }
    }

    /// Tells of threads that sleep on, and at the end of what has not been told yet. `look` finds out about a thread.
    pub fn tell_open(
        &mut self,
        now: Nanos,
        at_the_end: bool,
        look: impl Fn(u32) -> Option<Sleeper>,
        gil: &mut Gil,
        events: &mut Vec<Event>,
    ) {
        if !at_the_end && now.saturating_sub(self.told) < TELL_EVERY {
            return;
        }
        self.told = now;
        let mut found = Vec::new();
        for (&tid, thread) in &mut self.threads {
            let Some(sleeper) = look(tid).filter(|sleeper| sleeper.tid == tid) else { continue };
            let present = sleeper.place as usize % PLACES;
            if sleeper.since != 0 {
                let length = now.saturating_sub(Nanos(sleeper.since).saturating_sub(self.start));
                let (count, before) = if thread.told.0 == sleeper.since { (0, thread.told.1) } else { (1, Nanos(0)) };
                if at_the_end || length >= TELL_EVERY {
                    thread.told = (sleeper.since, length);
                    let total = length.saturating_sub(before);
                    let key = Key { tid, since: sleeper.places[present].stack };
                    found.push((key, Slept { at: now, length, total, count, waker: None, next: None }));
                }
            }
            if at_the_end {
                let untold = sleeper.places.iter().filter(|place| place.count != 0);
                found.extend(untold.map(|place| {
                    let (total, count) = (Nanos(place.total), place.count.into());
                    let slept = Slept { at: now, length: Nanos(0), total, count, waker: None, next: None };
                    (Key { tid, since: place.stack }, slept)
                }));
            }
        }
        for (key, slept) in found {
            // Of a stack that is still under way it is told the next time.
            if self.places.contains_key(&key) {
                self.add(key, slept, gil, events);
            }
        }
    }

    /// A process has ended, and with it the sleeps of its threads; some of their stacks may be without names yet.
    pub fn ended(&mut self, process: ProcessRef) {
        self.threads.retain(|_, thread| thread.process != process);
        self.places.retain(|_, place| {
            place.is_past |= place.process == process;
            !(place.is_past && place.is_named())
        });
    }
}

fn tell(sleeps: bool, tid: u32, place: &Place, slept: Slept, gil: &mut Gil, events: &mut Vec<Event>) {
    let (Some(stack), process, tid) = (place.stack, place.process, Tid(tid)) else { return };
    let Slept { at, length, total, count, waker, next } = slept;
    if place.holds_gil {
        gil.held(process, tid, total);
    }
    if place.reason == WaitReason::Gil {
        let piece = Piece { since: at.saturating_sub(length), at, length, total, count };
        gil.waited(process, tid, stack, place.holder.or(next), &piece, events);
    }
    if sleeps {
        // What ends a sleep of a given length is time.
        let waker = waker.filter(|_| place.reason != WaitReason::Sleep);
        events.push(Event::Sleep(Sleep { at, process, tid, stack, reason: place.reason, count, total, length, waker }));
    }
}

fn waker(wake: &Wake) -> Option<Waker> {
    let name = || Arc::from(name(&wake.waker_comm));
    (wake.waker_tid != 0).then(|| Waker { pid: Pid(wake.waker_pid), tid: Tid(wake.waker_tid), name: name() })
}

/// By the system call that a thread sleeps in (arch/x86/entry/syscalls/syscall_64.tbl).
fn reason(detail: u64) -> WaitReason {
    if detail & detail::GIL != 0 {
        return WaitReason::Gil;
    }
    let no_argument = detail & detail::FIRST_ARGUMENT_ZERO != 0;
    match i64::from(detail as u32) {
        // time.sleep() of CPython up to 3.10 selects from nothing.
        libc::SYS_select | libc::SYS_pselect6 if no_argument => WaitReason::Sleep,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => WaitReason::Sleep,
        libc::SYS_futex | libc::SYS_semop | libc::SYS_semtimedop | libc::SYS_flock => WaitReason::Lock,
        libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2 => WaitReason::Poll,
        libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_pause
        | libc::SYS_rt_sigsuspend
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_sched_yield
        | libc::SYS_exit
        | libc::SYS_exit_group => WaitReason::Other,
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_pread64
        | libc::SYS_pwrite64
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_preadv
        | libc::SYS_pwritev
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_sendfile
        | libc::SYS_splice
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_connect
        | libc::SYS_open
        | libc::SYS_openat
        | libc::SYS_openat2
        | libc::SYS_close
        | libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_getdents64
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_ftruncate
        | libc::SYS_fallocate
        | libc::SYS_rename
        | libc::SYS_unlink
        | libc::SYS_unlinkat
        | libc::SYS_mkdir
        | libc::SYS_io_getevents
        | libc::SYS_io_uring_enter
        | libc::SYS_ioctl
        | libc::SYS_fcntl => WaitReason::Io,
        // A page of memory that has to come from somewhere.
        number if number == i64::from(u32::MAX) => WaitReason::Io,
        _ => WaitReason::Other,
    }
}

#[cfg(test)]
mod tests {
    use pyobs_abi::offcpu::NO_CALL;
    use pyobs_abi::record::Header;

    use super::*;

    const START: Nanos = Nanos(1_000);

    fn sample(call: i64, since: u64) -> Sample {
        let header = Header { time: since, tid: 7, pid: 7, ..Header::default() };
        Sample { header, detail: [call as u64, 3], ..Sample::default() }
    }

    fn wake(stack: u64, since: u64, at: u64, total: u64, count: u32) -> Wake {
        let header = Header { time: at, tid: 7, pid: 7, ..Header::default() };
        Wake { header, since, stack, total, count, waker_pid: 1, waker_tid: 2, ..Wake::default() }
    }

    fn sleeps(events: &[Event]) -> Vec<(WaitReason, u64, u64, u64)> {
        let told = events.iter().filter_map(|event| match event {
            Event::Sleep(sleep) => Some((sleep.reason, sleep.count, sleep.total.0, sleep.length.0)),
            _ => None,
        });
        told.collect()
    }

    #[test]
    fn sleeps_are_told_when_their_stack_is_known() {
        let (mut offcpu, mut gil, mut events) = (OffCpu::new(START, true), Gil::new(true), Vec::new());
        let sample = sample(libc::SYS_futex, 5_000);
        offcpu.asleep(&sample, ProcessRef(0));
        offcpu.woken(&wake(5_000, 5_000, 6_000, 1_000, 1), None, &mut gil, &mut events);
        assert!(events.is_empty());
        offcpu.named(Key::of(&sample), Some(StackId(1)), &mut gil, &mut events);
        offcpu.woken(&wake(5_000, 8_000, 9_000, 2_500, 3), None, &mut gil, &mut events);
        let lock = WaitReason::Lock;
        assert_eq!(sleeps(&events), [(lock, 1, 1_000, 1_000), (lock, 3, 2_500, 1_000)]);
        let same_place = Sample { header: Header { time: 10_000, ..sample.header }, ..sample };
        offcpu.asleep(&same_place, ProcessRef(0));
        assert_eq!(offcpu.places.len(), 1);
        offcpu.ended(ProcessRef(0));
        offcpu.woken(&wake(10_000, 10_000, 11_000, 1_000, 1), None, &mut gil, &mut events);
        offcpu.named(Key::of(&same_place), Some(StackId(1)), &mut gil, &mut events);
        assert_eq!(sleeps(&events).last(), Some(&(lock, 1, 1_000, 1_000)));
        assert!(offcpu.places.is_empty() && offcpu.threads.is_empty());
        offcpu.woken(&wake(12, 13, 14, 1, 1), None, &mut gil, &mut events);
        assert!(matches!(events.last(), Some(Event::Loss { reason: Reason::SleepUnseen, count: 1, .. })));
    }

    #[test]
    fn a_gil_that_nobody_held_was_on_its_way_to_who_woke_the_sleeper() {
        let (mut offcpu, mut gil, mut events) = (OffCpu::new(START, false), Gil::new(true), Vec::new());
        let mut sample = sample(libc::SYS_futex, 5_000);
        sample.detail[0] |= detail::GIL;
        offcpu.asleep(&sample, ProcessRef(0));
        offcpu.named(Key::of(&sample), Some(StackId(1)), &mut gil, &mut events);
        let next = GilHolder { tid: Tid(2), stack: StackId(9) };
        offcpu.woken(&wake(5_000, 5_000, 6_000, 1_000, 1), Some(next), &mut gil, &mut events);
        let seen = GilHolder { tid: Tid(3), stack: StackId(4) };
        offcpu.held(Key::of(&sample));
        offcpu.holder_named(Key::of(&sample), 3, Some(StackId(4)), &mut gil, &mut events);
        offcpu.woken(&wake(5_000, 7_000, 8_000, 1_000, 1), Some(next), &mut gil, &mut events);
        let holders =
            events.iter().filter_map(|event| if let Event::GilWait(wait) = event { wait.holder } else { None });
        assert_eq!(holders.collect::<Vec<_>>(), [next, seen]);
    }

    #[test]
    fn a_long_sleep_is_told_in_parts_and_counted_once() {
        let (mut offcpu, mut gil, mut events) = (OffCpu::new(START, true), Gil::new(true), Vec::new());
        let sample = sample(libc::SYS_clock_nanosleep, 1_000);
        offcpu.asleep(&sample, ProcessRef(0));
        offcpu.named(Key::of(&sample), Some(StackId(1)), &mut gil, &mut events);
        let mut sleeper = Sleeper { tid: 7, since: 2_000, place: 3, ..Sleeper::default() };
        sleeper.places[3].stack = 1_000;
        let second = TELL_EVERY.0;
        for now in [second / 2, second + 1_000, second + 1_001] {
            offcpu.tell_open(Nanos(now), false, |_| Some(sleeper), &mut gil, &mut events);
        }
        let end = 2_000 + 3 * second;
        offcpu.woken(&wake(1_000, 2_000, end, 3 * second + 70, 8), None, &mut gil, &mut events);
        let sleep = WaitReason::Sleep;
        assert_eq!(sleeps(&events), [(sleep, 1, second, second), (sleep, 7, 2 * second + 70, 3 * second)]);
        assert!(events.iter().all(|event| !matches!(event, Event::Sleep(Sleep { waker: Some(_), .. }))));
    }

    #[test]
    fn at_the_end_everything_is_told() {
        let (mut offcpu, mut gil, mut events) = (OffCpu::new(START, true), Gil::new(true), Vec::new());
        let sample = sample(libc::SYS_read, 1_000);
        offcpu.asleep(&sample, ProcessRef(0));
        offcpu.named(Key::of(&sample), Some(StackId(1)), &mut gil, &mut events);
        let mut sleeper = Sleeper { tid: 7, since: 2_000, place: 3, ..Sleeper::default() };
        sleeper.places[3] = pyobs_abi::offcpu::Place { key: 1, count: 5, total: 400, stack: 1_000 };
        offcpu.tell_open(Nanos(1_500), true, |_| Some(sleeper), &mut gil, &mut events);
        assert_eq!(sleeps(&events), [(WaitReason::Io, 1, 500, 500), (WaitReason::Io, 5, 400, 0)]);
    }

    #[test]
    fn reasons() {
        assert_eq!(reason(libc::SYS_select as u64), WaitReason::Poll);
        assert_eq!(reason(libc::SYS_select as u64 | detail::FIRST_ARGUMENT_ZERO), WaitReason::Sleep);
        assert_eq!(reason(libc::SYS_futex as u64 | detail::GIL), WaitReason::Gil);
        assert_eq!(reason(u64::from(NO_CALL)), WaitReason::Io);
        assert_eq!(reason(9_999), WaitReason::Other);
    }
}
