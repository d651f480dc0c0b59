//! A replay of tables that are larger than what is read of them at once.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::{Random, read, write};
use pyobs_model::*;

const PROCESS: ProcessRef = ProcessRef(0);
const TID: Tid = Tid(4000);
const COUNT: u64 = 20_000;

fn definitions() -> Vec<Event> {
    let process = Process {
        pid: Pid(4000),
        ppid: Pid(1),
        command: "python".into(),
        python: Some("3.12.1".into()),
        started: None,
    };
    vec![Event::Stack { id: StackId(0), frames: [].into() }, Event::Process { id: PROCESS, process }]
}

fn sample(at: u64) -> Event {
    let (stack, weight, outcome) = (StackId(0), Nanos(10), Outcome::Complete);
    Event::Sample(Sample { at: Nanos(at), process: PROCESS, tid: TID, cpu: 0, stack, weight, turn_us: None, outcome })
}

fn held(at: u64) -> Event {
    Event::GilHeld { at: Nanos(at), process: PROCESS, tid: TID, held: Nanos(at % 7) }
}

fn meminfo(at: u64, id: u64, change: MemInfoChange) -> Event {
    Event::MemInfo { at: Nanos(at), id: MemInfoId(id as u32), change }
}

/// Writes events in this order, and reads them back in the order of time.
#[track_caller]
fn comes_back_in_order(timed: &[Event], tables: impl Fn(&Event) -> usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &[definitions(), timed.to_vec()].concat());
    let mut expected = timed.to_vec();
    expected.sort_by_key(|event| (event.at(), tables(event)));
    let found = read(&path).split_off(definitions().len());
    assert_eq!(found.len(), expected.len());
    let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(differs, None, "the first event out of order");
}

#[test]
fn rows_that_are_out_of_order_come_in_order() {
    let mut random = Random(1);
    let is_sample = |event: &Event| usize::from(!matches!(event, Event::Sample(_)));
    // Late by a little, by more than is read at once, and anywhere.
    for late in [0, 50, 5000, COUNT] {
        let mut at = |number: u64| number.saturating_sub(random.below(late + 1));
        let timed: Vec<Event> = (0..COUNT).flat_map(|number| [sample(at(number)), held(at(number))]).collect();
        comes_back_in_order(&timed, is_sample);
    }
}

#[test]
fn what_ends_late_is_held_until_then() {
    let born = |number| MemInfoChange::Born { process: PROCESS, bytes: number, data: number << 12, stack: StackId(0) };
    let births = (0..COUNT).map(|number| meminfo(number * 10, number, born(number)));
    // The first dies last.
    let deaths = (0..COUNT).map(|number| meminfo(COUNT * 20 - number, number, MemInfoChange::Died));
    let timed: Vec<Event> = births.chain(deaths).collect();
    comes_back_in_order(&timed, |_| 0);
}

#[test]
fn a_segment_s_changes_are_never_before_its_beginning() {
    let segment = |number| Segment {
        dev: 1,
        ino: number,
        generation: 0,
        kind: SegmentKind::Memfd,
        name: None,
        linked: false,
        bytes: 4096,
        creator: None,
    };
    let event = |at, id: u64, change| Event::Segment { at: Nanos(at), id: SegmentId(id as u32), change };
    let begun = |number| event(number * 10 + 5, number, SegmentChange::Begun(segment(number)));
    // Told for a time before, of one that began long ago, and of the one that has just begun.
    let gone = |number: u64| event(number * 10, (number * 7919) % (number + 1), SegmentChange::Allocated(number));
    let resized = |number: u64| event(number * 10, (number * 7919) % (number + 1), SegmentChange::Resized(number));
    let timed: Vec<Event> = (0..COUNT).flat_map(|number| [begun(number), resized(number), gone(number)]).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &[definitions(), timed].concat());
    let found = read(&path).split_off(definitions().len());
    assert_eq!(found.len() as u64, COUNT * 3);
    assert!(found.is_sorted_by_key(Event::at));
    let mut begun = vec![None; COUNT as usize];
    for event in &found {
        match event {
            Event::Segment { at, id, change: SegmentChange::Begun(_) } => begun[id.0 as usize] = Some(*at),
            Event::Segment { at, id, change: SegmentChange::Resized(number) } => {
                let expected = Nanos(number * 10).max(begun[id.0 as usize].unwrap());
                assert_eq!(*at, expected, "{id:?}");
            }
            _ => {}
        }
    }
}

#[test]
fn processes_are_defined_shortly_before_they_begin() {
    const SECOND: u64 = 1_000_000_000;
    let mut events = definitions();
    for id in 1..COUNT {
        let (process, tid, at) = (ProcessRef(id as u32), Tid(5000 + id as u32), Nanos(id * SECOND));
        // One in a hundred began long before it was found.
        let started = (id % 100 > 0).then_some(at);
        let [pid, ppid] = [tid.0, 1].map(Pid);
        let of = Process { pid, ppid, command: "python".into(), python: None, started };
        events.push(Event::Process { id: process, process: of });
        events.push(Event::Thread { process, tid, name: "python".into() });
        let (stack, weight, outcome) = (StackId(0), Nanos(10), Outcome::Complete);
        events.push(Event::Sample(Sample { at, process, tid, cpu: 0, stack, weight, turn_us: None, outcome }));
        events.push(Event::ProcessEnd { id: process, at: Nanos(at.0 + SECOND / 2) });
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pyobs");
    write(&path, &events);
    let (mut defined, mut named) = (0, 0);
    let mut samples = 0;
    for event in read(&path) {
        match event {
            Event::Process { id, .. } => {
                assert_eq!(id.0, defined);
                defined += 1;
            }
            Event::Thread { process, .. } => {
                assert!(process.0 < defined);
                assert_eq!(process.0, named + 1);
                named += 1;
            }
            Event::Sample(Sample { process, .. }) => {
                // Names may come a little later.
                assert!(process.0 < defined && process.0 < named + 64, "{process:?}: {defined} defined, {named} named");
                assert!(defined - process.0 < 20, "{defined} are defined at the sample of {process:?}");
                samples += 1;
            }
            _ => {}
        }
    }
    assert_eq!([u64::from(defined), u64::from(named) + 1, samples + 1], [COUNT; 3]);
}
