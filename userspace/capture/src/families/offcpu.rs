//! The family `offcpu`: sleeps, from the stack at which a thread went to sleep and the wake-up that ended it. What is a
//! wait for the GIL goes to the family `gil` too.

use std::collections::HashMap;
use std::sync::Arc;

use pyobs_abi::offcpu::{WEIGHT_ONE, Wake, detail};
use pyobs_abi::stack::{Sample, flags};
use pyobs_model::{Event, GilHolder, Nanos, Pid, ProcessRef, Reason, Sleep, StackId, Tid, WaitReason, Waker};

use super::gil::Gil;
use crate::record::name;

/// Sleeps that are kept at the most: as many threads as can be asleep.
const OPEN_MAX: usize = 100_000;
/// A thread that sleeps on is told of so often.
const TELL_EVERY: Nanos = Nanos(1_000_000_000);

/// Names a sleep: the thread, and when it fell asleep on the kernel's clock.
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

/// A sleep whose stack or whose end is still to come.
struct Open {
    process: ProcessRef,
    reason: WaitReason,
    holds_gil: bool,
    weight: u64,
    since: Nanos,
    stack: Option<StackId>,
    holder: Option<GilHolder>,
    /// A holder's stack is being named.
    holder_awaited: bool,
    wake: Option<Wake>,
    /// How much of it has been told.
    told: Nanos,
}

pub struct OffCpu {
    start: Nanos,
    /// Whether sleeps are told, or only waits for the GIL.
    sleeps: bool,
    open: HashMap<Key, Open>,
    /// Each thread's last sleep.
    last: HashMap<u32, Key>,
    told: Nanos,
}

impl OffCpu {
    pub fn new(start: Nanos, sleeps: bool) -> Self {
        Self { start, sleeps, open: HashMap::new(), last: HashMap::new(), told: Nanos(0) }
    }

    /// A thread fell asleep; its stack is being named.
    pub fn asleep(&mut self, sample: &Sample, process: ProcessRef, events: &mut Vec<Event>) {
        if self.last.len() >= OPEN_MAX {
            self.open.clear();
            self.last.clear();
        }
        let since = Nanos(sample.header.time).saturating_sub(self.start);
        let open = Open {
            process,
            reason: reason(sample.detail[0]),
            holds_gil: sample.flags & flags::HOLDS_GIL != 0,
            weight: sample.detail[1].max(WEIGHT_ONE),
            since,
            stack: None,
            holder: None,
            holder_awaited: false,
            wake: None,
            told: Nanos(0),
        };
        let key = Key::of(sample);
        if let Some(before) = self.last.insert(key.tid, key)
            && self.open.get(&before).is_some_and(|open| open.wake.is_none())
        {
            // It must have ended, but the record of that was lost.
            self.open.remove(&before);
            events.push(Event::Loss { at: since, reason: Reason::SleepUnseen, count: 1 });
        }
        self.open.insert(key, open);
    }

    /// A thread runs at this time on the kernel's clock: it is not asleep.
    pub fn runs(&mut self, tid: u32, time: u64) {
        if let Some(key) = self.last.get(&tid)
            && key.since < time
            && self.open.get(key).is_some_and(|open| open.wake.is_none())
        {
            self.open.remove(key);
        }
    }

    /// The holder of the GIL that a sleeper waits for; its stack is being named.
    pub fn held(&mut self, key: Key) {
        if let Some(open) = self.open.get_mut(&key) {
            open.holder_awaited = true;
        }
    }

    pub fn named(&mut self, key: Key, stack: Option<StackId>, gil: &mut Gil, events: &mut Vec<Event>) {
        match stack {
            Some(stack) => {
                if let Some(open) = self.open.get_mut(&key) {
                    open.stack = Some(stack);
                }
                self.finish(key, gil, events);
            }
            None => drop(self.open.remove(&key)),
        }
    }

    pub fn holder_named(
        &mut self,
        key: Key,
        holder: u32,
        stack: Option<StackId>,
        gil: &mut Gil,
        events: &mut Vec<Event>,
    ) {
        if let Some(open) = self.open.get_mut(&key) {
            open.holder_awaited = false;
            open.holder = stack.map(|stack| GilHolder { tid: Tid(holder), stack });
        }
        self.finish(key, gil, events);
    }

    pub fn woken(&mut self, wake: &Wake, gil: &mut Gil, events: &mut Vec<Event>) {
        let key = Key { tid: wake.header.tid, since: wake.since };
        if let Some(open) = self.open.get_mut(&key) {
            open.wake = Some(*wake);
            self.finish(key, gil, events);
        }
    }

    /// Tells of a sleep when all is known of it.
    fn finish(&mut self, key: Key, gil: &mut Gil, events: &mut Vec<Event>) {
        let Some(open) = self.open.get(&key) else { return };
        let (Some(stack), Some(wake), false) = (open.stack, open.wake, open.holder_awaited) else { return };
        let Some(open) = self.open.remove(&key) else { return };
        let length = Nanos(wake.header.time.saturating_sub(key.since));
        let at = Nanos(wake.header.time).saturating_sub(self.start);
        self.tell(key, &open, stack, at, length, waker(&wake), gil, events);
    }

    #[expect(clippy::too_many_arguments, reason = "a sleep, its end, and where to tell it")]
    fn tell(
        &self,
        key: Key,
        open: &Open,
        stack: StackId,
        at: Nanos,
        length: Nanos,
        waker: Option<Waker>,
        gil: &mut Gil,
        events: &mut Vec<Event>,
    ) {
        let tid = Tid(key.tid);
        let total = weighed(length, open.weight).saturating_sub(open.told);
        // A sleep that was told of before has been counted then.
        let count = if open.told == Nanos(0) { (open.weight + WEIGHT_ONE / 2) / WEIGHT_ONE } else { 0 };
        if open.holds_gil {
            gil.held(open.process, tid, total);
        }
        if open.reason == WaitReason::Gil {
            let piece = super::gil::Piece { since: open.since, at, length, total, count };
            gil.waited(open.process, tid, stack, open.holder, &piece, events);
        }
        if self.sleeps {
            events.push(Event::Sleep(Sleep {
                at,
                process: open.process,
                tid,
                stack,
                reason: open.reason,
                count,
                total,
                length,
                // What ends a sleep of a given length is time.
                waker: waker.filter(|_| open.reason != WaitReason::Sleep),
            }));
        }
    }

    /// Tells of those that sleep on.
    pub fn tell_open(&mut self, now: Nanos, gil: &mut Gil, events: &mut Vec<Event>) {
        if now.saturating_sub(self.told) < TELL_EVERY {
            return;
        }
        self.tell_all(now, gil, events);
    }

    /// Tells of all that sleep on, up to now.
    pub fn tell_all(&mut self, now: Nanos, gil: &mut Gil, events: &mut Vec<Event>) {
        self.told = now;
        let mut open = std::mem::take(&mut self.open);
        for (key, open) in &mut open {
            let length = now.saturating_sub(open.since);
            if let Some(stack) = open.stack
                && open.wake.is_none()
                && open.weight == WEIGHT_ONE
                && length > open.told
            {
                self.tell(*key, open, stack, now, length, None, gil, events);
                open.told = length;
            }
        }
        self.open = open;
    }

    /// A process has ended, and with it the sleeps of its threads.
    pub fn ended(&mut self, process: ProcessRef) {
        self.open.retain(|_, open| open.process != process || open.wake.is_some());
    }
}

fn weighed(length: Nanos, weight: u64) -> Nanos {
    Nanos((u128::from(length.0) * u128::from(weight) / u128::from(WEIGHT_ONE)).try_into().unwrap_or(u64::MAX))
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
    use pyobs_abi::record::Header;

    use super::*;

    const START: Nanos = Nanos(1_000);

    fn sample(call: i64, weight: u64, since: u64) -> Sample {
        let header = Header { time: since, tid: 7, pid: 7, ..Header::default() };
        Sample { header, detail: [call as u64, weight], ..Sample::default() }
    }

    fn wake(since: u64, at: u64) -> Wake {
        let header = Header { time: at, tid: 7, pid: 7, ..Header::default() };
        Wake { header, since, waker_pid: 1, waker_tid: 2, ..Wake::default() }
    }

    fn sleeps(events: &[Event]) -> Vec<(WaitReason, u64, u64, u64)> {
        let told = events.iter().filter_map(|event| match event {
            Event::Sleep(sleep) => Some((sleep.reason, sleep.count, sleep.total.0, sleep.length.0)),
            _ => None,
        });
        told.collect()
    }

    #[test]
    fn a_sleep_is_told_when_its_stack_and_its_end_are_known_in_any_order() {
        for stack_first in [true, false] {
            let (mut offcpu, mut gil, mut events) = (OffCpu::new(START, true), Gil::new(true), Vec::new());
            let sample = sample(libc::SYS_futex, 3 * WEIGHT_ONE, 5_000);
            offcpu.asleep(&sample, ProcessRef(0), &mut events);
            if stack_first {
                offcpu.named(Key::of(&sample), Some(StackId(1)), &mut gil, &mut events);
            }
            offcpu.woken(&wake(5_000, 6_000), &mut gil, &mut events);
            if !stack_first {
                assert!(events.is_empty());
                offcpu.named(Key::of(&sample), Some(StackId(1)), &mut gil, &mut events);
            }
            assert_eq!(sleeps(&events), [(WaitReason::Lock, 3, 3_000, 1_000)]);
            assert!(offcpu.open.is_empty());
        }
    }

    #[test]
    fn a_long_sleep_is_told_in_parts_and_counted_once() {
        let (mut offcpu, mut gil, mut events) = (OffCpu::new(START, true), Gil::new(true), Vec::new());
        let sample = sample(libc::SYS_clock_nanosleep, WEIGHT_ONE, 1_000);
        offcpu.asleep(&sample, ProcessRef(0), &mut events);
        offcpu.named(Key::of(&sample), Some(StackId(1)), &mut gil, &mut events);
        let second = TELL_EVERY.0;
        offcpu.tell_open(Nanos(second), &mut gil, &mut events);
        offcpu.tell_open(Nanos(second + 1), &mut gil, &mut events);
        offcpu.woken(&wake(1_000, 1_000 + 3 * second), &mut gil, &mut events);
        let sleep = WaitReason::Sleep;
        assert_eq!(sleeps(&events), [(sleep, 1, second, second), (sleep, 0, 2 * second, 3 * second)]);
        assert!(events.iter().all(|event| !matches!(event, Event::Sleep(Sleep { waker: Some(_), .. }))));
    }

    #[test]
    fn reasons() {
        assert_eq!(reason(libc::SYS_select as u64), WaitReason::Poll);
        assert_eq!(reason(libc::SYS_select as u64 | detail::FIRST_ARGUMENT_ZERO), WaitReason::Sleep);
        assert_eq!(reason(libc::SYS_futex as u64 | detail::GIL), WaitReason::Gil);
        assert_eq!(reason(u64::from(pyobs_abi::offcpu::NO_CALL)), WaitReason::Io);
        assert_eq!(reason(9_999), WaitReason::Other);
    }
}
