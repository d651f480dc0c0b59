//! Tests of what the kernel's records of sleeps become.

use std::ops::RangeInclusive;

use pyobs_abi::offcpu::{ALWAYS, Slot, detail};
use pyobs_abi::record::Header;
use pyobs_model::WaitReason;

use super::*;

const START: Nanos = Nanos(1_000);
const SECOND: u64 = 1_000_000_000;
const BORN: u64 = 4_000;
const ONE: Option<ProcessRef> = Some(ProcessRef(0));
const NO_STACK: Option<StackId> = Some(StackId(99));

struct Kernel {
    offcpu: OffCpu,
    gil: Gil,
    events: Vec<Event>,
    detail: u64,
}

impl Kernel {
    fn new(detail: u64) -> Self {
        Self { offcpu: OffCpu::new(START, true), gil: Gil::new(true), events: Vec::new(), detail }
    }

    fn asleep(&mut self, since: u64) -> Key {
        let header = Header { time: since, tid: 7, pid: 7, ..Header::default() };
        let sample = Sample { header, detail: [self.detail, BORN], ..Sample::default() };
        self.offcpu.asleep(&sample, ProcessRef(0), &mut self.gil, &mut self.events);
        Key::of(&sample)
    }

    fn named(&mut self, key: Key, stack: u32) {
        self.offcpu.named(key, Some(StackId(stack)), &mut self.gil, &mut self.events);
    }

    /// `since` is 0 if the stack was not taken.
    fn woken(&mut self, since: u64, at: u64, (count, total): (u32, u64), chance: u32, next: Option<GilHolder>) {
        let header = Header { time: at, tid: 7, pid: 7, ..Header::default() };
        let (detail, longest) = (self.detail, 600);
        let wake = Wake {
            header,
            since,
            born: BORN,
            detail,
            total,
            count,
            chance,
            longest,
            waker_pid: 1,
            waker_tid: 2,
            ..Wake::default()
        };
        self.offcpu.woken(&wake, ONE, next, &mut self.gil, &mut self.events);
    }

    /// Polls a thread whose finished sleeps have these sums and that is asleep since `since`.
    fn observe(&mut self, now: u64, (count, total): (u32, u64), (since, fresh): (u64, u32), at_the_end: bool) {
        let mut sleeper = Sleeper { tid: 7, is_watched: 1, since, fresh, slot: 3, ..Sleeper::default() };
        sleeper.keys[3] = 1;
        sleeper.slots[3] = Slot { born: BORN, count, total, longest: 500, detail: self.detail, ..Slot::default() };
        let (gil, events) = (&mut self.gil, &mut self.events);
        self.offcpu.report_open(Nanos(now), at_the_end, |_| Some(sleeper), NO_STACK, gil, events);
    }

    /// Polls once in each of these seconds, after the thread has ended.
    fn observe_without_thread(&mut self, seconds: RangeInclusive<u64>) {
        for second in seconds {
            let (gil, events) = (&mut self.gil, &mut self.events);
            self.offcpu.report_open(Nanos(second * SECOND), false, |_| None, NO_STACK, gil, events);
        }
    }

    /// Stack, count, total, longest and number of stacks of each event.
    fn sleeps(&self) -> Vec<(u32, u64, u64, u64, u64)> {
        let reported = self.events.iter().filter_map(|event| match event {
            Event::Sleep(it) => Some((it.stack.0, it.count, it.total.0, it.length.0, it.stacks)),
            _ => None,
        });
        reported.collect()
    }
}

#[test]
fn each_sleep_is_reported_while_all_have_stacks() {
    let mut kernel = Kernel::new(libc::SYS_futex as u64);
    let first = kernel.asleep(5_000);
    kernel.woken(5_000, 6_000, (1, 1_000), ALWAYS, None);
    assert_eq!(kernel.sleeps(), []);
    kernel.named(first, 1);
    assert_eq!(kernel.sleeps(), [(1, 1, 1_000, 1_000, 1)]);
    let second = kernel.asleep(7_000);
    kernel.named(second, 2);
    kernel.woken(7_000, 9_500, (2, 3_500), ALWAYS, None);
    assert_eq!(kernel.sleeps()[1..], [(2, 1, 2_500, 2_500, 1)]);
    let Some(Event::Sleep(last)) = kernel.events.last() else { panic!("{:?}", kernel.events) };
    assert_eq!((last.from, last.at, last.reason), (Nanos(6_000), Nanos(8_500), WaitReason::Lock));
    assert_eq!(last.waker.as_ref().map(|waker| waker.tid), Some(Tid(2)));
    kernel.observe(2 * SECOND, (2, 3_500), (0, 0), true);
    assert_eq!(kernel.sleeps().len(), 2);
}

#[test]
fn sums_are_split_over_the_stacks_when_there_are_enough() {
    let mut kernel = Kernel::new(libc::SYS_read as u64);
    let (mut count, mut total, mut now) = (0, 0, BORN);
    for number in 0..16 {
        // Three sleeps that were not drawn, then one that was.
        (count, total) = (count + 4, total + 4 * 100);
        let key = kernel.asleep(now + 300);
        kernel.named(key, number % 4);
        kernel.woken(now + 300, now + 400, (count, total), 1 << 30, None);
        now += 400;
    }
    assert_eq!(kernel.sleeps(), [], "nothing is told before the look");
    kernel.observe(2 * SECOND, (count + 2, total + 200), (0, 0), false);
    let sleeps = kernel.sleeps();
    assert_eq!(sleeps.iter().map(|it| (it.0, it.4)).collect::<Vec<_>>(), [(0, 4), (1, 4), (2, 4), (3, 4)]);
    assert_eq!(sleeps.iter().map(|it| it.1).sum::<u64>(), u64::from(count) + 2);
    assert_eq!(sleeps.iter().map(|it| it.2).sum::<u64>(), total + 200);
    assert_eq!(sleeps.iter().map(|it| it.3).max(), Some(600), "the longest may be one that was not drawn");
    let Event::Sleep(first) = &kernel.events[0] else { panic!("{:?}", kernel.events) };
    assert_eq!((first.from, first.at), (Nanos(BORN + 300 - START.0), Nanos(2 * SECOND)));
    // Without new draws for long, the old proportions apply.
    kernel.observe(3 * SECOND, (count + 6, total + 600), (0, 0), false);
    assert_eq!(kernel.sleeps().len(), 4);
    kernel.observe(8 * SECOND, (count + 6, total + 600), (0, 0), false);
    assert_eq!(kernel.sleeps()[4..].iter().map(|it| (it.1, it.2, it.4)).collect::<Vec<_>>(), [(1, 100, 0); 4]);
}

#[test]
fn sleeps_without_stacks_are_reported() {
    let mut kernel = Kernel::new(libc::SYS_poll as u64);
    kernel.woken(0, 6_000, (3, 900), 0, None);
    kernel.observe(6 * SECOND, (3, 900), (0, 0), false);
    assert_eq!(kernel.sleeps(), [(99, 3, 900, 600, 0)]);
    // An ongoing sleep whose stack was not taken.
    kernel.observe(8 * SECOND, (3, 900), (7 * SECOND + START.0, 0), false);
    kernel.observe(9 * SECOND, (3, 900), (7 * SECOND + START.0, 0), false);
    kernel.woken(0, 9 * SECOND + 500 + START.0, (4, 900 + 2 * SECOND + 500), 0, None);
    kernel.observe(10 * SECOND, (4, 900 + 2 * SECOND + 500), (0, 0), true);
    let after: Vec<_> = kernel.sleeps()[1..].iter().map(|it| (it.1, it.2)).collect();
    assert_eq!(after, [(1, SECOND), (0, SECOND), (0, 500)], "{:?}", kernel.events);
}

#[test]
fn a_gil_without_holder_belongs_to_the_waker() {
    let mut kernel = Kernel::new(libc::SYS_futex as u64 | detail::GIL);
    let first = kernel.asleep(5_000);
    kernel.named(first, 1);
    let next = GilHolder { tid: Tid(2), stack: StackId(9) };
    kernel.woken(5_000, 6_000, (1, 1_000), ALWAYS, Some(next));
    let second = kernel.asleep(7_000);
    kernel.offcpu.held(second);
    kernel.named(second, 1);
    let seen = GilHolder { tid: Tid(3), stack: StackId(4) };
    kernel.offcpu.holder_named(second, 3, Some(StackId(4)), &mut kernel.gil, &mut kernel.events);
    kernel.woken(7_000, 8_000, (2, 2_000), ALWAYS, Some(next));
    let holders =
        kernel.events.iter().filter_map(|event| if let Event::GilWait(wait) = event { wait.holder } else { None });
    assert_eq!(holders.collect::<Vec<_>>(), [next, seen]);
}

#[test]
fn a_long_sleep_is_reported_in_parts_and_counted_once() {
    let mut kernel = Kernel::new(libc::SYS_clock_nanosleep as u64);
    let key = kernel.asleep(BORN);
    kernel.named(key, 1);
    for now in [SECOND / 2, SECOND + BORN, SECOND + BORN + 1] {
        kernel.observe(now, (0, 0), (BORN, ALWAYS), false);
    }
    let begun = BORN - START.0;
    assert_eq!(kernel.sleeps(), [(1, 1, SECOND + BORN - begun, SECOND + BORN - begun, 1)]);
    kernel.woken(BORN, BORN + 3 * SECOND, (1, 3 * SECOND), ALWAYS, None);
    assert_eq!(kernel.sleeps()[1..], [(1, 0, 2 * SECOND - 1_000, 3 * SECOND, 0)]);
    assert!(
        kernel.events.iter().all(|event| !matches!(event, Event::Sleep(it) if it.waker.is_some())),
        "time is no waker"
    );
    kernel.observe(9 * SECOND, (1, 3 * SECOND), (0, 0), true);
    assert_eq!(kernel.sleeps().len(), 2);
}

#[test]
fn everything_is_reported_at_the_end() {
    let mut kernel = Kernel::new(libc::SYS_read as u64);
    let key = kernel.asleep(BORN);
    kernel.named(key, 1);
    kernel.woken(BORN, BORN + 100, (6, 400), 1 << 31, None);
    let open = kernel.asleep(BORN + 500);
    kernel.named(open, 2);
    kernel.observe(BORN + 900 - START.0, (6, 400), (BORN + 500, ALWAYS), true);
    assert_eq!(kernel.sleeps(), [(2, 1, 400, 400, 1), (1, 6, 400, 600, 1)]);
}

#[test]
fn a_finished_thread_is_reported_and_forgotten() {
    let mut kernel = Kernel::new(libc::SYS_read as u64);
    kernel.woken(0, BORN + 100, (6, 400), 0, None);
    kernel.observe_without_thread(1..=3);
    assert_eq!(kernel.sleeps().iter().map(|it| (it.1, it.2)).collect::<Vec<_>>(), [(6, 400)]);
    assert!(kernel.offcpu.threads.is_empty());
    // Another process has the tid now.
    let wake = Wake { born: 1, count: 1, total: 5, header: Header { tid: 8, ..Header::default() }, ..Wake::default() };
    kernel.offcpu.woken(&wake, None, None, &mut kernel.gil, &mut kernel.events);
    assert!(matches!(kernel.events.last(), Some(Event::Loss { reason: Reason::SleepUnseen, .. })));
}

#[test]
fn stacks_that_are_long_in_being_named_are_waited_for() {
    // Every sleep is drawn, and the thread ends before its stack is named.
    let mut kernel = Kernel::new(libc::SYS_read as u64);
    let key = kernel.asleep(5_000);
    kernel.woken(5_000, 6_000, (1, 1_000), ALWAYS, None);
    kernel.observe_without_thread(1..=9);
    assert_eq!(kernel.sleeps(), []);
    kernel.named(key, 1);
    assert_eq!(kernel.sleeps(), [(1, 1, 1_000, 1_000, 1)]);
    kernel.observe_without_thread(10..=12);
    assert!(kernel.offcpu.threads.is_empty());

    // One sleep in four is drawn.
    let mut kernel = Kernel::new(libc::SYS_read as u64);
    let key = kernel.asleep(5_000);
    kernel.woken(5_000, 6_000, (4, 4_000), 1 << 30, None);
    for second in 1..=9 {
        kernel.observe(second * SECOND, (4, 4_000), (0, 0), false);
    }
    assert_eq!(kernel.sleeps(), []);
    kernel.named(key, 1);
    kernel.observe(10 * SECOND, (4, 4_000), (0, 0), false);
    assert_eq!(kernel.sleeps(), [(1, 4, 4_000, 1_000, 1)]);

    // Stacks that are never named.
    kernel.asleep(10 * SECOND);
    kernel.woken(10 * SECOND, 10 * SECOND + 500, (5, 4_500), ALWAYS, None);
    kernel.observe_without_thread(11..=30);
    assert_eq!(kernel.sleeps()[1..].iter().map(|it| (it.1, it.2)).collect::<Vec<_>>(), [(1, 500)]);
    assert!(kernel.offcpu.threads.is_empty());
}

#[test]
fn sleeps_without_a_stack_are_split_over_those_that_were_reported_before() {
    let mut kernel = Kernel::new(libc::SYS_read as u64);
    for number in 0..4 {
        let since = BORN + 1_000 * u64::from(number);
        let key = kernel.asleep(since);
        kernel.named(key, 1);
        kernel.woken(since, since + 100, (number + 1, 100 * u64::from(number + 1)), ALWAYS, None);
    }
    assert_eq!(kernel.sleeps().len(), 4);
    kernel.observe(9 * SECOND, (10, 1_000), (0, 0), true);
    let sleeps = kernel.sleeps();
    assert!(sleeps.iter().all(|sleep| sleep.0 == 1), "{sleeps:?}");
    assert_eq!(
        sleeps.iter().map(|sleep| (sleep.1, sleep.2)).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1)),
        (10, 1_000)
    );
}

#[test]
fn threads_beyond_the_limit_are_counted_and_the_others_stay_exact() {
    let mut kernel = Kernel::new(libc::SYS_futex as u64);
    kernel.woken(0, 10 * SECOND, (3, 300), ALWAYS, None);
    let wake = |tid| Wake {
        header: Header { time: 10 * SECOND, tid, pid: tid, ..Header::default() },
        born: BORN,
        detail: libc::SYS_futex as u64,
        total: 5,
        count: 1,
        chance: ALWAYS,
        ..Wake::default()
    };
    let limit = 100 + THREADS_MAX as u32;
    for tid in 100..limit + 2 {
        kernel.offcpu.woken(&wake(tid), ONE, None, &mut kernel.gil, &mut kernel.events);
    }
    let unseen = kernel.events.iter().filter(|event| matches!(event, Event::Loss { reason: Reason::SleepUnseen, .. }));
    assert_eq!(unseen.count(), 3);
    kernel.woken(0, 11 * SECOND, (4, 400), ALWAYS, None);
    kernel.observe(12 * SECOND, (4, 400), (0, 0), true);
    let of_first = kernel.events.iter().filter_map(|event| match event {
        Event::Sleep(wait) if wait.tid == Tid(7) => Some((wait.count, wait.total.0)),
        _ => None,
    });
    let sums = of_first.fold((0, 0), |sum, wait| (sum.0 + wait.0, sum.1 + wait.1));
    assert_eq!(sums, (4, 400));
}
