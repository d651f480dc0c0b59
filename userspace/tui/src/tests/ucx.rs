//! Synthetic transfers of UCX, and tests of how the screens show them.

use insta::assert_snapshot;
use pyobs_model::{
    Arena, ArenaChange, ArenaId, Event, Library, Nanos, Operation, ProcessRef, Protocol, StackId, Tid, Transfer,
    TransferChange, TransferId, TransferThread,
};

use super::{Bench, LARGE, USUAL, synthetic};

const MICRO: u64 = 1_000;
/// An arena with some of the buffers.
pub(super) const ARENA: ArenaId = ArenaId(900);

pub(super) fn transfer(id: u64) -> Transfer {
    let begun = Nanos(id * 8_000_000);
    let after = |micros: u64| Some(begun.saturating_add(Nanos(micros * MICRO)));
    let sends = id.is_multiple_of(2);
    Transfer {
        process: ProcessRef(0),
        library: Library::Ucxx,
        operation: if sends { Operation::TagSend } else { Operation::TagRecv },
        bytes: 4096 << (id % 9),
        tag: Some(0x1_0000 + id),
        through: 0x5555_0000_1000,
        buffer: 0x7f12_0000_0000 + id * 4096,
        registered: Some(begun),
        submitted: after(40 + id % 7),
        completed: (id != 99).then(|| after(400 + id * 3)).flatten(),
        immediate: false,
        status: (id != 99).then_some(if id == 98 { -25 } else { 0 }),
        tid: Tid(4242),
        submitter: Some(Tid(4243)),
        completer: Some(Tid(4243)),
        parent: None,
        hash: None,
        protocol: Some(if id.is_multiple_of(3) { Protocol::Eager } else { Protocol::Rendezvous }),
    }
}

pub(super) fn seen(id: u64, transfer: Transfer) -> [Event; 2] {
    let at = transfer.completed.or(transfer.submitted).unwrap_or_default();
    let id = TransferId(id);
    [TransferChange::Seen(Box::new(transfer)), TransferChange::Asked(StackId(11))].map(|change| Event::Transfer {
        at,
        id,
        change,
    })
}

/// The totals of a thread after 10 s.
pub(super) fn thread(tid: u32, registered: u64, dispatched: u64, woken: u64, awake_ms: u64) -> Event {
    Event::TransferThread(TransferThread {
        at: Nanos(9_900_000_000),
        process: ProcessRef(0),
        tid: Tid(tid),
        registered,
        submitted: dispatched,
        dispatched,
        completed: dispatched,
        notified: 0,
        woken,
        progress: dispatched / 4,
        probed: Nanos(if dispatched == 0 { 0 } else { 30_000_000 }),
        observed: Nanos(10_000_000_000),
        awake: Nanos(awake_ms * 1_000_000),
    })
}

pub(super) fn events() -> Vec<Event> {
    let mut events = synthetic::waiting();
    let (kind, address) = ("pymalloc".into(), 0x7f12_0000_0000);
    let arena = Arena { process: ProcessRef(0), kind, address, bytes: 1 << 20, born: true, parent: None };
    for change in [ArenaChange::Begun(arena), ArenaChange::Born(StackId(6))] {
        events.push(Event::Arena { at: Nanos(0), id: ARENA, change });
    }
    for id in 0..100 {
        let transfer = transfer(id);
        events.extend(seen(id, transfer));
        let id = TransferId(id);
        if let Some(over) = transfer.completed {
            let (notified, at) = (over.saturating_add(Nanos(20 * MICRO)), over.saturating_add(Nanos(300 * MICRO)));
            events.push(Event::Transfer { at, id, change: TransferChange::Woken { notified, tid: Tid(4242) } });
        }
    }
    events.extend([thread(4242, 100, 0, 99, 1_500), thread(4243, 0, 100, 0, 400)]);
    events
}

#[test]
fn names_of_threads_include_their_roles_on_all_screens() {
    // Processes, waits, waits for the GIL, the timeline, and the Overview's line about the GIL.
    for (keys, names) in [
        ("1t", ["python3 event_loop", "loader-0 progress"].as_slice()),
        ("4", &["4243 loader-0 progress"]),
        ("4m", &["4242 python3 event_loop", "4243 loader-0 progress"]),
        ("9", &["4242 python3 event_loop", "4243 loader-0 progress"]),
        ("0", &["4242 python3 event"]),
    ] {
        let picture = Bench::watching((200, 50)).keys(keys).picture();
        assert!(names.iter().all(|name| picture.contains(name)), "{keys}: {picture}");
    }
}

#[test]
fn timeline() {
    for size in [USUAL, LARGE] {
        let keys = format!("9{}{}", "↓".repeat(7), "←".repeat(size.0.into()));
        assert_snapshot!(format!("timeline_{}x{}", size.0, size.1), Bench::watching(size).keys(&keys).picture());
    }
}
