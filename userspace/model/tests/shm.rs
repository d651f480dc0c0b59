//! The fate of shared segments.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use pyobs_model::families::shm::SegmentVerdict;
use pyobs_model::findings::{self, Evidence, Severity};
use pyobs_model::*;

const MAKER: Pid = Pid(10);
const OTHER: Pid = Pid(20);
const TRACKER: Pid = Pid(30);

fn model() -> Model {
    let probes = vec!["shm".to_owned()];
    Model::new(Meta { rate_hz: 99, probes, ..Meta::default() }, History::All)
}

fn of(kind: SegmentKind, changes: &[SegmentChange]) -> Model {
    let mut model = model();
    let command = "python -c from multiprocessing.resource_tracker import main;main(4)".into();
    let process = Process { pid: TRACKER, ppid: OTHER, command, python: None, started: None };
    model.apply(&Event::Process { id: ProcessRef(0), process });
    let (name, creator) = (Some("a".into()), Some(MAKER));
    let linked = kind == SegmentKind::Shm;
    let segment = Segment { dev: 27, ino: 1, generation: 2, kind, name, linked, bytes: 4096, creator };
    let all = [SegmentChange::Begun(segment)].into_iter().chain(changes.iter().cloned());
    for (change, at) in all.zip(1..) {
        model.apply(&Event::Segment { at: Nanos(at), id: SegmentId(0), change });
    }
    model
}

fn verdict(model: &Model) -> SegmentVerdict {
    model.shm().get(SegmentId(0)).unwrap().verdict()
}

fn found(model: &Model) -> Vec<&'static str> {
    findings::find(model, &Selection::default()).iter().map(|finding| finding.id).collect()
}

fn holds(pid: Pid, fds: u32, mappings: u32) -> SegmentChange {
    SegmentChange::Holds { pid, fds, mappings }
}

#[test]
fn a_name_without_living_holders_is_residue() {
    let ended = |pid| SegmentChange::Ended { pid };
    let changes = [holds(MAKER, 1, 1), holds(OTHER, 0, 1), holds(MAKER, 0, 0), ended(OTHER), ended(MAKER)];
    for (seen, expected) in [(3, SegmentVerdict::Held), (4, SegmentVerdict::Held), (5, SegmentVerdict::Residue)] {
        assert_eq!(verdict(&of(SegmentKind::Shm, &changes[..seen])), expected, "{seen}");
    }
    assert_eq!(found(&of(SegmentKind::Shm, &changes)), ["shm/residue"]);
    assert_eq!(verdict(&of(SegmentKind::File, &changes)), SegmentVerdict::Released);
}

const SECOND: u64 = 1_000_000_000;

/// Segments of one maker with these names, whose last holder ends at 1 s, and a resource tracker whose parent is
/// `parent`.
fn left_behind(names: &[&str], parent: Option<Pid>, now: u64) -> Model {
    let mut model = model();
    let process =
        |pid, ppid, command: &str| Process { pid, ppid, command: command.into(), python: None, started: None };
    model.apply(&Event::Process { id: ProcessRef(0), process: process(MAKER, OTHER, "python main.py") });
    model.apply(&Event::Process { id: ProcessRef(1), process: process(OTHER, Pid(1), "python main.py") });
    if let Some(parent) = parent {
        let command = "python -c from multiprocessing.resource_tracker import main;main(4)";
        model.apply(&Event::Process { id: ProcessRef(2), process: process(TRACKER, parent, command) });
    }
    for (name, number) in names.iter().zip(0..) {
        let (name, creator) = (Some((*name).into()), Some(MAKER));
        let (kind, linked, bytes) = (SegmentKind::Shm, true, 4096 * (u64::from(number) + 1));
        let ino = u64::from(number);
        let segment = Segment { dev: 27, ino, generation: 2, kind, name, linked, bytes, creator };
        for (at, change) in
            [(1, SegmentChange::Begun(segment)), (2, holds(MAKER, 1, 1)), (SECOND, SegmentChange::Ended { pid: MAKER })]
        {
            model.apply(&Event::Segment { at: Nanos(at), id: SegmentId(number), change });
        }
    }
    model.apply(&Event::ProcessEnd { id: ProcessRef(0), at: Nanos(SECOND) });
    model.advance(Nanos(now));
    model
}

#[test]
fn what_its_tracker_is_about_to_remove_is_not_residue() {
    for (names, parent, now, expected) in [
        (&["psm_1"], None, SECOND, true),
        (&["psm_1"], Some(MAKER), 2 * SECOND, false),
        (&["psm_1"], Some(OTHER), 2 * SECOND, false),
        (&["psm_1"], Some(Pid(77)), 2 * SECOND, true),
        (&["psm_1"], Some(OTHER), 7 * SECOND, true),
    ] {
        let told = !found(&left_behind(names, parent, now)).is_empty();
        assert_eq!(told, expected, "{names:?}, tracker of {parent:?}, at {now}");
    }
    let found = findings::find(&left_behind(&["psm_1"], Some(OTHER), 7 * SECOND), &Selection::default());
    let told = "the resource tracker 30 removes it when process 20 ends, and not before";
    assert!(found[0].detail.contains(told), "{}", found[0].detail);
    for (now, severity, told) in [
        (2, Severity::Info, "torch_shm_manager removes it if it still runs"),
        (7, Severity::Warning, "nobody will remove it"),
    ] {
        let found = findings::find(&left_behind(&["torch_12_3_4"], None, now * SECOND), &Selection::default());
        assert_eq!(found[0].severity, severity, "{now}");
        assert!(found[0].detail.contains(told), "{}", found[0].detail);
    }
}

#[test]
fn segments_of_one_line_share_a_finding() {
    let found = findings::find(&left_behind(&["a", "b", "c", "d"], None, SECOND), &Selection::default());
    let [finding] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(finding.summary, "d and 3 more (40 KiB) are left behind by processes that have ended");
    assert_eq!(finding.evidence["segments"], Evidence::Count(4));
    assert_eq!(finding.evidence["bytes"], Evidence::Count(40_960));
}

/// The verdict for an earlier time is the one that held then.
#[test]
fn an_earlier_time_has_the_verdict_of_that_time() {
    let ended = |pid| SegmentChange::Ended { pid };
    let unlinked = || SegmentChange::Unlinked { by: None };
    let residue = [holds(MAKER, 1, 1), holds(OTHER, 0, 1), holds(MAKER, 0, 0), ended(OTHER), ended(MAKER)];
    let removed = [&residue[..], &[unlinked(), SegmentChange::Gone]].concat();
    let kept = [holds(MAKER, 1, 0), holds(MAKER, 0, 0), holds(OTHER, 1, 0), unlinked(), holds(OTHER, 0, 0)];
    for changes in [&residue[..], &removed, &kept] {
        let whole = of(SegmentKind::Shm, changes);
        let state = whole.shm().get(SegmentId(0)).unwrap();
        for seen in 0..=changes.len() {
            let then = of(SegmentKind::Shm, &changes[..seen]);
            // Event n happens at n + 1.
            let selection = Selection { to: Some(Nanos(seen as u64 + 2)), ..Selection::default() };
            let expected = then.shm().get(SegmentId(0)).unwrap();
            assert_eq!(state.verdict_at(selection.end()), expected.verdict(), "{seen} of {changes:?}");
            assert_eq!(state.holders_at(selection.end()), expected.holders.len(), "{seen} of {changes:?}");
            let told = findings::find(&whole, &selection);
            assert_eq!(
                told.iter().map(|finding| finding.id).collect::<Vec<_>>(),
                found(&then),
                "{seen} of {changes:?}"
            );
        }
    }
    let before = Selection { to: Some(Nanos(1)), ..Selection::default() };
    assert!(views::segments(&of(SegmentKind::Shm, &residue), &before).is_empty(), "it had not begun");
    let after = Selection { from: Some(Nanos(100)), ..Selection::default() };
    assert_eq!(views::segments(&of(SegmentKind::Shm, &residue), &after).len(), 1, "it is still there");
    assert!(views::segments(&of(SegmentKind::Shm, &removed), &after).is_empty(), "it is gone");
}

#[test]
fn a_descriptor_in_flight_holds_its_segment() {
    let (from, to) = (MAKER, OTHER);
    let sent = [holds(from, 1, 0), SegmentChange::Sent { from }, holds(from, 0, 0)];
    assert_eq!(verdict(&of(SegmentKind::Memfd, &sent)), SegmentVerdict::Held);
    let came =
        [&sent[..], &[holds(to, 1, 0), SegmentChange::Passed { from: Some(from), to }, holds(to, 0, 0)]].concat();
    let model = of(SegmentKind::Memfd, &came);
    assert_eq!(verdict(&model), SegmentVerdict::Released);
    let state = model.shm().get(SegmentId(0)).unwrap();
    assert_eq!((state.past.len(), state.passed.len(), state.in_flight), (2, 1, 0));
}

#[test]
fn the_end_of_a_process_releases_everything_it_held() {
    let model = of(SegmentKind::Shm, &[holds(MAKER, 3, 1), holds(MAKER, 1, 0), SegmentChange::Released]);
    let state = model.shm().get(SegmentId(0)).unwrap();
    assert!(state.holders.is_empty() && state.evicted.is_some());
    let past = state.past.first().unwrap();
    assert_eq!((past.fds, past.mappings), (3, 1), "the most at a time");
    assert_eq!(verdict(&model), SegmentVerdict::Released);
}

#[test]
fn only_removal_by_a_foreign_tracker_while_in_use_is_a_finding() {
    let unlinked = |by| SegmentChange::Unlinked { by: Some(by) };
    assert_eq!(found(&of(SegmentKind::Shm, &[holds(MAKER, 1, 1), unlinked(TRACKER)])), ["shm/unlinked_in_use"]);
    assert!(found(&of(SegmentKind::Shm, &[holds(MAKER, 1, 1), unlinked(MAKER)])).is_empty());
    assert!(found(&of(SegmentKind::Shm, &[holds(MAKER, 0, 0), unlinked(TRACKER)])).is_empty());
    let late = [holds(MAKER, 1, 1), SegmentChange::Unlinked { by: None }, unlinked(TRACKER)];
    assert_eq!(found(&of(SegmentKind::Shm, &late)), ["shm/unlinked_in_use"]);
}

#[test]
fn semaphores_are_not_segments() {
    let mut model = model();
    let (name, kind) = (Some("sem.abc".into()), SegmentKind::Shm);
    let segment = Segment { dev: 27, ino: 1, generation: 2, kind, name, linked: true, bytes: 32, creator: None };
    model.apply(&Event::Segment { at: Nanos(1), id: SegmentId(0), change: SegmentChange::Begun(segment) });
    assert_eq!(model.shm().segments().count(), 0);
    assert!(model.shm().get(SegmentId(0)).unwrap().is_semaphore());
}

/// Segments of 1 MiB that one line made and filled, each followed by these changes.
fn filled(kind: SegmentKind, segments: &[&[SegmentChange]]) -> Model {
    let mut model = model();
    let process = Process { pid: MAKER, ppid: Pid(1), command: "python".into(), python: None, started: None };
    model.apply(&Event::Process { id: ProcessRef(0), process });
    let frame = |function: &str, file: &str, line| Frame::python(function.into(), file.into(), Some(line), Some(1));
    let library = "/usr/lib/python3.12/multiprocessing/shared_memory.py";
    let frames = [frame("publish", "/app/main.py", 7), frame("SharedMemory.__init__", library, 104)];
    for (frame, id) in frames.into_iter().zip(0..) {
        model.apply(&Event::Frame { id: FrameId(id), frame });
    }
    model.apply(&Event::Stack { id: StackId(0), frames: [FrameId(0), FrameId(1)].into() });
    for (changes, id) in segments.iter().zip(0..) {
        let (name, creator, linked) = (Some("a".into()), Some(MAKER), kind == SegmentKind::Shm);
        let (dev, ino, bytes) = (27, u64::from(id), 1 << 20);
        let begun = SegmentChange::Begun(Segment { dev, ino, generation: 2, kind, name, linked, bytes, creator });
        let made = [begun, SegmentChange::Born(StackId(0)), holds(MAKER, 1, 1), SegmentChange::Allocated(bytes)];
        for change in made.iter().chain(*changes) {
            model.apply(&Event::Segment { at: Nanos(1), id: SegmentId(id), change: change.clone() });
        }
    }
    model
}

#[test]
fn filled_but_unread_segments_are_found_at_the_programs_own_line() {
    let over: &[SegmentChange] = &[SegmentChange::Unlinked { by: Some(MAKER) }, SegmentChange::Released];
    for kind in [SegmentKind::Shm, SegmentKind::Memfd] {
        let found = findings::find(&filled(kind, &[over, over]), &Selection::default());
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((found[0].id, found[0].severity), ("shm/unread", Severity::Warning));
        assert_eq!(found[0].evidence["line"], Evidence::Text("publish (/app/main.py:7)".into()));
        assert_eq!((found[0].cost.bytes, found[0].pid), (2 << 20, Some(MAKER)));
    }
}

#[test]
fn segments_that_others_held_or_may_open_are_not_unread() {
    let taken: &[SegmentChange] = &[holds(OTHER, 0, 1), holds(OTHER, 0, 0), SegmentChange::Released];
    let passed: &[SegmentChange] = &[SegmentChange::Sent { from: MAKER }, SegmentChange::Released];
    let passed_on: &[SegmentChange] = &[SegmentChange::Passed { from: Some(MAKER), to: OTHER }, SegmentChange::Gone];
    for changes in [taken, passed_on] {
        assert!(found(&filled(SegmentKind::Shm, &[changes])).is_empty(), "{changes:?}");
    }
    let given_up: &[SegmentChange] = &[SegmentChange::Released];
    assert!(found(&filled(SegmentKind::Shm, &[taken, given_up])).is_empty(), "one of two");
    assert_eq!(found(&filled(SegmentKind::Shm, &[passed])), ["shm/unread"], "it never arrived");
    assert!(found(&filled(SegmentKind::File, &[given_up])).is_empty(), "a file is for later");
    let mut model = filled(SegmentKind::Shm, &[&[]]);
    assert!(found(&model).is_empty(), "it is new");
    model.advance(Nanos(60_000_000_000));
    assert_eq!(findings::find(&model, &Selection::default())[0].severity, Severity::Info);
}

#[test]
fn segments_of_ucx_transports_are_not_unread() {
    let mut model = filled(SegmentKind::Shm, &[&[SegmentChange::Released]]);
    assert_eq!(found(&model), ["shm/unread"]);
    let module = Some("libuct.so.0".into());
    let frame = Frame { module, ..Frame::new(FrameKind::Native, "uct_posix_mem_alloc".into()) };
    model.apply(&Event::Frame { id: FrameId(2), frame });
    model.apply(&Event::Stack { id: StackId(1), frames: [FrameId(0), FrameId(2)].into() });
    model.apply(&Event::Segment { at: Nanos(2), id: SegmentId(0), change: SegmentChange::Born(StackId(1)) });
    assert!(found(&model).is_empty());
}

#[test]
fn a_segment_that_a_transfer_sent_was_read() {
    let mapped = SegmentChange::Mapped { pid: MAKER, address: 0x10_0000, bytes: 1 << 20, offset: 0 };
    for (buffer, expected) in [(0x10_8000, &[][..]), (0x80_0000, &["shm/unread"][..])] {
        let mut model = filled(SegmentKind::Shm, &[std::slice::from_ref(&mapped)]);
        let transfer = Transfer {
            process: ProcessRef(0),
            library: Library::Ucx,
            operation: Operation::TagSend,
            bytes: 64,
            tag: None,
            through: 1,
            buffer,
            registered: None,
            submitted: Some(Nanos(2)),
            completed: Some(Nanos(3)),
            immediate: true,
            status: Some(0),
            tid: Tid(MAKER.0),
            submitter: None,
            completer: None,
            protocol: None,
            parent: None,
            hash: None,
        };
        let change = TransferChange::Seen(Box::new(transfer));
        model.apply(&Event::Transfer { at: Nanos(3), id: TransferId(0), change });
        model.advance(Nanos(60_000_000_000));
        assert_eq!(found(&model), expected, "{buffer:#x}");
    }
}

#[test]
fn ended_segments_are_forgotten_but_stay_in_sums() {
    let mut model = model();
    let kind = SegmentKind::Anonymous;
    for number in 0..70_000u32 {
        let (at, id) = (Nanos(u64::from(number) * 10), SegmentId(number));
        let (ino, creator) = (number.into(), Some(MAKER));
        let segment = Segment { dev: 1, ino, generation: 0, kind, name: None, linked: false, bytes: 4096, creator };
        model.apply(&Event::Segment { at, id, change: SegmentChange::Begun(segment) });
        model.apply(&Event::Segment { at, id, change: holds(MAKER, 0, 1) });
        // Segment 0 never ends.
        if number > 0 {
            model.apply(&Event::Segment { at: Nanos(at.0 + 5), id, change: SegmentChange::Gone });
        }
    }
    let listed = model.shm().segments().count() as u64;
    let forgotten: Vec<_> = model.shm().forgotten().collect();
    let [(of, None, sum)] = forgotten[..] else { panic!("{forgotten:?}") };
    assert_eq!((of, listed + sum.count, sum.bytes), (kind, 70_000, sum.count * 4096));
    assert!(sum.count > 0 && sum.kept == 0);
    assert!(model.shm().get(SegmentId(0)).is_some(), "what is held goes last");
    assert!(model.shm().get(SegmentId(69_999)).is_some());
    let lost: Vec<_> = model.loss().iter().collect();
    assert_eq!(lost, [(Reason::PastForgotten, sum.count)]);
}
