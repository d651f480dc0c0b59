//! Findings that need several families.

use std::sync::Arc;

use pyobs_model::findings::{self, Evidence, Finding};
use pyobs_model::report::Report;
use pyobs_model::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const PROCESS: ProcessRef = ProcessRef(0);
const MAIN: Tid = Tid(42);
const LOOP: Tid = Tid(43);

// Lines, by the number of their stack.
const COMPUTES: StackId = StackId(0);
const SENDS: StackId = StackId(1);
const MAKES: StackId = StackId(2);
const WRITES: StackId = StackId(3);
const POLLS: StackId = StackId(4);

fn model(events: impl IntoIterator<Item = Event>) -> Model {
    let probes = Family::names();
    let meta = Meta { rate_hz: 100, probes, ..Meta::default() };
    let mut model = Model::new(meta, History::All);
    let frame = |function: &str, kind, module: Option<&str>, line| Frame {
        kind,
        function: function.into(),
        module: module.map(Into::into),
        file: Some("/app/main.py".into()),
        line: Some(line),
        first_line: Some(1),
        package: None,
    };
    let python = |function, line| frame(function, FrameKind::Python, None, line);
    let frames = [
        python("compute", 10),
        python("send", 20),
        python("make", 30),
        python("write", 40),
        frame("ucp_worker_progress", FrameKind::Native, Some("libucp.so.0"), 1),
    ];
    for (frame, id) in frames.into_iter().zip(0..) {
        model.apply(&Event::Frame { id: FrameId(id), frame });
        model.apply(&Event::Stack { id: StackId(id), frames: Arc::from([FrameId(id)]) });
    }
    let process = Process { pid: Pid(42), ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: PROCESS, process });
    for (tid, name) in [(MAIN, "main"), (LOOP, "loop")] {
        model.apply(&Event::Thread { process: PROCESS, tid, name: name.into() });
    }
    events.into_iter().for_each(|event| model.apply(&event));
    model.advance(Nanos(10 * SECOND));
    model
}

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
        tid: LOOP,
        submitter: None,
        completer: None,
        protocol: None,
        parent: None,
        hash: None,
    }
}

fn seen(id: u64, transfer: Transfer) -> [Event; 2] {
    let at = transfer.completed.unwrap_or_default();
    let event = |change| Event::Transfer { at, id: TransferId(id), change };
    [event(TransferChange::Seen(Box::new(transfer))), event(TransferChange::Asked(SENDS))]
}

fn found(model: &Model, id: &str) -> Vec<Finding> {
    findings::find(model, &Selection::default()).into_iter().filter(|finding| finding.id == id).collect()
}

fn text(finding: &Finding, name: &str) -> String {
    match finding.evidence.get(name) {
        Some(Evidence::Text(text)) => text.clone(),
        other => panic!("{name} is {other:?}"),
    }
}

/// Transfers that take 1 ms each. Python is notified 6 ms later by a thread that waits `waits` for the GIL in between.
fn told_late(waits: u64, waiter: Tid) -> Model {
    let round = |id: u64| {
        let begun = id * 20 * MS;
        let woken = TransferChange::Woken { notified: Nanos(begun + MS), tid: LOOP };
        let (at, length) = (Nanos(begun + MS + waits), Nanos(waits));
        let holder = Some(GilHolder { tid: MAIN, stack: COMPUTES });
        let (process, stack, total) = (PROCESS, SENDS, length);
        let wait = GilWait {
            from: at.saturating_sub(total),
            stacks: 1,
            at,
            process,
            tid: waiter,
            stack,
            holder,
            count: 1,
            total,
            length,
        };
        let woken = Event::Transfer { at: Nanos(begun + 7 * MS), id: TransferId(id), change: woken };
        seen(id, transfer(begun, MS)).into_iter().chain([Event::GilWait(wait), woken]).collect::<Vec<_>>()
    };
    model((0..40).flat_map(round))
}

#[test]
fn the_finding_names_the_line_that_holds_the_gil_after_a_transfer() {
    let [finding] = &found(&told_late(5 * MS, LOOP), "ucx/behind-gil")[..] else { panic!() };
    assert_eq!(text(finding, "holder_line"), "compute (/app/main.py:10)");
    assert_eq!(
        finding.summary,
        "transfers are over and wait 5.0 ms for the GIL, which thread 42 (main) holds at compute (/app/main.py:10)"
    );
    assert!(finding.detail.contains("40 of 40 transfers"), "{}", finding.detail);
    assert!((finding.cost.time - 0.02).abs() < 1e-9, "40 times 5 ms of 10 s: {:?}", finding.cost);
}

#[test]
fn a_late_notification_without_gil_waits_is_not_reported() {
    assert_eq!(found(&told_late(MS / 10, LOOP), "ucx/behind-gil"), []);
    assert_eq!(found(&told_late(5 * MS, MAIN), "ucx/behind-gil"), [], "another thread waited");
}

/// Sends from a segment mapped at 1 MiB with these contents, and a line whose stores are equal if `equal`.
fn sent(hash: impl Fn(u64) -> u64, buffer: impl Fn(u64) -> u64, equal: bool) -> Model {
    let segment = |change| Event::Segment { at: Nanos(0), id: SegmentId(3), change };
    let (name, creator) = (Some("tensor".into()), Some(Pid(42)));
    let begun = SegmentChange::Begun(Segment {
        dev: 1,
        ino: 2,
        generation: 3,
        kind: SegmentKind::Shm,
        name,
        linked: true,
        bytes: 4 << 20,
        creator,
    });
    let mapped = SegmentChange::Mapped { pid: Pid(42), address: 0x10_0000, bytes: 4 << 20, offset: 0 };
    let transfers = (0..5).flat_map(|id| {
        let of = transfer(10 + id * 100 * MS, MS);
        seen(id, Transfer { hash: Some(hash(id)), buffer: buffer(id), ..of })
    });
    let pair = |at: u64| {
        Event::Pair(Pair {
            at: Nanos(at * MS),
            process: PROCESS,
            tid: MAIN,
            first: WRITES,
            second: WRITES,
            kind: PairKind::Store,
            touched: Touched::Array("float64 9".into()),
            address: None,
            bytes: 8,
            equal,
            unread: None,
        })
    };
    let before = [begun, SegmentChange::Born(MAKES), mapped].map(segment);
    model(before.into_iter().chain(transfers).chain((0..40).map(pair)))
}

#[test]
fn resent_bytes_of_a_segment_name_the_lines_that_made_and_wrote_it() {
    let [finding] = &found(&sent(|_| 9, |_| 0x10_0000, true), "shm/resent")[..] else { panic!() };
    assert_eq!(text(finding, "segment"), "1:2:3");
    assert_eq!(text(finding, "born"), "make (/app/main.py:30)");
    assert_eq!(text(finding, "line"), "send (/app/main.py:20)");
    assert_eq!(text(finding, "rewritten_at"), "write (/app/main.py:40)");
    assert_eq!(finding.cost.bytes, 4 << 20);
    assert_eq!(found(&sent(|_| 9, |_| 0x10_0000, true), "ucx/resend"), [], "it is said once");
    let [finding] = &found(&sent(|_| 9, |_| 0x10_0000, false), "shm/resent")[..] else { panic!() };
    assert!(!finding.evidence.contains_key("rewritten_at"));
}

#[test]
fn changed_bytes_other_places_and_plain_memory_are_not_resent() {
    assert_eq!(found(&sent(|id| id, |_| 0x10_0000, true), "shm/resent"), []);
    assert_eq!(found(&sent(|_| 9, |id| 0x10_0000 + id * 8192, true), "shm/resent"), []);
    assert_eq!(found(&sent(|_| 9, |_| 0x9000_0000, true), "shm/resent"), []);
}

/// Many stores by a process at a line and an address: into the segment from 1 MiB on, or into another array.
fn stored(process: ProcessRef, line: StackId, address: u64) -> impl Iterator<Item = Event> {
    (0..40).map(move |n| {
        let (at, tid, kind) = (Nanos((500 + n) * MS), MAIN, PairKind::Store);
        let touched = Touched::Array("float64 9".into());
        let (first, second, address) = (line, line, Some(address + n * 8));
        let (bytes, equal, unread) = (8, true, None);
        Event::Pair(Pair { at, process, tid, first, second, kind, touched, address, bytes, equal, unread })
    })
}

#[test]
fn only_stores_into_the_segment_rewrite_it() {
    let rewriter = |more: Vec<Event>| {
        let mut model = sent(|_| 9, |_| 0x10_0000, false);
        more.iter().for_each(|event| model.apply(event));
        let [finding] = &found(&model, "shm/resent")[..] else { panic!() };
        finding.evidence.get("rewritten_at").cloned()
    };
    let text = |line: &str| Some(Evidence::Text(line.to_owned()));
    // Twice as many as into the segment, and just before it.
    let elsewhere = [0x9000_0000, 0xa000_0000, 0x10_0000 - 4096].map(|at| stored(PROCESS, MAKES, at));
    let mut events: Vec<_> = elsewhere.into_iter().flatten().collect();
    assert_eq!(rewriter(events.clone()), None, "another array");
    events.extend(stored(PROCESS, COMPUTES, 0x10_0000 + 4096));
    assert_eq!(rewriter(events), text("compute (/app/main.py:10)"));
    // Another process maps it elsewhere.
    let process = Process { pid: Pid(43), ppid: Pid(1), command: "python".into(), python: None, started: None };
    let mapped = SegmentChange::Mapped { pid: Pid(43), address: 0x70_0000, bytes: 4 << 20, offset: 0 };
    let other = ProcessRef(1);
    let there =
        [Event::Process { id: other, process }, Event::Segment { at: Nanos(MS), id: SegmentId(3), change: mapped }];
    let there = || there.clone().into_iter();
    assert_eq!(rewriter(there().chain(stored(other, MAKES, 0x70_0000)).collect()), text("make (/app/main.py:30)"));
    assert_eq!(rewriter(there().chain(stored(other, MAKES, 0x10_0000)).collect()), None, "its own memory");
}

#[test]
fn the_report_names_the_region_of_a_pair() {
    let mut model = sent(|_| 9, |_| 0x10_0000, true);
    stored(PROCESS, COMPUTES, 0x10_0000).chain(stored(PROCESS, MAKES, 0x9000_0000)).for_each(|it| model.apply(&it));
    let pairs = Report::new(&model, &Selection::default(), None).redundancy.unwrap().pairs;
    let of = |function: &str| {
        let pair = pairs.iter().find(|pair| &*pair.first.stack[0].function == function).unwrap();
        (pair.compared, pair.region.as_ref().map(|region| (region.kind, region.id.clone())))
    };
    assert_eq!(of("compute"), (40, Some(("segment", "1:2:3".to_owned()))));
    assert_eq!(of("make"), (40, None));
    assert_eq!(of("write"), (40, None), "its address is not known");
    let stores = views::stores(&model, &Selection::default(), |pair| {
        views::lies_in(&model, pair, |id| id == RegionId::Segment(SegmentId(3))) == Some(true)
    });
    assert_eq!(stores.into_values().map(|sum| sum.redundant_bytes).collect::<Vec<_>>(), [40 * 8]);
}

/// Rounds of 100 ms: a transfer of 40 ms, and samples of `stack` for 50 ms that begin `after` the transfer does.
fn rounds(after: u64, stack: StackId) -> Model {
    let round = |id: u64| {
        let begun = id * 100 * MS;
        let samples = (0..5).map(move |tick| {
            let (at, outcome) = (Nanos(begun + after + tick * 10 * MS), Outcome::Complete);
            Event::Sample(Sample {
                at,
                process: PROCESS,
                tid: MAIN,
                cpu: 0,
                stack,
                weight: Nanos(10_000_000),
                turn_us: None,
                outcome,
            })
        });
        seen(id, transfer(begun, 40 * MS)).into_iter().chain(samples)
    };
    model((0..100).flat_map(round))
}

#[test]
fn computing_and_transfers_that_take_turns_are_found() {
    let [finding] = &found(&rounds(45 * MS, COMPUTES), "ucx/no-overlap")[..] else { panic!() };
    assert_eq!(text(finding, "line"), "compute (/app/main.py:10)");
    assert_eq!(text(finding, "asked_at"), "send (/app/main.py:20)");
    assert_eq!(finding.summary, "computing and transfers take turns: 50% of the time one, 40% the other");
    assert!((finding.cost.time - 0.4).abs() < 1e-9);
}

#[test]
fn computing_beside_transfers_and_ucx_itself_are_not_reported() {
    assert_eq!(found(&rounds(5 * MS, COMPUTES), "ucx/no-overlap"), []);
    assert_eq!(found(&rounds(45 * MS, POLLS), "ucx/no-overlap"), []);
}
