//! The flight recorder: the events of the last minutes, and of what still exists from before.
//!
//! A recording of the last minutes needs more than their events. Definitions (frames, stacks, processes) are all kept.
//! Of what began earlier and still exists (arenas, segments, MemInfos, tasks, limits), the events that say so are kept.

use std::collections::{BTreeMap, VecDeque};
use std::mem::discriminant;
use std::sync::Arc;

use pyobs_model::{
    ArenaChange, ArenaId, Event, HeapChange, MemInfoChange, MemInfoId, Nanos, Pid, ProcessRef, SegmentChange,
    SegmentId, TaskId, Tid,
};

/// How far back it reaches.
pub(crate) const LENGTH: Nanos = Nanos(300_000_000_000);
/// Bounds the events of that time. Beyond it, it reaches less far.
const EVENTS_MAX: usize = 200_000;
/// Bounds the definitions. Beyond it, nothing can be written.
const DEFINITIONS_MAX: usize = 2_000_000;
/// Bounds the things from before, and the events that each keeps.
const THINGS_MAX: usize = 65_536;
const EVENTS_OF_A_THING_MAX: usize = 256;

/// What lasts longer than an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Arena(ArenaId),
    Segment(SegmentId),
    MemInfo(MemInfoId),
    Task(TaskId),
    Group(Arc<str>),
    /// The latest state counts of a thread's transfers, of a process's memory, and of pyobs.
    Worker(ProcessRef, Tid),
    Resident(ProcessRef),
    Counted(ProcessRef),
    End(ProcessRef),
    Watchpoints,
    Cost,
}

/// What an event means for the thing that it is about.
enum Meaning {
    /// It says how the thing is now, instead of the previous event of its kind.
    State,
    /// It adds to what is known.
    Addition,
    /// The thing is gone.
    End,
}

#[derive(Debug, Default)]
pub(crate) struct Flight {
    definitions: Vec<Event>,
    standing: BTreeMap<Thing, Vec<Event>>,
    recent: VecDeque<Event>,
    newest: Nanos,
}

/// What can be written.
#[derive(Clone, Debug, PartialEq)]
pub struct FlightRecording {
    /// Definitions first. Times begin with the recording.
    pub events: Vec<Event>,
    /// How far it reaches back.
    pub length: Nanos,
}

impl Flight {
    pub(crate) fn add(&mut self, events: Vec<Event>) {
        for event in events {
            match event.at() {
                None if self.definitions.len() < DEFINITIONS_MAX => self.definitions.push(event),
                None => {}
                Some(at) => {
                    self.newest = self.newest.max(at);
                    self.recent.push_back(event);
                }
            }
        }
        let from = self.newest.saturating_sub(LENGTH);
        while self.recent.len() > EVENTS_MAX
            || self.recent.front().and_then(Event::at).is_some_and(|oldest| oldest < from)
        {
            let Some(event) = self.recent.pop_front() else { break };
            self.stand(event);
        }
    }

    /// Keeps an event of before if it says something about now.
    fn stand(&mut self, event: Event) {
        let Some((thing, meaning)) = meaning(&event) else { return };
        if matches!(meaning, Meaning::End) {
            self.standing.remove(&thing);
            return;
        }
        if self.standing.len() >= THINGS_MAX && !self.standing.contains_key(&thing) {
            return;
        }
        let events = self.standing.entry(thing).or_default();
        if matches!(meaning, Meaning::State) {
            events.retain(|other| !is_same_kind(other, &event));
        }
        if events.len() < EVENTS_OF_A_THING_MAX {
            events.push(event);
        }
    }

    /// The recording of the last minutes; `None` if there are too many definitions.
    pub(crate) fn recording(&self) -> Option<FlightRecording> {
        if self.definitions.len() >= DEFINITIONS_MAX {
            return None;
        }
        let from = self.recent.front().and_then(Event::at).unwrap_or(self.newest);
        let before = self.standing.get(&Thing::Cost).and_then(|events| events.first()).cloned();
        let mut standing: Vec<&Event> =
            self.standing.iter().filter(|(thing, _)| **thing != Thing::Cost).flat_map(|(_, events)| events).collect();
        standing.sort_by_key(|event| event.at());
        let events = self.definitions.iter().chain(standing).chain(&self.recent);
        let events = events.map(|event| {
            let mut event = event.clone();
            event.begin_at(from);
            event.cost_since(before.as_ref());
            event
        });
        Some(FlightRecording { events: events.collect(), length: self.newest.saturating_sub(from) })
    }
}

fn is_same_kind(one: &Event, other: &Event) -> bool {
    match (one, other) {
        (Event::Arena { change: one, .. }, Event::Arena { change: other, .. }) => {
            discriminant(one) == discriminant(other)
        }
        (Event::Segment { change: one, .. }, Event::Segment { change: other, .. }) => {
            discriminant(one) == discriminant(other) && holder(one) == holder(other)
        }
        _ => discriminant(one) == discriminant(other),
    }
}

/// The process whose hold on a segment a change is about.
fn holder(change: &SegmentChange) -> Option<Pid> {
    match change {
        SegmentChange::Holds { pid, .. } | SegmentChange::Shown { pid, .. } => Some(*pid),
        _ => None,
    }
}

fn meaning(event: &Event) -> Option<(Thing, Meaning)> {
    use Meaning::{Addition, End, State};
    Some(match event {
        Event::Arena { id, change, .. } => {
            let meaning = match change {
                ArenaChange::Died | ArenaChange::Mistaken => End,
                ArenaChange::Slab { .. } => Addition,
                _ => State,
            };
            (Thing::Arena(*id), meaning)
        }
        Event::Segment { id, change, .. } => {
            let meaning = match change {
                SegmentChange::Gone => End,
                SegmentChange::Begun(_)
                | SegmentChange::Born(_)
                | SegmentChange::Resized(_)
                | SegmentChange::Holds { .. }
                | SegmentChange::Allocated(_)
                | SegmentChange::Shown { .. } => State,
                _ => Addition,
            };
            (Thing::Segment(*id), meaning)
        }
        Event::MemInfo { id, change: MemInfoChange::Died, .. } => (Thing::MemInfo(*id), End),
        Event::MemInfo { id, .. } => (Thing::MemInfo(*id), Addition),
        Event::TaskStatus(status) if status.state.is_none() => (Thing::Task(status.task), End),
        Event::TaskStatus(status) => (Thing::Task(status.task), State),
        Event::Limits(limits) => (Thing::Group(Arc::clone(&limits.cgroup)), State),
        Event::TransferThread(thread) => (Thing::Worker(thread.process, thread.tid), State),
        Event::Resident { process, .. } => (Thing::Resident(*process), State),
        // What was touched before then belongs to no line.
        Event::Heap { process, change: HeapChange::Counted { .. }, .. } => (Thing::Counted(*process), State),
        Event::ProcessEnd { id, .. } => (Thing::End(*id), State),
        Event::Watchpoints { .. } => (Thing::Watchpoints, State),
        Event::Cost { .. } => (Thing::Cost, State),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use pyobs_model::{Outcome, Sample, StackId};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn sample(second: u64) -> Event {
        let (at, process, tid, stack) = (Nanos(second * SECOND), ProcessRef(0), Tid(1), StackId(0));
        let (weight, outcome) = (Nanos(10_000_000), Outcome::Complete);
        Event::Sample(Sample { at, process, tid, cpu: 0, stack, weight, turn_us: None, outcome })
    }

    fn arena(second: u64, id: u32, change: ArenaChange) -> Event {
        Event::Arena { at: Nanos(second * SECOND), id: ArenaId(id), change }
    }

    fn cost(second: u64) -> Event {
        let at = Nanos(second * SECOND);
        Event::Cost { at, bpf: at, cpu: at, startup: Nanos(5), rss_bytes: 7 }
    }

    #[test]
    fn the_latest_hold_of_each_process_is_kept_however_often_it_changes() {
        let mut flight = Flight::default();
        let holds = |second, pid, fds| {
            let change = SegmentChange::Holds { pid: Pid(pid), fds, mappings: 0 };
            Event::Segment { at: Nanos(second * SECOND), id: SegmentId(0), change }
        };
        flight.add((0..2000).map(|fds| holds(1, fds % 2, fds)).collect());
        flight.add(vec![sample(400)]);
        let expected = vec![holds(0, 0, 1998), holds(0, 1, 1999), sample(0)];
        assert_eq!(flight.recording().unwrap().events, expected);
    }

    #[test]
    fn it_has_the_last_minutes_and_what_lasts() {
        let mut flight = Flight::default();
        let stack = Event::Stack { id: StackId(0), frames: [].into() };
        flight.add(vec![stack.clone(), sample(1), cost(2)]);
        let filled = |used| ArenaChange::Filled(pyobs_model::Filled { slabs: 4, used, bytes: 9 });
        flight.add(vec![
            arena(3, 0, ArenaChange::Escaped(StackId(0))),
            arena(4, 0, filled(1)),
            arena(5, 0, filled(2)),
            arena(6, 1, filled(3)),
            arena(7, 1, ArenaChange::Died),
        ]);
        flight.add(vec![sample(390), cost(400), sample(400)]);
        let recording = flight.recording().unwrap();
        assert_eq!(recording.length, Nanos(10 * SECOND));
        let expected = vec![
            stack,
            arena(0, 0, ArenaChange::Escaped(StackId(0))),
            arena(0, 0, filled(2)),
            sample(0),
            Event::Cost {
                at: Nanos(10 * SECOND),
                bpf: Nanos(398 * SECOND),
                cpu: Nanos(398 * SECOND),
                startup: Nanos(0),
                rss_bytes: 7,
            },
            sample(10),
        ];
        assert_eq!(recording.events, expected);
    }
}
