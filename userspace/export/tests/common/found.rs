//! A minimal model for each finding.

use pyobs_model::findings::{self, Finding};
use pyobs_model::*;

use super::{ModelBuilder, frame, meta};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const PROCESS: ProcessRef = ProcessRef(0);
const PID: Pid = Pid(4242);
const MAIN: Tid = Tid(4242);
const OTHER: Tid = Tid(4243);

// Stacks in the order in which `model()` adds them. All but the last have one line.
const COMPUTES: StackId = StackId(0);
const SENDS: StackId = StackId(1);
const MAKES: StackId = StackId(2);
const SHUTDOWN: StackId = StackId(3);
const ITERATES: StackId = StackId(4);

pub struct Case {
    pub id: &'static str,
    pub model: Model,
    /// The line that the finding points at, if any.
    pub line: Option<&'static str>,
    /// A number in the finding, with its unit.
    pub number: &'static str,
    /// A part of the advice.
    pub advice: &'static str,
}

impl Case {
    #[track_caller]
    pub fn finding(&self) -> Finding {
        let found = findings::find(&self.model, &Selection::default());
        found.into_iter().find(|finding| finding.id == self.id).unwrap()
    }
}

const AT_COMPUTE: Option<&str> = Some("compute (/srv/app/main.py:10)");
const AT_SEND: Option<&str> = Some("send (/srv/app/main.py:20)");
const AT_MAKE: Option<&str> = Some("make (/srv/app/main.py:30)");

pub fn cases() -> Vec<Case> {
    let case = |id, events: Vec<Event>, line, number, advice| Case { id, model: model(&events), line, number, advice };
    vec![
        case("gil/convoy", convoy(), AT_COMPUTE, "100 times", "compute in another process"),
        case("arena/sparse", sparse(), AT_MAKE, "40 arenas of 40 MiB", "build large and short-lived data"),
        case("arena/leaked", leaked(), AT_MAKE, "3 objects have been made", "before its context ends"),
        case("heap/growing", growing(), AT_MAKE, "grew from 100 MiB to", "without a bound"),
        case("shm/residue", residue(), AT_MAKE, "has 4.0 MiB", "unlink its segments"),
        case("shm/unlinked_in_use", unlinked_in_use(), AT_MAKE, "1 other process", "Attach with track=False"),
        case("shm/unread", unread(), AT_MAKE, "4.0 MiB", "Leave out the copy"),
        case("shm/resent", resent(), AT_SEND, "sent 5 times", "Send only what has changed"),
        case("nrt/leaked", meminfo(), AT_MAKE, "1 of the 1 MemInfo born", "not given back"),
        case("ucx/busy-poll", busy_poll(), None, "100 transfers a second", "waits for events"),
        case("ucx/gil-on-progress-thread", gil_of_progress(), AT_SEND, "25 times", "futures"),
        case("ucx/slow-notify", told_late(0), None, "8.0 ms", "another one"),
        case("ucx/behind-gil", told_late(5 * MS), AT_COMPUTE, "40 of 40 transfers", "release it"),
        case("ucx/queue-grows", queue_grows(), None, "transfers waited at once", "fewer transfers"),
        case("ucx/unfinished", unfinished(), AT_SEND, "1 transfer, asked for at", "or cancel it"),
        case("ucx/unfinished", not_stopped(), None, "4.0 s", "in a `finally`"),
        case("ucx/resend", resend(), AT_SEND, "sent 5 times", "send only what has changed"),
        case("ucx/no-overlap", no_overlap(), AT_COMPUTE, "of 500 samples", "before the computing begins"),
        case("redundancy/dispatch", dispatch(), AT_COMPUTE, "Of the 104 whose", "Work on whole arrays"),
        case("redundancy/recomputed", called_again(), AT_COMPUTE, "30 of 30 times", "keep its result"),
        case("redundancy/recomputed", pairs(PairKind::Store, None), AT_COMPUTE, "30 of 30 times", "keep its result"),
        case("redundancy/copied", copies(), AT_COMPUTE, "time grows with the square", "join them once"),
        case("redundancy/chatty", chatty(), AT_COMPUTE, "42,000 calls a second", "itertuples()"),
        case("redundancy/dead-store", dead(), AT_COMPUTE, "30 of 30 times", "Leave out what computes the values"),
        case("redundancy/reread", pairs(PairKind::Load, None), AT_COMPUTE, "30 of 30 times", "unless that line is hot"),
        case("container/throttled", throttled(), None, "60 of 100 periods", "Raise the limit"),
        case("container/memory", near_limit(), None, "95 MiB of the 100 MiB", "hold less memory"),
        case("tasks/blocked", blocked(), AT_SEND, "2.00 s of 10.0 s", "`asyncio.to_thread`"),
        case("tasks/starved", starved(), AT_SEND, "20 times", "`ProcessPoolExecutor`"),
    ]
}

fn model(events: &[Event]) -> Model {
    let mut it = ModelBuilder::new("h");
    let probes = Family::names();
    it.model = Model::new(Meta { probes, ..meta("build-host") }, History::All);
    it.process(0, PID.0, "/usr/bin/python3.12 main.py", &[(MAIN.0, "MainThread"), (OTHER.0, "other")]);
    it.process(1, 5000, "python3 -c from multiprocessing.resource_tracker import main;main(4)", &[]);
    let own = |function, line| frame(FrameKind::Python, function, "/srv/app/main.py", line, 1);
    for frame in [
        own("compute", 10),
        own("send", 20),
        own("make", 30),
        frame(FrameKind::Python, "_shutdown", "/usr/lib/python3.12/threading.py", 1592, 1590),
    ] {
        it.stack(&[frame]);
    }
    let pandas = "/usr/lib/python3/dist-packages/pandas/core/frame.py";
    it.stack(&[own("compute", 10), Frame::python("DataFrame.iterrows".into(), pandas.into(), Some(1300), Some(1290))]);
    events.iter().for_each(|event| it.model.apply(event));
    it.model.advance(Nanos(10 * SECOND));
    it.model
}

fn limited(states: [Limits; 2]) -> Vec<Event> {
    let placement = Placement { cgroup: Some("/app/web".into()), ..Placement::default() };
    let placed = Event::Placement { process: PROCESS, placement };
    std::iter::once(placed).chain(states.map(Event::Limits)).collect()
}

fn throttled() -> Vec<Event> {
    let state = |second, periods, throttled_periods| {
        let throttled = Nanos(throttled_periods * 80 * MS);
        let cpu = CpuLimit { quota: Nanos(20 * MS), period: Nanos(100 * MS), periods, throttled_periods, throttled };
        Limits { at: Nanos(second * SECOND), cgroup: "/app".into(), cpu: Some(cpu), memory: None }
    };
    limited([state(0, 1000, 7), state(10, 1100, 67)])
}

fn near_limit() -> Vec<Event> {
    let state = |second, mebibytes: u64| {
        let memory = MemoryLimit { limit_bytes: 100 << 20, used_bytes: mebibytes << 20, killed: 4 };
        Limits { at: Nanos(second * SECOND), cgroup: "/app".into(), cpu: None, memory: Some(memory) }
    };
    limited([state(0, 20), state(10, 95)])
}

fn gil_wait(at: u64, length: u64) -> Event {
    let (at, process, total) = (Nanos(at), PROCESS, Nanos(length));
    let holder = Some(GilHolder { tid: MAIN, stack: COMPUTES });
    Event::GilWait(GilWait {
        from: at.saturating_sub(total),
        stacks: 1,
        at,
        process,
        tid: OTHER,
        stack: SENDS,
        holder,
        count: 1,
        total,
        length: total,
    })
}

fn convoy() -> Vec<Event> {
    let held = |tid, ms| Event::GilHeld { at: Nanos(10 * SECOND), process: PROCESS, tid, held: Nanos(ms * MS) };
    let waits = (0..100).map(|round| gil_wait((round + 1) * 100 * MS, 20 * MS));
    waits.chain([held(MAIN, 9000), held(OTHER, 10)]).collect()
}

/// A task that sleeps twenty times, while another one waits.
/// Twenty turns of 80 ms, sampled every 10 ms.
fn starved() -> Vec<Event> {
    let samples = (0..20).flat_map(|turn| {
        (1..=8).map(move |part| {
            let (at, weight, outcome) = (Nanos(turn * 200 * MS + part * 10 * MS), Nanos(10 * MS), Outcome::Complete);
            let (process, tid, turn_us) = (PROCESS, MAIN, std::num::NonZeroU32::new(part as u32 * 10_000));
            Event::Sample(Sample { at, process, tid, cpu: 0, stack: SENDS, weight, turn_us, outcome })
        })
    });
    let tasks = two_tasks();
    tasks.into_iter().chain(samples).collect()
}

/// One that runs where `SENDS` was taken, and one that waits.
fn two_tasks() -> Vec<Event> {
    let task = |id, name: &str, coroutine| Event::Task {
        id: TaskId(id),
        task: Task {
            process: PROCESS,
            kind: TaskKind::Asyncio,
            name: Some(name.into()),
            coroutine: FrameId(coroutine),
        },
    };
    let waits = |id, stack| TaskStatus {
        at: Nanos(SECOND),
        task: TaskId(id),
        state: Some(TaskState::Waiting),
        awaits: None,
        stack,
    };
    let of_stack = Event::StackTask { stack: SENDS, task: TaskId(0) };
    let statuses = [(0, SENDS), (1, MAKES)].map(|(id, stack)| Event::TaskStatus(waits(id, stack)));
    [task(0, "Task-1", 1), task(1, "Task-2", 2), of_stack].into_iter().chain(statuses).collect()
}

fn blocked() -> Vec<Event> {
    let sleep = |round: u64| {
        let (from, length) = (Nanos(round * 400 * MS), Nanos(100 * MS));
        Event::Sleep(Sleep {
            from,
            at: from.saturating_add(length),
            process: PROCESS,
            tid: MAIN,
            stack: SENDS,
            reason: WaitReason::Sleep,
            waker: None,
            count: 1,
            total: length,
            length,
            stacks: 1,
        })
    };
    two_tasks().into_iter().chain((1..=20).map(sleep)).collect()
}

fn arenas(count: u32, kind: &str, changes: &[ArenaChange]) -> Vec<Event> {
    let all = |id: u32| {
        let address = 0x1000_0000 + (u64::from(id) << 20);
        let arena = Arena { process: PROCESS, kind: kind.into(), address, bytes: 1 << 20, born: true, parent: None };
        let all = [ArenaChange::Begun(arena), ArenaChange::Born(MAKES)].into_iter().chain(changes.to_vec());
        all.map(move |change| Event::Arena { at: Nanos(SECOND), id: ArenaId(id), change })
    };
    (0..count).flat_map(all).collect()
}

fn sparse() -> Vec<Event> {
    arenas(40, "pymalloc", &[ArenaChange::Filled(Filled { slabs: 64, used: 2, bytes: 30_000 })])
}

/// The process takes 8 MiB in each second but the first, when it takes much more.
fn growing() -> Vec<Event> {
    let touched = |second: u64| {
        let (address, bytes) = (second << 20, if second == 0 { 100 << 20 } else { 8 << 20 });
        let change = HeapChange::Touched { address, bytes, anonymous: (100 << 20) + (second << 23), stack: MAKES };
        Event::Heap { at: Nanos(second * SECOND), process: PROCESS, change }
    };
    (0..20).map(touched).collect()
}

fn leaked() -> Vec<Event> {
    let objects = Objects { born: 3, dead: 1, slabs: 2, bytes: 512 };
    let closed = ArenaChange::Closed { escaped: 1, popped: false };
    arenas(1, "lib", &[ArenaChange::Objects(objects), closed, ArenaChange::Escaped(MAKES)])
}

/// A segment of 4 MiB, mapped at the address 1 MiB.
fn segment(changes: &[SegmentChange]) -> Vec<Event> {
    let (kind, name, bytes) = (SegmentKind::Shm, Some("tensor".into()), 4 << 20);
    let segment = Segment { dev: 1, ino: 2, generation: 3, kind, name, linked: true, bytes, creator: Some(PID) };
    let holds = SegmentChange::Holds { pid: PID, fds: 1, mappings: 1 };
    let mapped = SegmentChange::Mapped { pid: PID, address: 0x10_0000, bytes, offset: 0 };
    let all = [SegmentChange::Begun(segment), SegmentChange::Born(MAKES), holds, mapped];
    let all = all.into_iter().chain(changes.to_vec()).zip(0..);
    all.map(|(change, at)| Event::Segment { at: Nanos(at), id: SegmentId(0), change }).collect()
}

fn residue() -> Vec<Event> {
    segment(&[SegmentChange::Ended { pid: PID }])
}

fn unlinked_in_use() -> Vec<Event> {
    segment(&[SegmentChange::Unlinked { by: Some(Pid(5000)) }])
}

fn unread() -> Vec<Event> {
    let allocated = SegmentChange::Allocated(4 << 20);
    segment(&[allocated, SegmentChange::Unlinked { by: Some(PID) }, SegmentChange::Released])
}

fn meminfo() -> Vec<Event> {
    let change = MemInfoChange::Born { process: PROCESS, bytes: 4096, data: 0, stack: MAKES };
    let born = Event::MemInfo { at: Nanos(SECOND), id: MemInfoId(0), change };
    vec![born, Event::ProcessEnd { id: PROCESS, at: Nanos(2 * SECOND) }]
}

/// Requested by the main thread, and pending in another thread for `pending` nanoseconds.
fn transfer(begun: u64, pending: u64) -> Transfer {
    Transfer {
        process: PROCESS,
        library: Library::Ucxx,
        operation: Operation::TagSend,
        bytes: 1 << 20,
        tag: None,
        through: 7,
        buffer: 0x10_0000,
        registered: Some(Nanos(begun)),
        submitted: Some(Nanos(begun)),
        completed: Some(Nanos(begun + pending)),
        immediate: false,
        status: Some(0),
        tid: MAIN,
        submitter: Some(OTHER),
        completer: Some(OTHER),
        protocol: None,
        parent: None,
        hash: None,
    }
}

fn seen(id: u64, transfer: Transfer) -> [Event; 2] {
    let at = transfer.completed.or(transfer.submitted).unwrap_or_default();
    let event = |change| Event::Transfer { at, id: TransferId(id), change };
    [event(TransferChange::Seen(Box::new(transfer))), event(TransferChange::Asked(SENDS))]
}

fn resend() -> Vec<Event> {
    (0..5).flat_map(|id| seen(id, Transfer { hash: Some(9), ..transfer(10 + id * 100 * MS, MS) })).collect()
}

fn resent() -> Vec<Event> {
    segment(&[]).into_iter().chain(resend()).collect()
}

fn thread(tid: Tid, registered: u64, dispatched: u64, awake_ms: u64) -> TransferThread {
    TransferThread {
        at: Nanos(10 * SECOND),
        process: PROCESS,
        tid,
        registered,
        submitted: dispatched,
        dispatched,
        completed: dispatched,
        notified: 0,
        woken: 0,
        progress: 0,
        probed: Nanos(0),
        observed: Nanos(10 * SECOND),
        awake: Nanos(awake_ms * MS),
    }
}

fn busy_poll() -> Vec<Event> {
    vec![Event::TransferThread(thread(OTHER, 0, 500, 9_500))]
}

fn gil_of_progress() -> Vec<Event> {
    let threads = [thread(MAIN, 100, 0, 1000), thread(OTHER, 0, 100, 1000)].map(Event::TransferThread);
    threads.into_iter().chain((1..=25).map(|round| gil_wait(round * 100 * MS, MS))).collect()
}

/// Transfers that take 1 ms, and whose waiters are woken 8 ms later, after a wait for the GIL of `waited` nanoseconds.
fn told_late(waited: u64) -> Vec<Event> {
    let round = |id: u64| {
        let over = id * 20 * MS + MS;
        let change = TransferChange::Woken { notified: Nanos(over), tid: OTHER };
        let woken = Event::Transfer { at: Nanos(over + 8 * MS), id: TransferId(id), change };
        let wait = (waited > 0).then(|| gil_wait(over + waited, waited));
        seen(id, transfer(id * 20 * MS, MS)).into_iter().chain(wait).chain([woken])
    };
    (0..40).flat_map(round).collect()
}

fn queue_grows() -> Vec<Event> {
    let queued = |id: u64| {
        let submitted = Some(Nanos((id + id / 2) * MS));
        Transfer { submitted, completed: submitted, ..transfer(id * MS, 0) }
    };
    (0..400).flat_map(|id| seen(id, queued(id))).collect()
}

fn unfinished() -> Vec<Event> {
    let open = Transfer { completed: None, completer: None, status: None, ..transfer(0, 0) };
    seen(0, open).into_iter().chain([Event::ProcessEnd { id: PROCESS, at: Nanos(SECOND) }]).collect()
}

fn not_stopped() -> Vec<Event> {
    let notifier = TransferThread { notified: 9, ..thread(OTHER, 0, 0, 0) };
    let (at, process, total) = (Nanos(5 * SECOND), PROCESS, Nanos(4 * SECOND));
    let (reason, count, length, waker) = (WaitReason::Lock, 1, total, None);
    let sleep = Sleep {
        from: at.saturating_sub(total),
        stacks: count,
        at,
        process,
        tid: MAIN,
        stack: SHUTDOWN,
        reason,
        count,
        total,
        length,
        waker,
    };
    vec![Event::TransferThread(notifier), Event::Sleep(sleep)]
}

/// Rounds of 100 ms: a transfer of 40 ms, then samples for 50 ms.
fn no_overlap() -> Vec<Event> {
    let round = |id: u64| {
        let begun = id * 100 * MS;
        let samples = (0..5).map(move |tick| sample(Nanos(begun + 45 * MS + tick * 10 * MS), COMPUTES));
        seen(id, transfer(begun, 40 * MS)).into_iter().chain(samples)
    };
    (0..100).flat_map(round).collect()
}

fn sample(at: Nanos, stack: StackId) -> Event {
    let (process, tid, cpu, weight, outcome) = (PROCESS, MAIN, 0, Nanos(10 * MS), Outcome::Complete);
    Event::Sample(Sample { at, process, tid, cpu, stack, weight, turn_us: None, outcome })
}

/// A sample in native code.
fn access(touched: Option<Touched>, element_of: Option<&str>) -> Event {
    let (at, process, element_of) = (Nanos(1), PROCESS, element_of.map(Into::into));
    Event::Access(Access { at, process, tid: MAIN, stack: COMPUTES, weight: 1, touched, stores: false, element_of })
}

fn dispatch() -> Vec<Event> {
    let object = Touched::Metadata(Some("numpy.ndarray".into()));
    let all = [(object, 30), (Touched::Static, 70), (array(), 4)];
    let accesses = all.into_iter().flat_map(|(touched, count)| (0..count).map(move |_| touched.clone()));
    accesses.map(|touched| access(Some(touched), Some("float64 8x40"))).collect()
}

fn array() -> Touched {
    Touched::Array("float64 9".into())
}

fn called_again() -> Vec<Event> {
    let call = |compared| {
        let (at, process, callee) = (Nanos(1), PROCESS, "cos".into());
        Event::Call(NativeCall {
            at,
            process,
            tid: MAIN,
            stack: COMPUTES,
            callee,
            called_by: CalledBy::default(),
            compared,
        })
    };
    let compared = [Compared::Arguments { varying: 0 }, Compared::Result { same: true }];
    (0..30).flat_map(|_| compared.map(call).into_iter().chain([access(None, None)])).collect()
}

fn copies() -> Vec<Event> {
    let (at, process, callee) = (Nanos(1), PROCESS, "concatenate".into());
    let compared = Compared::Copied { copied: 8000, added: 8 };
    let call = Event::Call(NativeCall {
        at,
        process,
        tid: MAIN,
        stack: COMPUTES,
        callee,
        called_by: CalledBy::default(),
        compared,
    });
    (0..30).flat_map(|_| [call.clone(), access(None, None)]).collect()
}

/// Samples in the Python code of a library, which `compute` calls every 24 µs.
fn chatty() -> Vec<Event> {
    let (at, process, callee) = (Nanos(1), PROCESS, "DataFrame.iterrows".into());
    let compared = Compared::Turns { count: 20, time: Nanos(480_000), bytes: Some(16) };
    let timed = Event::Call(NativeCall {
        at,
        process,
        tid: MAIN,
        stack: COMPUTES,
        callee,
        called_by: CalledBy::default(),
        compared,
    });
    (0..60).map(|tick| sample(Nanos(tick * 10 * MS), ITERATES)).chain([timed]).collect()
}

/// Pairs of equal values, or with `unread` stores of different values.
fn pairs(kind: PairKind, unread: Option<bool>) -> Vec<Event> {
    let (at, process, equal) = (Nanos(1), PROCESS, unread.is_none());
    let (first, second, touched) = (COMPUTES, COMPUTES, array());
    let pair = Pair { at, process, tid: MAIN, first, second, kind, touched, address: None, bytes: 8, equal, unread };
    vec![Event::Pair(pair); 30]
}

fn dead() -> Vec<Event> {
    pairs(PairKind::Store, Some(true))
}
