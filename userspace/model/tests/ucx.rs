//! Sums over transfers, and findings about them.

#[path = "ucx/workers.rs"]
mod workers;

use std::sync::Arc;

use pyobs_model::findings::{self, Evidence, Finding};
use pyobs_model::report::Report;
use pyobs_model::views::{self, Role, Stage};
use pyobs_model::*;

const MICRO: u64 = 1_000;
const MS: u64 = 1000 * MICRO;
const SECOND: u64 = 1000 * MS;
const PROCESS: ProcessRef = ProcessRef(0);
const MAIN: Tid = Tid(42);
const PROGRESS: Tid = Tid(43);
const NOTIFIER: Tid = Tid(44);
/// Size of a UCXX header message: a bool, a word, 100 words of four bytes and 100 of eight (cpp/include/ucxx/header.h).
const HEADER_BYTES: u64 = 1 + 8 + 100 * 4 + 100 * 8;
/// Stacks of `model`: a line that sends, and one in `threading._shutdown`.
const SENDS: StackId = StackId(0);
const SHUTDOWN: StackId = StackId(1);

fn model(history: History) -> Model {
    let probes = Family::names();
    let mut model = Model::new(Meta { rate_hz: 99, probes, ..Meta::default() }, history);
    let python = |function: &str, file: &str, line| Frame::python(function.into(), file.into(), Some(line), Some(1));
    for (frame, id) in
        [python("step", "/app/main.py", 31), python("_shutdown", "/lib/threading.py", 1592)].into_iter().zip(0..)
    {
        model.apply(&Event::Frame { id: FrameId(id), frame });
        model.apply(&Event::Stack { id: StackId(id), frames: Arc::from([FrameId(id)]) });
    }
    let process = Process { pid: Pid(42), ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: PROCESS, process });
    for tid in [MAIN, PROGRESS, NOTIFIER] {
        model.apply(&Event::Thread { process: PROCESS, tid, name: "python".into() });
    }
    model
}

/// A transfer of 4 KiB. The main thread requests it, another one hands it over 10 µs later and completes it 100 µs
/// after that.
fn transfer(begun: u64) -> Transfer {
    Transfer {
        process: PROCESS,
        library: Library::Ucxx,
        operation: Operation::TagSend,
        bytes: 4096,
        tag: Some(7),
        through: 0xe0,
        buffer: 0x1000,
        registered: Some(Nanos(begun)),
        submitted: Some(Nanos(begun + 10 * MICRO)),
        completed: Some(Nanos(begun + 110 * MICRO)),
        immediate: false,
        status: Some(0),
        tid: MAIN,
        submitter: Some(PROGRESS),
        completer: Some(PROGRESS),
        protocol: None,
        parent: None,
        hash: None,
    }
}

fn seen(id: u64, transfer: Transfer) -> Event {
    let at = transfer.completed.or(transfer.submitted).unwrap_or_default();
    Event::Transfer { at, id: TransferId(id), change: TransferChange::Seen(Box::new(transfer)) }
}

fn woken(id: u64, notified: u64, at: u64) -> Event {
    let change = TransferChange::Woken { notified: Nanos(notified), tid: MAIN };
    Event::Transfer { at: Nanos(at), id: TransferId(id), change }
}

fn thread(tid: Tid, registered: u64, dispatched: u64, awake: u64) -> TransferThread {
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
        awake: Nanos(awake),
    }
}

fn filled(events: impl IntoIterator<Item = Event>) -> Model {
    let mut model = model(History::All);
    for event in events {
        model.apply(&event);
    }
    model
}

fn found(model: &Model, id: &str) -> Vec<Finding> {
    findings::find(model, &Selection::default()).into_iter().filter(|finding| finding.id == id).collect()
}

fn number(finding: &Finding, name: &str) -> f64 {
    match &finding.evidence[name] {
        Evidence::Count(count) => *count as f64,
        Evidence::Number(number) => *number,
        Evidence::Text(text) => panic!("{name} is {text}"),
    }
}

#[test]
fn stages_have_percentiles_and_histograms_by_powers_of_two() {
    let pending = |micros: u64| {
        let own = transfer(0);
        Transfer { completed: Some(Nanos(own.submitted.unwrap().0 + micros * MICRO)), ..own }
    };
    let model = filled((1..=100).map(|micros| seen(micros, pending(micros))));
    let stages = views::stages(&model.ucx().transfers().map(|(_, state)| state));
    let (stage, spread) = stages[1];
    assert_eq!((stage, spread.count), (Stage::Pending, 100));
    let micros = [spread.p50, spread.p90, spread.p99, spread.max].map(|time| time.0 / MICRO);
    assert_eq!(micros, [50, 90, 99, 100]);
    // Buckets: 1; 2 and 3; 4 to 7; … 64 to 100.
    assert_eq!(spread.histogram[..9], [0, 1, 2, 4, 8, 16, 32, 37, 0]);
    for (bucket, micros) in [(0, 0), (1, 1), (2, 2), (7, 64)] {
        assert_eq!(views::bucket_start(bucket), Nanos(micros * MICRO));
    }
    assert_eq!(stages[0].1.max, Nanos(10 * MICRO));
    assert_eq!(stages[3].1.count, 0);
}

#[test]
fn the_queue_counts_registered_transfers_not_handed_over() {
    let at = |registered, submitted: Option<u64>| Transfer {
        registered: Some(Nanos(registered)),
        submitted: submitted.map(Nanos),
        ..transfer(0)
    };
    let here = Transfer { submitter: Some(MAIN), ..at(2, Some(90)) };
    let of = [at(0, Some(50)), at(10, Some(60)), here, at(20, Some(100)), at(70, None)];
    let model = filled(of.into_iter().zip(0..).map(|(transfer, id)| seen(id, transfer)));
    let queue = views::queue(&model, &Selection::default());
    let depths: Vec<(u64, u64)> = queue.iter().map(|(at, depth)| (at.0, *depth)).collect();
    assert_eq!(depths, [(0, 1), (10, 2), (20, 3), (50, 2), (60, 1), (70, 2), (100, 1)]);
    assert_eq!(views::queue_over_time(&queue, 4), [3, 3, 3, 2]);
    assert_eq!(views::queue_over_time(&queue, 1), [3]);
    assert!(views::queue_over_time(&queue, 0).is_empty() && views::queue_over_time(&[], 9).is_empty());
}

#[test]
fn the_order_of_events_does_not_matter() {
    let asked = Event::Transfer { at: Nanos(1), id: TransferId(3), change: TransferChange::Asked(SENDS) };
    let events = [asked, seen(3, transfer(0)), woken(3, 120 * MICRO, 150 * MICRO)];
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let all = orders.map(|order| filled(order.map(|index| events[index].clone())));
    for model in &all {
        let state = model.ucx().get(TransferId(3)).unwrap();
        assert_eq!((state.stack, state.ended()), (Some(SENDS), Some(Nanos(150 * MICRO))));
        assert_eq!(Some(state), all[0].ucx().get(TransferId(3)));
    }
}

#[test]
fn old_transfers_are_forgotten_even_behind_a_pending_one() {
    let mut model = model(History::Window { length: Nanos(2 * SECOND), samples: 50 });
    let open = Transfer { completed: None, completer: None, status: None, ..transfer(0) };
    model.apply(&seen(0, open));
    let known = |model: &Model| model.ucx().transfers().map(|(id, _)| id.0).collect::<Vec<_>>();
    for second in 1..=9 {
        model.apply(&seen(second, transfer(second * SECOND)));
        model.advance(Nanos(second * SECOND + MS));
    }
    assert_eq!(known(&model), [0, 8, 9]);
    // Even if they come within a short time.
    for id in 10..200 {
        model.apply(&seen(id, transfer(9 * SECOND + id)));
    }
    assert_eq!(model.ucx().transfers().count(), 50);
}

#[test]
fn transfers_of_several_buffers_do_not_count_header_messages() {
    let part = |bytes| Transfer { bytes, parent: Some(TransferId(1)), ..transfer(0) };
    // One of the buffers is as large as a header message.
    let sizes = [HEADER_BYTES, 100, 200, HEADER_BYTES];
    let whole = Transfer { operation: Operation::MultiSend, bytes: 0, ..transfer(0) };
    let parts = sizes.into_iter().zip(2..).map(|(bytes, id)| seen(id, part(bytes)));
    let model = filled([seen(1, whole)].into_iter().chain(parts));
    let rows = views::transfers(&model, &Selection::default());
    assert_eq!(rows[0].2, 300 + HEADER_BYTES);
    // The parts say how long it was pending.
    assert_eq!(views::stages(&rows.iter().map(|row| row.1))[1].1.count, 4);
}

#[test]
fn late_notification_of_python_is_found() {
    let wakes = |late: u64| {
        filled((0..40).flat_map(|id| {
            let over = id * 20 * MS + 110 * MICRO;
            [seen(id, transfer(id * 20 * MS)), woken(id, over + MICRO, over + MICRO + late)]
        }))
    };
    let model = wakes(8 * MS);
    let [finding] = &found(&model, "ucx/slow-notify")[..] else { panic!() };
    assert!((number(finding, "p90_s") - 0.008).abs() < 1e-9);
    assert!(found(&wakes(MS), "ucx/slow-notify").is_empty());
}

#[test]
fn a_growing_queue_is_found_but_a_constantly_long_one_is_not() {
    let queued = |behind: fn(u64) -> u64| {
        filled((0..400).map(|id| {
            let registered = id * MS;
            let submitted = Some(Nanos(registered + behind(id) * MS));
            seen(id, Transfer { submitted, completed: submitted, ..transfer(registered) })
        }))
    };
    let model = queued(|id| id / 2);
    let [finding] = &found(&model, "ucx/queue-grows")[..] else { panic!() };
    assert!(number(finding, "last") > 2.0 * number(finding, "first"));
    assert!(found(&queued(|_| 100), "ucx/queue-grows").is_empty());
    assert!(found(&queued(|id| id % 8), "ucx/queue-grows").is_empty());
}

#[test]
fn gil_waits_of_the_progress_thread_are_found() {
    let waits = |tid, count| {
        let (at, length) = (Nanos(SECOND), Nanos(MS));
        let wait = GilWait {
            from: at.saturating_sub(length),
            stacks: count,
            at,
            process: PROCESS,
            tid,
            stack: SENDS,
            holder: None,
            count,
            total: length,
            length,
        };
        let threads = [thread(MAIN, 100, 0, SECOND), thread(PROGRESS, 0, 100, SECOND)];
        let threads = threads.map(Event::TransferThread);
        filled(threads.into_iter().chain([Event::GilWait(wait)]))
    };
    let [finding] = &found(&waits(PROGRESS, 25), "ucx/gil-on-progress-thread")[..] else { panic!() };
    assert!((number(finding, "waits") - 25.0).abs() < 1e-9);
    assert!(finding.summary.ends_with("mostly at step (/app/main.py:31)"), "{}", finding.summary);
    assert!(found(&waits(PROGRESS, 5), "ucx/gil-on-progress-thread").is_empty());
    assert!(found(&waits(MAIN, 25), "ucx/gil-on-progress-thread").is_empty());
}

#[test]
fn transfers_in_flight_at_process_exit_are_found() {
    let open = Transfer { completed: None, status: None, completer: None, ..transfer(0) };
    let asked = Event::Transfer { at: Nanos(1), id: TransferId(1), change: TransferChange::Asked(SENDS) };
    let alive = [seen(1, open), asked, seen(2, transfer(0))];
    assert!(found(&filled(alive.clone()), "ucx/unfinished").is_empty());
    let ended = Event::ProcessEnd { at: Nanos(SECOND), id: PROCESS };
    let [finding] = &found(&filled(alive.into_iter().chain([ended])), "ucx/unfinished")[..] else { panic!() };
    assert!((number(finding, "unfinished") - 1.0).abs() < 1e-9);
    assert!(finding.detail.contains("main.py:31"), "{}", finding.detail);
}

#[test]
fn an_interpreter_that_waits_for_the_notifier_is_diagnosed() {
    let notifier = Event::TransferThread(TransferThread { notified: 9, ..thread(NOTIFIER, 0, 0, 0) });
    let sleep = |total| {
        let (at, total) = (Nanos(5 * SECOND), Nanos(total));
        let (reason, waker) = (WaitReason::Lock, None);
        Event::Sleep(Sleep {
            from: at.saturating_sub(total),
            stacks: 1,
            at,
            process: PROCESS,
            tid: MAIN,
            stack: SHUTDOWN,
            reason,
            count: 1,
            total,
            length: total,
            waker,
        })
    };
    let [finding] = &found(&filled([notifier.clone(), sleep(4 * SECOND)]), "ucx/unfinished")[..] else { panic!() };
    assert!(finding.summary.contains("threading._shutdown") && finding.summary.contains("44"), "{}", finding.summary);
    assert!(found(&filled([notifier, sleep(10 * MS)]), "ucx/unfinished").is_empty());
    assert!(found(&filled([sleep(4 * SECOND)]), "ucx/unfinished").is_empty());
}

#[test]
fn resent_bytes_are_found() {
    let sent = |hash: fn(u64) -> u64, buffer: fn(u64) -> u64, bytes: fn(u64) -> u64| {
        let of = |id| Transfer { hash: Some(hash(id)), buffer: buffer(id), bytes: bytes(id), ..transfer(id * MS) };
        filled((0..5).map(|id| seen(id, of(id))))
    };
    let [finding] = &found(&sent(|_| 9, |_| 0x1000, |_| 4096), "ucx/resend")[..] else { panic!() };
    assert!((number(finding, "sends") - 5.0).abs() < 1e-9);
    assert!(found(&sent(|id| id, |_| 0x1000, |_| 4096), "ucx/resend").is_empty());
    assert!(found(&sent(|_| 9, |id| id << 20, |_| 4096), "ucx/resend").is_empty());
    assert!(found(&sent(|_| 9, |_| 0x1000, |id| 4096 + id), "ucx/resend").is_empty());
    assert!(found(&sent(|_| 9, |_| 0x1000, |_| 4095), "ucx/resend").is_empty());
}

#[test]
fn the_report_names_the_arena_of_a_buffer() {
    let begun = |id, address, at| {
        let arena =
            Arena { process: PROCESS, kind: "pymalloc".into(), address, bytes: 0x1000, born: true, parent: None };
        Event::Arena { at: Nanos(at), id: ArenaId(id), change: ArenaChange::Begun(arena) }
    };
    let in_it = Transfer { buffer: 0x1fff, ..transfer(100) };
    let behind = Transfer { buffer: 0x2000, ..transfer(100) };
    let too_early = Transfer { buffer: 0x1000, ..transfer(1) };
    let born = Event::Arena { at: Nanos(50), id: ArenaId(0), change: ArenaChange::Born(SENDS) };
    let all = [begun(0, 0x1000, 50), born, seen(1, in_it), seen(2, behind), seen(3, too_early)];
    let model = filled(all);
    let report = Report::new(&model, &Selection::default(), None);
    let arena = report.arenas.unwrap()[0].id.clone();
    let regions: Vec<_> = report.transfers.unwrap().into_iter().map(|transfer| transfer.region).collect();
    let [Some(region), None, None] = &regions[..] else { panic!("{regions:?}") };
    assert_eq!((&region.id, region.born_at.as_ref().unwrap().line), (&arena, Some(31)));
}

#[test]
fn the_report_names_the_segment_and_meminfo_of_a_buffer() {
    let name = Some("psm_1".into());
    let segment = Segment {
        dev: 27,
        ino: 559,
        generation: 3,
        kind: SegmentKind::Shm,
        name,
        linked: true,
        bytes: 1 << 20,
        creator: None,
    };
    let change = |at, change| Event::Segment { at: Nanos(at), id: SegmentId(0), change };
    let mapped = SegmentChange::Mapped { pid: Pid(42), address: 0x10_0000, bytes: 0x10_0000, offset: 0 };
    let born = MemInfoChange::Born { process: PROCESS, bytes: 0x100, data: 0x10_8000, stack: SENDS };
    let at = |id, buffer, begun| seen(id, Transfer { buffer, ..transfer(begun) });
    let model = filled([
        change(10, SegmentChange::Begun(segment)),
        change(11, SegmentChange::Holds { pid: Pid(42), fds: 1, mappings: 1 }),
        change(12, mapped),
        change(13, SegmentChange::Born(SHUTDOWN)),
        at(1, 0x10_8010, 20),
        // The MemInfo lies in the segment for a while. Its end is reported before its birth, which waits for names.
        Event::MemInfo { at: Nanos(40), id: MemInfoId(0), change: MemInfoChange::Died },
        Event::MemInfo { at: Nanos(30), id: MemInfoId(0), change: born },
        at(2, 0x10_8010, 35),
        at(3, 0x10_8010, 50),
        at(4, 0x20_0000, 50),
    ]);
    let report = Report::new(&model, &Selection::default(), None);
    let told: Vec<_> = report.transfers.unwrap().into_iter().map(|transfer| transfer.region).collect();
    let kinds: Vec<_> = told.iter().map(|region| region.as_ref().map(|it| (it.kind, it.id.as_str()))).collect();
    let segment = Some(("segment", "27:559:3"));
    assert_eq!(kinds, [segment, Some(("meminfo", "42:0x108000")), segment, None]);
    let lines: Vec<_> = told.iter().flatten().map(|region| region.born_at.as_ref().unwrap().line).collect();
    assert_eq!(lines, [Some(1592), Some(31), Some(1592)]);
}

#[test]
fn progress_is_reported_only_if_it_was_counted() {
    let probed = TransferThread { progress: 30, probed: Nanos(30 * MS), ..thread(PROGRESS, 0, 9, 0) };
    let model = filled([thread(MAIN, 9, 0, 0), probed].map(Event::TransferThread));
    let rates: Vec<_> = views::workers(&model, &Selection::default()).into_iter().map(|row| row.progress).collect();
    assert_eq!(rates, [Some(1000.0)]);
}

#[test]
fn arbitrary_recordings_do_not_panic() {
    let most = Nanos(u64::MAX);
    let worst = |operation, parent| Transfer {
        operation,
        bytes: u64::MAX,
        buffer: u64::MAX,
        registered: Some(most),
        submitted: Some(Nanos(0)),
        completed: Some(most),
        hash: Some(0),
        parent,
        ..transfer(0)
    };
    let count = Transfers {
        at: most,
        process: PROCESS,
        library: Library::Ucx,
        operation: Operation::Put,
        count: u64::MAX,
        bytes: u64::MAX,
        immediate: u64::MAX,
        failed: u64::MAX,
        spent: most,
        unfollowed: u64::MAX,
        every: u32::MAX,
    };
    let threads = [MAIN, PROGRESS, NOTIFIER].map(|tid| {
        let most = TransferThread { notified: u64::MAX, woken: u64::MAX, ..thread(tid, u64::MAX, u64::MAX, u64::MAX) };
        Event::TransferThread(TransferThread { observed: Nanos(u64::MAX), ..most })
    });
    let own = TransferId(1);
    let transfers = (1..9).map(|id| seen(id, worst(Operation::ALL[id as usize], (id > 1).then_some(own))));
    let whole = seen(1, worst(Operation::MultiRecv, Some(own)));
    let open = seen(20, Transfer { completed: None, ..worst(Operation::Put, None) });
    let other = seen(21, Transfer { completed: None, ..worst(Operation::Get, None) });
    let ended = Event::ProcessEnd { at: most, id: PROCESS };
    let rest = [whole, open, other, woken(1, u64::MAX, 0), Event::Transfers(count), Event::Transfers(count), ended];
    let model = filled(transfers.chain(rest).chain(threads));
    let report = Report::new(&model, &Selection::default(), None);
    assert_eq!(report.transfer_counts.unwrap()[0].count, u64::MAX);
    assert!(!findings::find(&model, &Selection::default()).is_empty());
}
