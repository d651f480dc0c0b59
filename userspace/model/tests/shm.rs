//! What becomes of shared segments.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use pyobs_model::families::shm::Verdict;
use pyobs_model::{
    Event, History, Meta, Model, Nanos, Pid, Process, ProcessRef, Segment, SegmentChange, SegmentId, SegmentKind,
    Selection, findings,
};

const MAKER: Pid = Pid(10);
const OTHER: Pid = Pid(20);
const TRACKER: Pid = Pid(30);

fn model() -> Model {
    let text = String::new;
    let probes = vec!["shm".to_owned()];
    let (started, host, kernel, pyobs, sampler) = (text(), text(), text(), text(), text());
    Model::new(Meta { started, host, kernel, pyobs, rate_hz: 99, probes, sampler, ..Meta::default() }, History::All)
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

fn verdict(model: &Model) -> Verdict {
    model.shm().get(SegmentId(0)).unwrap().verdict()
}

fn found(model: &Model) -> Vec<&'static str> {
    findings::find(model, &Selection::default()).iter().map(|finding| finding.id).collect()
}

fn holds(pid: Pid, fds: u32, mappings: u32) -> SegmentChange {
    SegmentChange::Holds { pid, fds, mappings }
}

#[test]
fn a_name_is_residue_when_all_who_held_it_have_ended() {
    let ended = |pid| SegmentChange::Ended { pid };
    let changes = [holds(MAKER, 1, 1), holds(OTHER, 0, 1), holds(MAKER, 0, 0), ended(OTHER), ended(MAKER)];
    for (seen, expected) in [(3, Verdict::Held), (4, Verdict::Held), (5, Verdict::Residue)] {
        assert_eq!(verdict(&of(SegmentKind::Shm, &changes[..seen])), expected, "{seen}");
    }
    assert_eq!(found(&of(SegmentKind::Shm, &changes)), ["shm/residue"]);
    assert_eq!(verdict(&of(SegmentKind::File, &changes)), Verdict::Released);
}

#[test]
fn a_descriptor_on_its_way_holds_what_nobody_else_does() {
    let (from, to) = (MAKER, OTHER);
    let sent = [holds(from, 1, 0), SegmentChange::Sent { from }, holds(from, 0, 0)];
    assert_eq!(verdict(&of(SegmentKind::Memfd, &sent)), Verdict::Held);
    let came =
        [&sent[..], &[holds(to, 1, 0), SegmentChange::Passed { from: Some(from), to }, holds(to, 0, 0)]].concat();
    let model = of(SegmentKind::Memfd, &came);
    assert_eq!(verdict(&model), Verdict::Released);
    let state = model.shm().get(SegmentId(0)).unwrap();
    assert_eq!((state.past.len(), state.passed.len(), state.in_flight), (2, 1, 0));
}

#[test]
fn an_end_lets_all_go() {
    let model = of(SegmentKind::Shm, &[holds(MAKER, 3, 1), holds(MAKER, 1, 0), SegmentChange::Released]);
    let state = model.shm().get(SegmentId(0)).unwrap();
    assert!(state.holders.is_empty() && state.evicted.is_some());
    let past = state.past.first().unwrap();
    assert_eq!((past.fds, past.mappings), (3, 1), "the most at a time");
    assert_eq!(verdict(&model), Verdict::Released);
}

#[test]
fn only_a_strangers_tracker_that_takes_it_from_its_users_is_a_finding() {
    let unlinked = |by| SegmentChange::Unlinked { by: Some(by) };
    assert_eq!(found(&of(SegmentKind::Shm, &[holds(MAKER, 1, 1), unlinked(TRACKER)])), ["shm/unlinked_in_use"]);
    assert!(found(&of(SegmentKind::Shm, &[holds(MAKER, 1, 1), unlinked(MAKER)])).is_empty());
    assert!(found(&of(SegmentKind::Shm, &[holds(MAKER, 0, 0), unlinked(TRACKER)])).is_empty());
    let late = [holds(MAKER, 1, 1), SegmentChange::Unlinked { by: None }, unlinked(TRACKER)];
    assert_eq!(found(&of(SegmentKind::Shm, &late)), ["shm/unlinked_in_use"]);
}

#[test]
fn semaphores_are_no_segments() {
    let mut model = model();
    let (name, kind) = (Some("sem.abc".into()), SegmentKind::Shm);
    let segment = Segment { dev: 27, ino: 1, generation: 2, kind, name, linked: true, bytes: 32, creator: None };
    model.apply(&Event::Segment { at: Nanos(1), id: SegmentId(0), change: SegmentChange::Begun(segment) });
    assert_eq!((model.shm().segments().count(), model.shm().semaphores()), (0, 1));
}
