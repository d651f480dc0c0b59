//! Synthetic events with known shares: 1000 samples within 10 s.

use std::sync::Arc;

use pyobs_model::{
    Arena, ArenaChange, ArenaId, Calls, Container, Event, Family, Filled, Frame, FrameId, FrameKind, GilHolder,
    GilWait, HeapChange, History, MemInfoChange, MemInfoId, Meta, Model, Nanos, Outcome, Pid, Placement, Process,
    ProcessRef, Reason, Resident, Sample, Segment, SegmentChange, SegmentId, SegmentKind, Sleep, StackId, Tid,
    WaitReason, Waker,
};

use crate::ReplayLog;

pub(crate) fn meta() -> Meta {
    Meta {
        started: "2026-10-02T08:15:00Z".into(),
        host: "build-7".into(),
        kernel: "6.1.0-37-amd64".into(),
        pyobs: "0.1.0".into(),
        rate_hz: 99,
        cpus: 0,
        probes: vec!["cpu".into()],
        sampler: "cpu-clock".into(),
        ..Meta::default()
    }
}

pub(crate) fn model() -> Model {
    Model::new(meta(), History::Window { length: Nanos(60_000_000_000), samples: 100_000 })
}

/// A model with these families on.
pub(crate) fn model_of(families: &[Family]) -> Model {
    let probes = families.iter().map(|family| family.name().to_owned()).collect();
    Model::new(Meta { probes, ..meta() }, History::Window { length: Nanos(60_000_000_000), samples: 100_000 })
}

/// A log in the order of a recording: by time, with those without a time first.
pub(crate) fn log(meta: Meta, mut events: Vec<Event>) -> ReplayLog {
    events.sort_by_key(Event::at);
    ReplayLog::of_events(meta, events)
}

pub(crate) fn python(function: &str, file: &str, line: u32) -> Frame {
    Frame::python(function.into(), file.into(), Some(line), Some(line / 10 * 10 + 1))
}

pub(crate) fn compiled(kind: FrameKind, function: &str, module: &str) -> Frame {
    Frame { module: Some(module.into()), ..Frame::new(kind, function.into()) }
}

pub(crate) fn process(pid: u32, python: Option<&str>, command: &str) -> Process {
    Process { pid: Pid(pid), ppid: Pid(1), command: command.into(), python: python.map(Into::into), started: None }
}

pub(crate) fn define(frames: &[Frame], stacks: &[&[u32]]) -> Vec<Event> {
    define_more((0, frames), (0, stacks))
}

/// Defines frames and stacks, each with the first id to use.
fn define_more(frames: (u32, &[Frame]), stacks: (u32, &[&[u32]])) -> Vec<Event> {
    let frames = (frames.0..).map(FrameId).zip(frames.1).map(|(id, frame)| Event::Frame { id, frame: frame.clone() });
    let stacks = (stacks.0..).map(StackId).zip(stacks.1).map(|(id, stack)| {
        let frames: Arc<[FrameId]> = stack.iter().map(|id| FrameId(*id)).collect();
        Event::Stack { id, frames }
    });
    frames.chain(stacks).collect()
}

pub(crate) fn sample(at_ms: u64, process: u32, tid: u32, stack: u32, outcome: Outcome) -> Event {
    let at = Nanos(at_ms * 1_000_000);
    Event::Sample(Sample {
        at,
        process: ProcessRef(process),
        tid: Tid(tid),
        cpu: 0,
        stack: StackId(stack),
        weight: Nanos(10_101_010),
        turn_us: None,
        outcome,
    })
}

pub(crate) fn events() -> Vec<Event> {
    let packages = "/srv/app/.venv/lib/python3.12/site-packages";
    let frames = [
        python("<module>", "/srv/app/train.py", 88),
        python("Trainer.fit", "/srv/app/trainer.py", 142),
        python("Trainer.fit", "/srv/app/trainer.py", 145),
        python("Linear.forward", &format!("{packages}/net/layers.py"), 61),
        compiled(FrameKind::Native, "cblas_dgemm", "libopenblas.so.0"),
        python("normalize", "/srv/app/normalize.py", 31),
        compiled(FrameKind::Kernel, "clear_page_erms", "kernel"),
        python("<module>", "/usr/bin/gunicorn", 8),
        python("Cart.total.<locals>.<genexpr>", "/opt/web/shop/cart.py", 104),
        python("walk", "/opt/web/shop/tree.py", 12),
    ];
    let stacks: &[&[u32]] = &[&[0, 1, 3, 4], &[0, 2, 5], &[0, 2, 5, 6], &[7, 8], &[7, 9, 9, 9], &[4]];
    let mut events = define(&frames, stacks);
    for (id, state) in (0..).map(ProcessRef).zip([
        process(4242, Some("3.12.1"), "/srv/app/.venv/bin/python3 -m train --epochs 40"),
        process(918, Some("3.11.2"), "/usr/bin/python3 /usr/bin/gunicorn shop.wsgi"),
        Process { ppid: Pid(918), ..process(77120, Some("3.8.20"), "python3.8 idle.py") },
        process(77121, Some("3.13.1"), "python3.13 gone.py"),
    ]) {
        events.push(Event::Process { id, process: state });
    }
    let container = Container { id: "4f".repeat(32), name: Some("trainer".to_owned()), ..Container::default() };
    for (id, uid, user, container) in [(0, 1000, Some("train"), Some(container)), (1, 33, None, None)] {
        let (process, user) = (ProcessRef(id), user.map(Into::into));
        let placement = Placement { uid: Some(uid), user, cgroup: None, container: container.map(Arc::new) };
        events.push(Event::Placement { process, placement });
    }
    for (id, tid, name) in [(0, 4242, "python3"), (0, 4243, "loader-0"), (1, 918, "gunicorn"), (2, 77120, "python3.8")]
    {
        events.push(Event::Thread { process: ProcessRef(id), tid: Tid(tid), name: name.into() });
    }
    // Per 100 samples: 40 dgemm, 20 + 10 normalize, 15 genexpr, 10 walk, 5 without Python.
    let shape = |n: u64| match n {
        0..40 => (0, 4242, 0, Outcome::Complete),
        40..60 => (0, 4243, 1, Outcome::Complete),
        60..70 => (0, 4243, 2, Outcome::Complete),
        70..85 => (1, 918, 3, Outcome::Complete),
        85..94 => (1, 918, 4, Outcome::Complete),
        94..95 => (1, 918, 4, Outcome::Truncated),
        95..96 => (0, 4242, 5, Outcome::Failed(Reason::FrameUnreadable)),
        _ => (0, 4242, 5, Outcome::NoPython),
    };
    for n in 0..1000 {
        let (process, tid, stack, outcome) = shape(n % 100);
        events.push(sample(n * 10, process, tid, stack, outcome));
    }
    events.push(Event::ProcessEnd { id: ProcessRef(3), at: Nanos(5_000_000_000) });
    let loss = |reason, count| Event::Loss { at: Nanos(9_000_000_000), reason, count };
    events.extend([loss(Reason::NotAttachedYet, 7), loss(Reason::RingFull, 1234)]);
    for seconds in [9, 10] {
        events.push(Event::Cost {
            at: Nanos(seconds * 1_000_000_000),
            bpf: Nanos(seconds * 600_000),
            cpu: Nanos(seconds * 3_400_000),
            startup: Nanos(0),
            rss_bytes: 41 << 20,
        });
    }
    events
}

pub(crate) fn sleep(at_ms: u64, process: u32, tid: u32, stack: u32, reason: WaitReason) -> Sleep {
    let (at, length) = (Nanos(at_ms * 1_000_000), Nanos(12_000_000));
    let (process, tid, stack) = (ProcessRef(process), Tid(tid), StackId(stack));
    Sleep {
        from: at.saturating_sub(length),
        stacks: 1,
        at,
        process,
        tid,
        stack,
        reason,
        count: 1,
        total: length,
        length,
        waker: None,
    }
}

pub(crate) fn waker(tid: u32, name: &str) -> Option<Waker> {
    Some(Waker { pid: Pid(tid), tid: Tid(tid), name: name.into() })
}

/// A wait of 5 ms in process 0.
pub(crate) fn gil_wait(at_ms: u64, tid: u32, stack: u32, holder: Option<(u32, u32)>) -> GilWait {
    let (at, length) = (Nanos(at_ms * 1_000_000), Nanos(5_000_000));
    let holder = holder.map(|(tid, stack)| GilHolder { tid: Tid(tid), stack: StackId(stack) });
    let (process, tid, stack) = (ProcessRef(0), Tid(tid), StackId(stack));
    GilWait {
        from: at.saturating_sub(length),
        stacks: 1,
        at,
        process,
        tid,
        stack,
        holder,
        count: 1,
        total: length,
        length,
    }
}

pub(crate) fn calls(at_ms: u64, process: u32, function: u32, count: u64, timed: u64, mean_ns: u64) -> Event {
    let (at, process, function) = (Nanos(at_ms * 1_000_000), ProcessRef(process), FrameId(function));
    let (total, max) = (Nanos(timed * mean_ns), Nanos(if timed > 0 { mean_ns * 9 } else { 0 }));
    Event::Calls(Calls { at, process, function, count, timed, total, max })
}

/// [`events`], with sleeps, waits for the GIL and calls within the same 10 s.
pub(crate) fn waiting() -> Vec<Event> {
    let library = "/usr/lib/python3.12";
    let frames = [
        python("Queue.get", &format!("{library}/queue.py"), 171),
        python("Condition.wait", &format!("{library}/threading.py"), 355),
        compiled(FrameKind::Native, "pthread_cond_timedwait", "libc.so.6"),
        compiled(FrameKind::Kernel, "futex_wait", "kernel"),
        compiled(FrameKind::Native, "_PyFunction_Vectorcall", "python3.12"),
        compiled(FrameKind::Native, "__recv", "libc.so.6"),
        compiled(FrameKind::Kernel, "__x64_sys_recvfrom", "kernel"),
        python("receive", "/srv/app/client.py", 25),
        python("Thread.run", &format!("{library}/threading.py"), 1010),
        compiled(FrameKind::Native, "take_gil", "python3.12"),
        compiled(FrameKind::Native, "__poll", "libc.so.6"),
        compiled(FrameKind::Kernel, "__x64_sys_poll", "kernel"),
        python("Cart.total", "/opt/web/shop/cart.py", 101),
    ];
    let stacks: &[&[u32]] = &[
        &[18, 14, 10, 14, 11, 12, 13],
        &[18, 14, 17, 15, 16],
        &[18, 14, 17, 19],
        &[7, 20, 21],
        &[12, 13],
        &[18, 14, 14, 10, 11, 12, 13],
    ];
    let mut events = events();
    events.extend(define_more((10, &frames), (6, stacks)));
    for n in 0..100 {
        let lock = sleep(n * 100, 0, 4243, if n % 4 == 0 { 11 } else { 6 }, WaitReason::Lock);
        let waker = waker(4242, "python3");
        let total = Nanos(31_000_000);
        let from = lock.at.saturating_sub(total);
        events.push(Event::Sleep(Sleep { from, count: 3, total, stacks: 3, waker, ..lock }));
        if n % 4 == 0 {
            events.push(Event::Sleep(sleep(n * 100, 0, 4243, 7, WaitReason::Io)));
            let total = Nanos(380_000_000);
            let poll = sleep(n * 100, 1, 918, 9, WaitReason::Poll);
            let (from, waker) = (poll.at.saturating_sub(total), self::waker(1, "nginx: worker"));
            events.push(Event::Sleep(Sleep { from, total, length: total, waker, ..poll }));
            events.push(Event::Sleep(sleep(n * 100, 0, 4244, 10, WaitReason::Other)));
        }
    }
    for n in 0..480 {
        events.push(Event::GilWait(gil_wait(n * 20, 4243, 8, Some((4242, if n % 3 == 0 { 2 } else { 0 })))));
    }
    let short = Nanos(120_000);
    for at in [3000, 6000] {
        let wait = gil_wait(at, 4242, 0, Some((4243, 8)));
        let from = wait.at.saturating_sub(short);
        events.push(Event::GilWait(GilWait { from, total: short, length: short, ..wait }));
    }
    let wait = gil_wait(7000, 4244, 10, None);
    let from = wait.at.saturating_sub(short);
    events.push(Event::GilWait(GilWait { from, total: short, length: short, ..wait }));
    for (process, tid, ms) in [(0, 4242, 8500), (0, 4243, 200), (1, 918, 1200)] {
        let (process, held) = (ProcessRef(process), Nanos(ms * 1_000_000));
        events.push(Event::GilHeld { at: Nanos(9_900_000_000), process, tid: Tid(tid), held });
    }
    events.extend([
        calls(9_900, 0, 5, 1_234_567, 1_234_567, 1_840),
        calls(9_900, 0, 3, 5_000, 4_990, 830_000),
        calls(9_900, 1, 22, 42, 0, 0),
        calls(9_900, 1, 9, 90_000, 90_000, 12_000),
    ]);
    events
}

/// [`waiting`], with arenas, MemInfos, and segments of every kind and verdict.
pub(crate) fn sharing() -> Vec<Event> {
    let mut events = waiting();
    events.extend(arenas());
    events.extend(heap());
    events.extend(meminfos());
    let mut emit = |at_ms: u64, id: u32, change| {
        events.push(Event::Segment { at: Nanos(at_ms * 1_000_000), id: SegmentId(id), change });
    };
    let segment = |ino: u64, kind, name: Option<&str>, bytes, creator: Option<u32>| {
        let linked = matches!(kind, SegmentKind::Shm | SegmentKind::File);
        let (name, creator) = (name.map(Into::into), creator.map(Pid));
        SegmentChange::Begun(Segment { dev: 27, ino, generation: 7, kind, name, linked, bytes, creator })
    };
    let holds = |pid: u32, fds, mappings| SegmentChange::Holds { pid: Pid(pid), fds, mappings };
    let (first, second) = (Pid(4242), Pid(918));
    emit(1_000, 0, segment(23, SegmentKind::Shm, Some("tensor_4242_8d4fec54"), 64 << 20, Some(first.0)));
    emit(1_000, 0, SegmentChange::Born(StackId(11)));
    emit(1_000, 0, holds(first.0, 2, 1));
    emit(1_001, 0, SegmentChange::Unlinked { by: Some(first) });
    emit(1_200, 0, SegmentChange::Sent { from: first });
    emit(1_201, 0, holds(second.0, 1, 0));
    emit(1_201, 0, SegmentChange::Passed { from: Some(first), to: second });
    emit(1_202, 0, holds(second.0, 2, 1));
    emit(2_000, 1, segment(24, SegmentKind::Memfd, Some("arrow-buffer"), 3 << 20, Some(second.0)));
    emit(2_000, 1, holds(second.0, 1, 1));
    emit(5_000, 1, holds(second.0, 0, 0));
    emit(5_000, 1, SegmentChange::Released);
    emit(3_000, 2, segment(25, SegmentKind::Shm, Some("psm_\u{1b}[31m"), 1 << 20, Some(first.0)));
    emit(3_000, 2, SegmentChange::Born(StackId(6)));
    emit(3_000, 2, holds(7_000, 1, 1));
    emit(4_000, 2, SegmentChange::Ended { pid: Pid(7_000) });
    emit(0, 3, segment(26, SegmentKind::Anonymous, None, 4_096, None));
    emit(0, 3, holds(second.0, 0, 1));
    emit(6_000, 4, segment(27, SegmentKind::File, Some("cache.db"), 700 << 10, None));
    emit(9_000, 0, SegmentChange::Allocated(48 << 20));
    emit(9_000, 0, SegmentChange::Shown { pid: second, resident: 40 << 20, share: 20 << 20 });
    emit(6_000, 4, holds(first.0, 1, 1));
    for (process, mib) in [(0, 100), (1, 60)] {
        let (total, anonymous, segments) = (mib << 20, 30 << 20, 40 << 20);
        let resident = Resident { total, anonymous, files: 9 << 20, shared: 44 << 20, segments, share: 20 << 20 };
        events.push(Event::Resident { at: Nanos(9_000_000_000), process: ProcessRef(process), resident });
    }
    events.sort_by_key(Event::at);
    events
}

/// Waits at four places, and the memory of two processes.
pub(crate) fn quiet() -> Vec<Event> {
    let mut events = events();
    for (round, (stack, reason)) in
        (1..).zip([(0, WaitReason::Io), (1, WaitReason::Lock), (3, WaitReason::Poll), (4, WaitReason::Sleep)])
    {
        let sleep = sleep(9_000 + round * 100, u32::from(stack > 2), 4242, stack, reason);
        let length = Nanos(round * 20_000_000);
        events.push(Event::Sleep(Sleep { total: length, length, from: sleep.at.saturating_sub(length), ..sleep }));
    }
    for second in 0..=10 {
        events.push(Event::Machine { at: Nanos(second * 1_000_000_000), used: Nanos(second * 1_700_000_000) });
    }
    for (process, mebibytes) in [(0, 900), (1, 60)] {
        let resident = Resident { total: mebibytes << 20, anonymous: 30 << 20, ..Resident::default() };
        events.push(Event::Resident { at: Nanos(9_500_000_000), process: ProcessRef(process), resident });
    }
    events.sort_by_key(Event::at);
    events
}

/// A block, objects in an arena and other memory, of a process that was there before.
fn heap() -> Vec<Event> {
    let touched = |address, mib: u64, stack| {
        let (bytes, anonymous, stack) = (mib << 20, 30 << 20, StackId(stack));
        HeapChange::Touched { address, bytes, anonymous, stack }
    };
    let in_arena = 0x7f12_3400_0000_u64 + (1 << 20) + 4096;
    let changes = [
        HeapChange::Mapped { address: 0x7e00_0000_0000, bytes: 16 << 20, stack: StackId(11) },
        touched(0x7e00_0000_1000, 9, 6),
        touched(in_arena, 5, 6),
        touched(0x5600_0000_1000, 3, 11),
        HeapChange::Counted { anonymous: 30 << 20, files: 9 << 20, shared: 44 << 20 },
    ];
    let event =
        |(second, change): (u64, _)| Event::Heap { at: Nanos(second * 1_000_000_000), process: ProcessRef(0), change };
    (2..).zip(changes).map(event).collect()
}

fn arenas() -> Vec<Event> {
    let mut events = Vec::new();
    let mut emit = |at_ms: u64, id: u32, change| {
        events.push(Event::Arena { at: Nanos(at_ms * 1_000_000), id: ArenaId(id), change });
    };
    for id in 0..40_u32 {
        let at = 1_000 + u64::from(id) * 10;
        let (kind, address) = ("pymalloc".into(), 0x7f12_3400_0000 + (u64::from(id) << 20));
        let arena = Arena { process: ProcessRef(0), kind, address, bytes: 1 << 20, born: id > 1, parent: None };
        emit(at, id, ArenaChange::Begun(arena));
        if id > 1 {
            emit(at, id, ArenaChange::Born(StackId(if id < 30 { 11 } else { 6 })));
        }
        let used = if id < 30 { 2 } else { 64 };
        emit(9_000, id, ArenaChange::Filled(Filled { slabs: 64, used, bytes: u64::from(used) * 15_000 }));
        if id % 10 == 9 {
            emit(5_000, id, ArenaChange::Died);
        }
    }
    let (kind, address) = ("pymalloc".into(), 0x7f00_0000_0000);
    let arena = Arena { process: ProcessRef(1), kind, address, bytes: 256 << 10, born: false, parent: None };
    emit(2_000, 40, ArenaChange::Begun(arena));
    events
}

fn meminfos() -> Vec<Event> {
    let meminfo =
        |at_ms: u64, id: u32, change| Event::MemInfo { at: Nanos(at_ms * 1_000_000), id: MemInfoId(id), change };
    let born = |stack, bytes| MemInfoChange::Born { process: ProcessRef(0), bytes, data: 0, stack: StackId(stack) };
    let kept = (0..30).map(|id| meminfo(1_000, id, born(11, 80_000)));
    let gone = (30..90).flat_map(|id| [meminfo(2_000, id, born(6, 64)), meminfo(2_001, id, MemInfoChange::Died)]);
    kept.chain(gone).collect()
}
