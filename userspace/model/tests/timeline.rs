//! Lanes over time: what each thread did for most of a slot, what existed, what was pending.

use std::sync::Arc;

use pyobs_model::findings::{self, Cost, Evidence, Finding, Severity, Target};
use pyobs_model::views::{Cells, Doing, LaneId, Slots, Stage, timeline};
use pyobs_model::*;

const SECOND: u64 = 1_000_000_000;
const PROCESS: ProcessRef = ProcessRef(0);
const MAIN: Tid = Tid(42);
const IO: Tid = Tid(43);

fn model() -> Model {
    let probes = Family::names();
    let mut model = Model::new(Meta { rate_hz: 100, probes, ..Meta::default() }, History::All);
    for (function, id) in ["compute", "receive"].into_iter().zip(0..) {
        let frame = Frame::python(function.into(), "/app/main.py".into(), Some(id + 1), None);
        model.apply(&Event::Frame { id: FrameId(id), frame });
        model.apply(&Event::Stack { id: StackId(id), frames: Arc::from([FrameId(id)]) });
    }
    for (id, pid) in [(0, 42), (1, 50)] {
        let process = Process { pid: Pid(pid), ppid: Pid(1), command: "python".into(), python: None, started: None };
        model.apply(&Event::Process { id: ProcessRef(id), process });
    }
    model
}

/// `at` is in hundredths of a second.
fn sample(at: u64, tid: Tid, stack: u32) -> Event {
    let (at, outcome) = (Nanos(at * SECOND / 100), Outcome::Complete);
    Event::Sample(Sample {
        at,
        process: PROCESS,
        tid,
        cpu: 0,
        stack: StackId(stack),
        weight: Nanos(10_000_000),
        turn_us: None,
        outcome,
    })
}

fn slept(at: u64, length: u64, tid: Tid, reason: WaitReason) -> Event {
    let (at, length) = (Nanos(at * SECOND / 100), Nanos(length * SECOND / 100));
    let (count, total) = (1, length);
    Event::Sleep(Sleep {
        from: at.saturating_sub(total),
        stacks: count,
        at,
        process: PROCESS,
        tid,
        stack: StackId(1),
        reason,
        count,
        total,
        length,
        waker: None,
    })
}

fn waited(at: u64, length: u64, tid: Tid) -> Event {
    let (at, length) = (Nanos(at * SECOND / 100), Nanos(length * SECOND / 100));
    let (stack, total) = (StackId(1), length);
    Event::GilWait(GilWait {
        from: at.saturating_sub(total),
        stacks: 1,
        at,
        process: PROCESS,
        tid,
        stack,
        holder: None,
        count: 1,
        total,
        length,
    })
}

/// The first second in ten slots.
fn tenths() -> Slots {
    Slots { from: Nanos(0), to: Nanos(SECOND), count: 10 }
}

fn lanes(events: impl IntoIterator<Item = Event>, slots: Slots) -> Vec<(LaneId, Cells)> {
    let mut model = model();
    events.into_iter().for_each(|event| model.apply(&event));
    let found = timeline(&model, &Selection::default(), slots);
    assert!(found.lanes.iter().all(|lane| match &lane.cells {
        Cells::Doing(cells) => cells.len() == slots.count,
        Cells::Amounts(cells) => cells.len() == slots.count,
    }));
    found.lanes.into_iter().map(|lane| (lane.id, lane.cells)).collect()
}

#[test]
fn a_slot_shows_what_a_thread_did_for_most_of_it() {
    let ran = |at| sample(at, MAIN, u32::from(at >= 30));
    // It runs for 0.5 s in two functions, waits for a lock, waits for the GIL, and then has no events.
    let events = (0..50).map(ran).chain([slept(70, 20, MAIN, WaitReason::Lock), waited(92, 21, MAIN)]);
    let found = lanes(events, tenths());
    let (compute, receive) = (Some(Doing::Ran(Some(FrameId(0)))), Some(Doing::Ran(Some(FrameId(1)))));
    let (lock, gil) = (Some(Doing::Waited(WaitReason::Lock)), Some(Doing::Waited(WaitReason::Gil)));
    let cells = vec![compute, compute, compute, receive, receive, lock, lock, gil, gil, gil];
    assert_eq!(found, [(LaneId::Thread(PROCESS, MAIN), Cells::Doing(cells))]);
}

#[test]
fn a_wait_may_begin_before_the_selected_time() {
    let slots = Slots { from: Nanos(SECOND / 2), ..tenths() };
    let found = lanes([slept(60, 60, IO, WaitReason::Io)], slots);
    let Cells::Doing(cells) = &found[0].1 else { panic!() };
    assert_eq!(cells.iter().filter(|cell| cell.is_some()).count(), 2);
}

#[test]
fn the_thread_that_runs_most_is_first() {
    let events = (0..20).map(|at| sample(at, MAIN, 0)).chain((0..40).map(|at| sample(at, IO, 0)));
    let ids: Vec<LaneId> = lanes(events, tenths()).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [LaneId::Thread(PROCESS, IO), LaneId::Thread(PROCESS, MAIN)]);
}

#[test]
fn lanes_of_arenas_segments_and_transfers_count_what_exists() {
    let arena = |id, at, change| Event::Arena { at: Nanos(at * SECOND / 10), id: ArenaId(id), change };
    let begun = |address| {
        let (process, kind) = (PROCESS, "pymalloc".into());
        ArenaChange::Begun(Arena { process, kind, address, bytes: 100, born: true, parent: None })
    };
    let segment = Segment {
        dev: 1,
        ino: 2,
        generation: 0,
        kind: SegmentKind::Shm,
        name: None,
        linked: true,
        bytes: 7,
        creator: Some(Pid(42)),
    };
    let transfer = |completed| Transfer {
        process: PROCESS,
        library: Library::Ucx,
        operation: Operation::TagSend,
        bytes: 4096,
        tag: None,
        through: 0,
        buffer: 0,
        registered: None,
        submitted: Some(Nanos(2 * SECOND / 10)),
        completed,
        immediate: false,
        status: None,
        tid: MAIN,
        submitter: None,
        completer: None,
        protocol: None,
        parent: None,
        hash: None,
    };
    let seen = |id, transfer| {
        let change = TransferChange::Seen(Box::new(transfer));
        Event::Transfer { at: Nanos(2 * SECOND / 10), id: TransferId(id), change }
    };
    let events = [
        arena(0, 0, begun(0x1000)),
        arena(1, 5, begun(0x9000)),
        arena(0, 7, ArenaChange::Died),
        Event::Segment { at: Nanos(8 * SECOND / 10), id: SegmentId(0), change: SegmentChange::Begun(segment) },
        seen(0, transfer(Some(Nanos(4 * SECOND / 10)))),
        seen(1, transfer(None)),
    ];
    let found = lanes(events, tenths());
    assert_eq!(
        found,
        [
            (LaneId::Transfers(PROCESS, Stage::Pending), Cells::Amounts(vec![0, 0, 2, 2, 2, 1, 1, 1, 1, 1])),
            (LaneId::Segment(SegmentId(0)), Cells::Amounts(vec![0, 0, 0, 0, 0, 0, 0, 0, 7, 7])),
            (LaneId::Arenas(PROCESS, None), Cells::Amounts(vec![100, 100, 100, 100, 100, 200, 200, 200, 100, 100])),
        ]
    );
}

#[test]
fn the_first_lane_shows_what_was_shed_if_anything() {
    let ran = || (0..100).map(|at| sample(at, MAIN, 0));
    assert!(lanes(ran(), tenths()).iter().all(|(id, _)| *id != LaneId::Shed));
    let measure =
        |tenth: u64, family: &str, measure: &str, on| Event::measure(Nanos(tenth * SECOND / 10), family, measure, on);
    let sheds = [
        measure(1, "offcpu", "stacks 1/8", true),
        measure(4, "cpu", "samples 1/2", true),
        measure(6, "offcpu", "stacks 1/8", false),
        // This measure is never taken back.
        measure(8, "gil", "off", true),
        measure(9, "cpu", "samples 1/2", false),
    ];
    let found = lanes(ran().chain(sheds.clone()), tenths());
    assert_eq!(found[0], (LaneId::Shed, Cells::Amounts(vec![0, 1, 1, 1, 2, 2, 1, 1, 2, 1])));
    let before = Slots { to: Nanos(SECOND / 10 - 1), ..tenths() };
    assert_eq!(lanes(ran().chain(sheds), before)[0].0, LaneId::Thread(PROCESS, MAIN));
}

#[test]
fn findings_are_marked_where_their_events_happened() {
    let mut model = model();
    let kind = SegmentKind::Shm;
    let segment = Segment { dev: 1, ino: 1, generation: 0, kind, name: None, linked: true, bytes: 7, creator: None };
    let of_segment = |at, change| Event::Segment { at: Nanos(at * SECOND / 10), id: SegmentId(0), change };
    let access = |at: u64, stack| {
        let (at, weight, touched, stores) = (Nanos(at * SECOND / 100), 1, None, false);
        let (process, tid, stack) = (PROCESS, MAIN, StackId(stack));
        Event::Access(Access { at, process, tid, stack, weight, touched, stores, element_of: None })
    };
    for event in [
        waited(45, 20, MAIN),
        waited(95, 1, IO),
        of_segment(6, SegmentChange::Begun(segment)),
        of_segment(8, SegmentChange::Gone),
        access(5, 0),
        access(77, 1),
    ] {
        model.apply(&event);
    }
    let marks = |target, key: Option<&'static str>| {
        let evidence = key.into_iter().map(|key| (key, Evidence::Count(1))).collect();
        let (id, severity) = ("a/b", Severity::Info);
        let (summary, detail, advice) = (String::new(), String::new(), String::new());
        let (process, pid, cost, target) = (Some(PROCESS), None, Cost::default(), Some(target));
        let finding = Finding { id, severity, summary, detail, advice, process, pid, evidence, cost, target };
        let marks = findings::marks(&model, &Selection::default(), tenths(), &finding);
        (0..10).filter(|slot| marks[*slot]).collect::<Vec<_>>()
    };
    assert_eq!(marks(Target::GilWaits(MAIN), None), [2, 3, 4]);
    assert_eq!(marks(Target::Worker(IO), Some("waits")), [9]);
    assert_eq!(marks(Target::Worker(IO), None), [] as [usize; 0], "not of the time in which it waits");
    assert_eq!(marks(Target::Segment(SegmentId(0)), None), [6, 7, 8]);
    assert_eq!(marks(Target::Line(FrameId(0)), None), [0]);
    assert_eq!(marks(Target::Line(FrameId(1)), None), [7]);
    assert_eq!(marks(Target::MemInfos(None), None), [] as [usize; 0]);
}

#[test]
fn the_timeline_does_not_grow_with_events() {
    let threads = (0..2000).map(|tid| sample(tid % 100, Tid(tid as u32), 0));
    let mut model = model();
    threads.for_each(|event| model.apply(&event));
    let found = timeline(&model, &Selection::default(), Slots { count: 250, ..tenths() });
    assert!(found.lanes.len() <= 64);
    assert_eq!(found.lanes.len() + found.others, 2000);
}

#[test]
fn huge_times_do_not_overflow() {
    for slots in [tenths(), Slots { count: 0, ..tenths() }, Slots { to: Nanos(0), ..tenths() }] {
        lanes([slept(u64::MAX / SECOND, u64::MAX / SECOND, MAIN, WaitReason::Io), waited(1, 200, IO)], slots);
    }
}
