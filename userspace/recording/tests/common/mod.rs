//! Synthetic recordings.

#![allow(clippy::allow_attributes, dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod meta;

use std::path::Path;
use std::sync::Arc;

pub use meta::meta;
use pyobs_model::*;
use pyobs_recording::{Reader, Writer};

/// The same numbers in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Of each sample.
pub const WEIGHT: Nanos = Nanos(10_101_010);

pub fn frame(kind: FrameKind, function: &str, file: &str, line: u32) -> Frame {
    let python = kind == FrameKind::Python;
    Frame {
        kind,
        function: function.into(),
        module: (!python).then(|| file.into()),
        file: python.then(|| file.into()),
        line: python.then_some(line),
        first_line: python.then_some(line / 10 * 10),
        package: None,
    }
}

/// A machine with `processes` Python processes whose stacks are `depth` deep.
pub struct Program {
    random: Random,
    depth: u64,
    frames: u32,
    stacks: u32,
    processes: u32,
    pub at: u64,
}

impl Program {
    pub fn new(seed: u64, processes: u32, depth: u64) -> Self {
        Self { random: Random(seed), depth, frames: 0, stacks: 0, processes, at: 0 }
    }

    pub fn start(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for id in 0..self.processes {
            let process = Process {
                pid: Pid(4000 + id),
                ppid: Pid(1),
                command: format!("/usr/bin/python3.12 worker.py {id}").into(),
                python: Some("3.12.1".into()),
                started: (id % 2 == 1).then_some(Nanos(u64::from(id))),
            };
            events.push(Event::Process { id: ProcessRef(id), process });
            events.push(Event::Thread { process: ProcessRef(id), tid: Tid(4000 + id), name: "MainThread".into() });
        }
        for line in 0..400 {
            let (function, file) = (format!("Model.step_{}", line / 10), format!("/srv/app/module_{}.py", line / 40));
            events.push(Event::Frame {
                id: FrameId(self.frames),
                frame: frame(FrameKind::Python, &function, &file, line),
            });
            self.frames += 1;
        }
        events
    }

    /// A sample, `step` after the one before; one in 16 has a stack that was not there yet.
    pub fn sample(&mut self, step: u64, events: &mut Vec<Event>) {
        self.at += step;
        if self.stacks == 0 || self.random.below(16) == 0 {
            let base = self.random.below(8) * 50;
            let frames: Arc<[FrameId]> = (0..self.depth)
                // Lines change more the nearer to the leaf.
                .map(|depth| {
                    FrameId((base + depth + if self.random.below(self.depth) < depth / 4 { 1 } else { 0 }) as u32)
                })
                .collect();
            events.push(Event::Stack { id: StackId(self.stacks), frames });
            self.stacks += 1;
        }
        let process = self.random.below(u64::from(self.processes)) as u32;
        events.push(Event::Sample(Sample {
            at: Nanos(self.at),
            process: ProcessRef(process),
            tid: Tid(4000 + process),
            cpu: self.random.below(2) as u32,
            stack: StackId(self.random.below(u64::from(self.stacks)) as u32),
            weight: WEIGHT,
            turn_us: None,
            outcome: Outcome::Complete,
        }));
    }
}

/// A process in a container of Kubernetes.
fn placement() -> Placement {
    let some = |text: &str| Some(text.to_owned());
    let container = Container {
        engine: some("containerd"),
        id: "4f".repeat(32),
        name: some("web"),
        image: some("registry/shop:7"),
        pod_uid: some("0-1"),
        pod: some("shop-7"),
        namespace: some("\u{1b}[31m"),
    };
    let (user, cgroup) = (Some("www-data".into()), Some("/kubepods/pod0-1/4f".into()));
    Placement { uid: Some(33), user, cgroup, container: Some(Arc::new(container)) }
}

/// Events of every kind, definitions first and times in order: as a replay gives them.
pub fn every_event() -> Vec<Event> {
    let python = frame(FrameKind::Python, "Node.insert", "/app/tree.py", 42);
    let nasty = frame(FrameKind::Python, "\u{1b}[31m;\n<script>\0", "/app/\u{202e}x.py", 7);
    let native = frame(FrameKind::Native, "memcpy", "libc.so.6", 0);
    let kernel = frame(FrameKind::Kernel, "page_fault", "vmlinux", 0);
    let mut events: Vec<Event> = [python, nasty, native, kernel]
        .into_iter()
        .zip(0..)
        .map(|(frame, id)| Event::Frame { id: FrameId(id), frame })
        .collect();
    let stacks: [&[u32]; 6] = [&[0, 1], &[0, 1, 2, 3], &[], &[0, 1], &[2, 2, 2], &[1, 0]];
    events.extend(
        stacks.iter().zip(0..).map(|(frames, id)| Event::Stack {
            id: StackId(id),
            frames: frames.iter().map(|id| FrameId(*id)).collect(),
        }),
    );
    for (id, kind, name) in [(0, TaskKind::Asyncio, Some("Task-\u{1b}1")), (1, TaskKind::Coroutine, None)] {
        let task = Task { process: ProcessRef(id), kind, name: name.map(Into::into), coroutine: FrameId(1) };
        events.push(Event::Task { id: TaskId(id), task });
    }
    events.extend([(1, 0), (5, 1)].map(|(stack, task)| Event::StackTask { stack: StackId(stack), task: TaskId(task) }));
    let process = Process {
        pid: Pid(4242),
        ppid: Pid(1),
        command: "python3.12 -m app".into(),
        python: Some("3.12.1".into()),
        started: None,
    };
    let other = Process { pid: Pid(4243), python: None, started: Some(Nanos(10)), ..process.clone() };
    events.push(Event::Process { id: ProcessRef(0), process });
    events.push(Event::Process { id: ProcessRef(1), process: other });
    events.extend(
        [(0, placement()), (1, Placement::default())]
            .map(|(id, placement)| Event::Placement { process: ProcessRef(id), placement }),
    );
    events.push(Event::Thread { process: ProcessRef(0), tid: Tid(4242), name: "MainThread".into() });
    events.push(Event::Thread { process: ProcessRef(1), tid: Tid(9), name: "".into() });
    let outcomes = [Outcome::Complete, Outcome::Truncated, Outcome::NoPython];
    let failed = Reason::ALL.iter().map(|reason| Outcome::Failed(*reason));
    for (outcome, at) in outcomes.into_iter().chain(failed).zip(1u32..) {
        events.push(Event::Sample(Sample {
            at: Nanos(u64::from(at) * 1_000_000_007),
            process: ProcessRef(at % 2),
            tid: Tid(4242),
            cpu: at % 3,
            stack: StackId(at % 6),
            weight: WEIGHT,
            turn_us: std::num::NonZeroU32::new(at % 4),
            outcome,
        }));
    }
    let waker = Waker { pid: Pid(1), tid: Tid(7), name: "\u{1b}waker".into() };
    for (reason, at) in WaitReason::ALL.iter().zip(1..) {
        events.push(Event::Sleep(Sleep {
            from: Nanos(100_000_000_000 + at).saturating_sub(Nanos(at * 2_000_000)),
            stacks: at,
            at: Nanos(100_000_000_000 + at),
            process: ProcessRef(at as u32 % 2),
            tid: Tid(4242),
            stack: StackId(at as u32 % 6),
            reason: *reason,
            count: at,
            total: Nanos(at * 1_000_000),
            length: Nanos(at),
            waker: (at % 2 == 0).then(|| waker.clone()),
        }));
    }
    for at in 1..4 {
        events.push(Event::GilWait(GilWait {
            from: Nanos(200_000_000_000 + at * 5_000_000).saturating_sub(Nanos(5_000_000)),
            stacks: u64::from(at == 1),
            at: Nanos(200_000_000_000 + at * 5_000_000),
            process: ProcessRef(0),
            tid: Tid(4242),
            stack: StackId(1),
            holder: (at < 3).then_some(GilHolder { tid: Tid(4250), stack: StackId(at as u32 + 2) }),
            count: u64::from(at == 1),
            total: Nanos(5_000_000),
            length: Nanos(4_000_000),
        }));
    }
    let at = Nanos(300_000_000_000);
    events.extend(heap_changes().into_iter().zip(1..).map(|(change, before)| Event::Heap {
        at: Nanos(at.0 - 10 + before),
        process: ProcessRef(0),
        change,
    }));
    events.push(Event::GilHeld { at, process: ProcessRef(0), tid: Tid(4250), held: Nanos(250_000_000_000) });
    let (function, max) = (FrameId(0), Nanos(50));
    let calls =
        Calls { at: Nanos(at.0 + 1), process: ProcessRef(0), function, count: 9, timed: 8, total: Nanos(99), max };
    events.push(Event::Calls(calls));
    events.extend(arena_changes().into_iter().zip(2..).map(|(change, after)| Event::Arena {
        at: Nanos(at.0 + after),
        id: ArenaId(u32::from(after == 3)),
        change,
    }));
    let meminfo = |after, id, change| Event::MemInfo { at: Nanos(at.0 + after), id: MemInfoId(id), change };
    let born = |bytes| MemInfoChange::Born { process: ProcessRef(0), bytes, data: bytes & 0xff0, stack: StackId(1) };
    events.push(meminfo(12, 0, born(40_000)));
    events.push(meminfo(12, 0, MemInfoChange::Referenced(3)));
    events.push(meminfo(13, 1, born(8)));
    events.push(meminfo(13, 1, MemInfoChange::Died));
    events.extend(segment_changes().into_iter().zip(14..).map(|(change, after)| Event::Segment {
        at: Nanos(at.0 + after),
        id: SegmentId(u32::from(after == 15)),
        change,
    }));
    events.extend(transfer_events(at));
    let access = |after, touched| Access {
        at: Nanos(at.0 + after),
        process: ProcessRef(0),
        tid: Tid(4250),
        stack: StackId(1),
        weight: 2,
        touched,
        stores: true,
        element_of: (after == 61).then(|| "float64 8x40".into()),
    };
    events.push(Event::Access(access(60, None)));
    events.push(Event::Access(access(61, Some(Touched::Metadata(None)))));
    events.push(Event::Access(access(62, Some(Touched::Array("float64 3x4".into())))));
    let pair = |after, kind, touched, unread: Option<bool>| Pair {
        at: Nanos(at.0 + after),
        process: ProcessRef(0),
        tid: Tid(4250),
        first: StackId(0),
        second: StackId(1),
        kind,
        touched,
        address: unread.map(|_| 0x7f12_3456_7008),
        bytes: 8,
        equal: true,
        unread,
    };
    events.push(Event::Pair(pair(63, PairKind::Load, Touched::Static, None)));
    events.push(Event::Pair(pair(64, PairKind::Store, Touched::Unknown, Some(true))));
    let call = |after, called_by, compared| NativeCall {
        at: Nanos(at.0 + after),
        process: ProcessRef(0),
        tid: Tid(4250),
        stack: StackId(1),
        callee: "cos".into(),
        called_by,
        compared,
    };
    events.push(Event::Call(call(65, CalledBy::Innermost, Compared::Arguments { varying: 5 })));
    events.push(Event::Call(call(66, CalledBy::Program, Compared::Result { same: true })));
    events.push(Event::Call(call(
        67,
        CalledBy::Library,
        Compared::Turns { count: 4, time: Nanos(96_000), bytes: Some(16) },
    )));
    let sampler = Sampler::Pebs;
    let counts =
        Watchpoints { sampler, samples: 9, undecoded: 1, armed: 8, traps: 20, timed_out: 2, taken: 3, storms: 4 };
    events.push(Event::Watchpoints { at: Nanos(at.0 + 68), counts });
    let resident = Resident { total: 9 << 40, anonymous: 1, files: 2, shared: 3, segments: 4, share: 5 };
    events.push(Event::Resident { at: Nanos(at.0 + 100), process: ProcessRef(0), resident });
    let change = ArenaChange::Slab { address: 0x7f00_0000_1000, bytes: 8192 };
    events.push(Event::Arena { at: Nanos(at.0 + 101), id: ArenaId(0), change });
    for (after, state, awaits) in [(110, Some(TaskState::Waiting), Some(TaskId(1))), (111, None, None)] {
        let (at, task, stack) = (Nanos(at.0 + after), TaskId(0), StackId(1));
        events.push(Event::TaskStatus(TaskStatus { at, task, state, awaits, stack }));
    }
    let (quota, period) = (Nanos(20_000_000), Nanos(100_000_000));
    let cpu = CpuLimit { quota, period, periods: 9, throttled_periods: 8, throttled: Nanos(1 << 40) };
    let memory = MemoryLimit { limit_bytes: 1 << 50, used_bytes: 1 << 49, killed: 3 };
    events.push(Event::Machine { at: Nanos(at.0 + 111), used: Nanos(1 << 50) });
    for (after, cpu, memory) in [(112, Some(cpu), None), (113, None, Some(memory)), (114, Some(cpu), Some(memory))] {
        events.push(Event::Limits(Limits { at: Nanos(at.0 + after), cgroup: "/docker/4f".into(), cpu, memory }));
    }
    let at = Nanos(3_600_000_000_000);
    events.push(Event::Loss { at, reason: Reason::RingFull, count: 12 });
    events.push(Event::Cost {
        at: Nanos(at.0 + 1),
        bpf: Nanos(5),
        cpu: Nanos(7),
        startup: Nanos(3),
        rss_bytes: 34 << 20,
    });
    events.push(Event::Shed { at: Nanos(at.0 + 2), what: "kernel stacks were left out".into() });
    events.push(Event::ProcessEnd { id: ProcessRef(1), at: Nanos(at.0 + 3) });
    events.push(Event::measure(Nanos(at.0 + 4), "offcpu", "stacks 1/8", true));
    events
}

/// All that can happen to private memory.
fn heap_changes() -> [HeapChange; 6] {
    let (address, bytes, stack) = (u64::MAX >> 1, 4096, StackId(1));
    [
        HeapChange::Counted { anonymous: 1, files: 2, shared: 3 },
        HeapChange::Inherited { parent: ProcessRef(1) },
        HeapChange::Mapped { address, bytes, stack },
        HeapChange::Touched { address, bytes, anonymous: 7, stack },
        HeapChange::Moved { address, bytes, to: 0x1000 },
        HeapChange::Freed { address: 0x1000, bytes },
    ]
}

/// Two segments begin, and everything happens to the first.
fn segment_changes() -> Vec<SegmentChange> {
    let first = Segment {
        dev: 27,
        ino: u64::MAX >> 1,
        generation: u32::MAX,
        kind: SegmentKind::Shm,
        name: Some("psm_\u{1b}[31m\n".into()),
        linked: true,
        bytes: 1 << 40,
        creator: Some(Pid(4242)),
    };
    let second =
        Segment { ino: 7, kind: SegmentKind::Anonymous, name: None, linked: false, creator: None, ..first.clone() };
    let (from, to) = (Pid(4242), Pid(4243));
    vec![
        SegmentChange::Begun(first),
        SegmentChange::Begun(second),
        SegmentChange::Born(StackId(1)),
        SegmentChange::Holds { pid: from, fds: 2, mappings: 1 },
        SegmentChange::Resized(1 << 41),
        SegmentChange::Unlinked { by: Some(from) },
        SegmentChange::Unlinked { by: None },
        SegmentChange::Sent { from },
        SegmentChange::Passed { from: Some(from), to },
        SegmentChange::Passed { from: None, to },
        SegmentChange::Ended { pid: to },
        SegmentChange::Released,
        SegmentChange::Gone,
        // Each of the tables that these are in is in order by itself.
        SegmentChange::Mapped { pid: from, address: 0x7fff_0000_0000, bytes: 1 << 40, offset: 4096 },
        SegmentChange::Unmapped { pid: from, address: 0x7fff_0000_0000, bytes: 4096 },
        SegmentChange::Allocated(1 << 39),
        SegmentChange::Shown { pid: from, resident: 1 << 38, share: 1 << 37 },
    ]
}

#[track_caller]
pub fn write(path: &Path, events: &[Event]) {
    let mut writer = Writer::create(path, &meta()).unwrap();
    writer.append(events).unwrap();
    writer.finish().unwrap();
}

#[track_caller]
pub fn read(path: &Path) -> Vec<Event> {
    let mut reader = Reader::open(path).unwrap();
    let mut events = Vec::new();
    reader.replay(|event| events.push(event)).unwrap();
    assert_eq!(reader.damage(), None);
    events
}

fn arena_changes() -> Vec<ArenaChange> {
    let (process, kind) = (ProcessRef(0), "pymalloc".into());
    let first = Arena { process, kind, address: 0x7f00_0000_0000, bytes: 1 << 20, born: true, parent: None };
    let second = Arena { kind: "\u{1b}lib".into(), born: false, parent: Some(ArenaId(0)), ..first.clone() };
    vec![
        ArenaChange::Begun(first),
        ArenaChange::Begun(second),
        ArenaChange::Born(StackId(1)),
        ArenaChange::Filled(Filled { slabs: 63, used: 7, bytes: 1 << 40 }),
        ArenaChange::Objects(Objects { born: 1 << 40, dead: 9, slabs: 3, bytes: 1 << 33 }),
        ArenaChange::Closed { escaped: 2, popped: false },
        ArenaChange::Closed { escaped: 0, popped: true },
        ArenaChange::Escaped(StackId(1)),
        ArenaChange::Died,
        ArenaChange::Mistaken,
    ]
}

fn transfer_events(at: Nanos) -> Vec<Event> {
    let own = |after| Nanos(at.0 + after);
    let transfer = Transfer {
        process: ProcessRef(0),
        library: Library::Ucxx,
        operation: Operation::TagSend,
        bytes: 1 << 20,
        tag: Some(u64::MAX),
        through: 0xffff_8000_0000_0001,
        buffer: 0x7f00_0000_1000,
        registered: Some(own(40)),
        submitted: Some(own(41)),
        completed: Some(own(45)),
        immediate: false,
        status: Some(-25),
        tid: Tid(1),
        submitter: Some(Tid(2)),
        completer: Some(Tid(2)),
        parent: Some(TransferId(5)),
        hash: Some(u64::MAX - 1),
        protocol: Some(Protocol::Rendezvous),
    };
    let bare = Transfer {
        library: Library::Ucx,
        operation: Operation::MultiRecv,
        tag: None,
        registered: None,
        submitted: None,
        completed: None,
        status: None,
        submitter: None,
        completer: None,
        parent: None,
        hash: None,
        protocol: None,
        ..transfer
    };
    let change = |after, id, change| Event::Transfer { at: own(after), id: TransferId(id), change };
    vec![
        change(40, 5, TransferChange::Asked(StackId(1))),
        change(45, 6, TransferChange::Seen(Box::new(transfer))),
        change(46, 5, TransferChange::Seen(Box::new(bare))),
        change(47, 6, TransferChange::Woken { notified: own(46), tid: Tid(3) }),
        Event::Transfers(Transfers {
            at: own(48),
            process: ProcessRef(0),
            library: Library::Ucxx,
            operation: Operation::TagSend,
            count: 3,
            bytes: 3 << 20,
            immediate: 1,
            failed: 1,
            spent: Nanos(12),
            unfollowed: 1,
            every: 2,
        }),
        Event::TransferThread(TransferThread {
            at: own(49),
            process: ProcessRef(0),
            tid: Tid(2),
            registered: 0,
            submitted: 3,
            dispatched: 3,
            completed: 2,
            notified: 0,
            woken: 1,
            progress: 40,
            probed: Nanos(30_000),
            observed: Nanos(1_000_000),
            awake: Nanos(500_000),
        }),
    ]
}
