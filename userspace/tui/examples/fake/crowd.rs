//! The example's crowded machine: 200 processes with events of all families.

use pyobs_model::{
    Access, Arena, ArenaChange, ArenaId, Event, Filled, FrameId, Library, MemInfoChange, MemInfoId, Nanos, Operation,
    Pair, PairKind, Pid, ProcessRef, Protocol, Segment, SegmentChange, SegmentId, SegmentKind, StackId, Tid, Touched,
    Transfer, TransferChange, TransferId, TransferThread, WaitReason,
};

use super::programs::Program;
use super::{Activity, Fake, frame};

const PROCESSES: u32 = 200;
/// Stacks, arenas and transfers per process.
const STACKS: u32 = 10;
const DEPTH: u32 = 25;
const ARENAS: u32 = 20;
/// Each process emits events in one of this many rounds.
const ROUNDS: u32 = 10;
const MAPPED: u64 = 0x7f00_0000_0000;

fn pid(index: u32) -> u32 {
    10_000 + index * 8
}

fn process(index: u32) -> ProcessRef {
    ProcessRef(index)
}

fn stack(index: u32, nth: u32) -> StackId {
    StackId(index * STACKS + nth % STACKS)
}

/// 200 processes and 50,000 frames, with waits, segments, arenas and MemInfos.
pub(super) fn many(events: &mut Vec<Event>) -> Fake {
    let programs = (0..PROCESSES)
        .map(|index| Program {
            pid: pid(index),
            python: Some("3.12.1"),
            command: "python3 worker.py --queue default",
            threads: &["python3", "progress"],
            shapes: "",
            busy: 1,
        })
        .collect();
    let mut fake = Fake::new(programs, events);
    for ((_, shapes), index) in fake.programs.iter_mut().zip(0..) {
        for nth in 0..STACKS {
            let StackId(number) = stack(index, nth);
            let frames = number * DEPTH..(number + 1) * DEPTH;
            for id in frames.clone() {
                let text = format!("function_{} /srv/many/module_{}.py {}", id % 5000, id % 300, 1 + id / 5000);
                events.push(Event::Frame { id: FrameId(id), frame: frame(&text) });
            }
            events.push(Event::Stack { id: StackId(number), frames: frames.map(FrameId).collect() });
            shapes.push((Activity::Samples(1), StackId(number)));
        }
        let mut wait =
            |reason, thread, ms, nth| shapes.push((Activity::Wait { reason, thread, ms }, stack(index, nth)));
        wait(WaitReason::Poll, 0, 600, 0);
        wait(WaitReason::Io, 0, 200, 1);
        wait(WaitReason::Sleep, 1, 500, 2);
        if index % 4 == 0 {
            wait(WaitReason::Lock, 1, 300, 3);
            wait(WaitReason::Gil, 1, 100, 4);
        }
        share(index, events);
    }
    fake.crowd = Some(Crowd::default());
    fake
}

/// A segment that the process shares with the next one, and arenas.
fn share(index: u32, events: &mut Vec<Event>) {
    let (at, bytes, own) = (Nanos(0), u64::from(1 + index % 64) << 20, Pid(pid(index)));
    let (kind, name, creator) = (SegmentKind::Shm, Some(format!("tensor_{index}").into()), Some(own));
    let segment = Segment { dev: 27, ino: index.into(), generation: 0, kind, name, linked: true, bytes, creator };
    let holds = |pid| SegmentChange::Holds { pid, fds: 1, mappings: 1 };
    let changes = [
        SegmentChange::Begun(segment),
        SegmentChange::Born(stack(index, 0)),
        holds(own),
        SegmentChange::Mapped { pid: own, address: MAPPED, bytes, offset: 0 },
        holds(Pid(pid((index + 1) % PROCESSES))),
        SegmentChange::Allocated(bytes / 2),
    ];
    events.extend(changes.map(|change| Event::Segment { at, id: SegmentId(index), change }));
    (0..ARENAS).for_each(|nth| create_arena(at, index, nth, events));
}

/// The `nth` arena of a process.
fn arena(index: u32, nth: u32) -> ArenaId {
    ArenaId(nth * PROCESSES + index)
}

fn create_arena(at: Nanos, index: u32, nth: u32, events: &mut Vec<Event>) {
    let ArenaId(id) = arena(index, nth);
    let (process, kind, address) = (process(index), "pymalloc".into(), u64::from(id + 1) << 20);
    let arena = Arena { process, kind, address, bytes: 1 << 20, born: true, parent: None };
    let used = 8 + id % 50;
    let filled = Filled { slabs: 64, used, bytes: u64::from(used) * 15_000 };
    let changes = [ArenaChange::Begun(arena), ArenaChange::Born(stack(index, id)), ArenaChange::Filled(filled)];
    events.extend(changes.map(|change| Event::Arena { at, id: ArenaId(id), change }));
}

/// The data of an array in an arena. Every other process frees the previous one.
fn meminfo(at: Nanos, index: u32, nth: u32, events: &mut Vec<Event>) {
    let (ArenaId(id), bytes) = (arena(index, nth), 4096 << (index % 9));
    let (process, data, stack) = (process(index), u64::from(id + 1) << 20, stack(index, nth % 3));
    let change = MemInfoChange::Born { process, bytes, data, stack };
    events.push(Event::MemInfo { at, id: MemInfoId(id), change });
    if let Some(before) = nth.checked_sub(1).filter(|_| index.is_multiple_of(2)) {
        let ArenaId(id) = arena(index, before);
        events.push(Event::MemInfo { at, id: MemInfoId(id), change: MemInfoChange::Died });
    }
}

/// Emits what goes on besides samples and waits.
#[derive(Default)]
pub(super) struct Crowd {
    round: u32,
    transfers: u64,
}

impl Crowd {
    pub(super) fn emit(&mut self, at: Nanos, events: &mut Vec<Event>) {
        let (turn, rest) = (self.round / ROUNDS, self.round % ROUNDS);
        for index in (0..PROCESSES).filter(|index| index % ROUNDS == rest) {
            // A new arena replaces the oldest one.
            events.push(Event::Arena { at, id: arena(index, turn), change: ArenaChange::Died });
            create_arena(at, index, turn + ARENAS, events);
            meminfo(at, index, turn, events);
            self.transfer(at, index, u64::from(turn), events);
            access(at, index, turn, events);
        }
        self.round += 1;
    }

    /// A transfer out of the process's segment by its second thread.
    fn transfer(&mut self, at: Nanos, index: u32, turn: u64, events: &mut Vec<Event>) {
        let (tid, progress) = (Tid(pid(index)), Tid(pid(index) + 1));
        let before = |micros: u64| Some(Nanos(at.0.saturating_sub(micros * 1000)));
        let transfer = Transfer {
            process: process(index),
            library: Library::Ucxx,
            operation: if index.is_multiple_of(2) { Operation::TagSend } else { Operation::TagRecv },
            bytes: 4096 << (index % 9),
            tag: Some(turn),
            through: 0x5555_0000_1000,
            buffer: MAPPED + 4096 * (turn % 16),
            registered: before(900 + u64::from(index)),
            submitted: before(850),
            completed: before(300),
            immediate: false,
            status: Some(0),
            tid,
            submitter: Some(progress),
            completer: Some(progress),
            parent: None,
            hash: None,
            protocol: Some(Protocol::Rendezvous),
        };
        let woken = TransferChange::Woken { notified: before(290).unwrap_or_default(), tid };
        let id = TransferId(self.transfers);
        self.transfers += 1;
        let changes = [TransferChange::Seen(Box::new(transfer)), TransferChange::Asked(stack(index, 5)), woken];
        events.extend(changes.map(|change| Event::Transfer { at, id, change }));
        let thread = |tid, registered, handed| TransferThread {
            at,
            process: process(index),
            tid,
            registered,
            submitted: handed,
            dispatched: handed,
            completed: handed,
            notified: 0,
            woken: registered,
            progress: handed * 20,
            probed: Nanos(handed * 1_000_000),
            observed: at,
            awake: Nanos(at.0 / 50),
        };
        events.extend([thread(tid, turn + 1, 0), thread(progress, 0, turn + 1)].map(Event::TransferThread));
    }
}

/// Accesses to objects, arrays and other memory, and a pair of stores that is sometimes equal.
fn access(at: Nanos, index: u32, turn: u32, events: &mut Vec<Event>) {
    let (process, tid) = (process(index), Tid(pid(index)));
    let array = || Touched::Array("float64 32x256".into());
    let object = || Touched::Metadata(Some("numpy.ndarray".into()));
    for (touched, nth) in [object(), array(), Touched::Static, Touched::Unknown].into_iter().zip(turn..) {
        let (stack, touched) = (stack(index, nth), Some(touched));
        events.push(Event::Access(Access {
            at,
            process,
            tid,
            stack,
            weight: 1,
            touched,
            stores: nth % 2 == 0,
            element_of: None,
        }));
    }
    let (first, second, equal) = (stack(index, turn), stack(index, turn + 1), turn.is_multiple_of(2));
    let (kind, touched, unread) = (PairKind::Store, array(), None);
    events.push(Event::Pair(Pair {
        at,
        process,
        tid,
        first,
        second,
        kind,
        touched,
        address: None,
        bytes: 8,
        equal,
        unread,
    }));
}
