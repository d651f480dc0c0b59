//! What threads did, what memory existed and what was sent, side by side over time.
//!
//! Time is cut into equal slots, so that the result does not grow with the number of events.

use crate::Family;
use std::collections::BTreeMap;

use super::slots::Running;
use super::{Series, Slots, Stage, arenas, birthplace, has_transfer, segments};
use crate::{FrameId, Model, Nanos, ProcessRef, SegmentId, Selection, StackId, Tid, WaitReason};

/// Limits the lanes: threads, arenas and segments per process, and lanes in total.
const THREADS: usize = 64;
const ARENAS: usize = 4;
const SEGMENTS: usize = 32;
const LANES: usize = 512;
/// Limits the threads that are summed: the first seen are kept.
const KEPT: usize = 2048;
/// Limits the functions distinguished within one slot.
const FUNCTIONS: usize = 16;
const REASONS: usize = WaitReason::ALL.len();

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LaneId {
    Thread(ProcessRef, Tid),
    /// Arenas born at one line.
    Arenas(ProcessRef, Option<FrameId>),
    /// Transfers in one stage.
    Transfers(ProcessRef, Stage),
    Segment(SegmentId),
    /// The number of findings supported by events then. [`timeline`] makes no such lane.
    Findings,
    /// The number of measures that kept pyobs inside the budget.
    Shed,
}

/// What a thread did for most of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Ran this function: the innermost Python one if there is one.
    Ran(Option<FrameId>),
    Waited(WaitReason),
}

/// One value per slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    Doing(Vec<Option<Doing>>),
    /// Bytes, transfers or measures.
    Amounts(Series),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    pub id: LaneId,
    pub cells: Cells,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    pub slots: Slots,
    pub lanes: Vec<Lane>,
    /// The number of lanes left out for lack of room.
    pub others: usize,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { slots: Slots { from: Nanos(0), to: Nanos(0), count: 0 }, lanes: Vec::new(), others: 0 }
    }
}

/// A thread's time in one slot, in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Slot {
    ran: Vec<(Option<FrameId>, f64)>,
    waited: [f64; REASONS],
}

impl Slot {
    fn run(&mut self, frame: Option<FrameId>, time: f64) {
        let has_room = self.ran.len() < FUNCTIONS;
        match self.ran.iter_mut().find(|(of, _)| *of == frame) {
            Some((_, sum)) => *sum += time,
            None if has_room => self.ran.push((frame, time)),
            None => {}
        }
    }

    fn doing(&self) -> Option<Doing> {
        let ran: f64 = self.ran.iter().map(|(_, time)| time).sum();
        let waits = WaitReason::ALL.iter().zip(self.waited).max_by(|(_, a), (_, b)| a.total_cmp(b));
        match waits {
            Some((reason, waited)) if waited > ran => Some(Doing::Waited(*reason)),
            _ if ran > 0.0 => {
                let most = self.ran.iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
                Some(Doing::Ran(most.and_then(|(frame, _)| *frame)))
            }
            _ => None,
        }
    }
}

/// The lane of what was shed, if anything was, and the lanes of the processes in `selection`, busiest process first.
/// The times in `slots` replace those of `selection`.
pub fn timeline(model: &Model, selection: &Selection, slots: Slots) -> Timeline {
    let within =
        Selection { from: Some(slots.from), to: Some(Nanos(slots.to.0.saturating_add(1))), ..selection.clone() };
    let mut of_process: BTreeMap<ProcessRef, (f64, Vec<Lane>)> = BTreeMap::new();
    let mut others = 0;
    for (process, mut threads) in threads(model, selection, slots) {
        threads.sort_by(|(_, a), (_, b)| busy(b).total_cmp(&busy(a)));
        others += threads.len().saturating_sub(THREADS);
        let (weight, lanes) = of_process.entry(process).or_default();
        *weight += threads.iter().map(|(_, slots)| busy(slots)).sum::<f64>();
        lanes.extend(threads.into_iter().take(THREADS).map(|(tid, slots)| Lane {
            id: LaneId::Thread(process, tid),
            cells: Cells::Doing(slots.iter().map(Slot::doing).collect()),
        }));
    }
    // Nearly every process has memory from before the recording. Placed last, its lanes crowd out nothing.
    let mut of_before = Vec::new();
    for lane in arena_lanes(model, &within, slots).into_iter().chain(transfer_lanes(model, &within, slots)) {
        match lane.id {
            LaneId::Arenas(_, None) => of_before.push(lane),
            LaneId::Arenas(process, _) | LaneId::Transfers(process, _) => {
                of_process.entry(process).or_default().1.push(lane);
            }
            _ => {}
        }
    }
    let mut processes: Vec<(f64, Vec<Lane>)> = of_process.into_values().collect();
    processes.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut lanes: Vec<Lane> = shed_lane(model, slots).into_iter().collect();
    lanes.extend(processes.into_iter().flat_map(|(_, lanes)| lanes));
    lanes.extend(segment_lanes(model, &within, slots));
    lanes.extend(of_before);
    others += lanes.len().saturating_sub(LANES);
    lanes.truncate(LANES);
    Timeline { slots, lanes, others }
}

fn shed_lane(model: &Model, slots: Slots) -> Option<Lane> {
    let mut running = Running::new(slots);
    for shed in model.sheds() {
        let to = shed.to.map_or(slots.to, |to| to.saturating_sub(Nanos(1)));
        running.add(slots, (shed.from, to.max(shed.from)), 1);
    }
    let amounts = running.series();
    amounts.iter().any(|count| *count > 0).then_some(Lane { id: LaneId::Shed, cells: Cells::Amounts(amounts) })
}

fn busy(slots: &[Slot]) -> f64 {
    let ran = |slot: &Slot| slot.ran.iter().map(|(_, time)| time).sum::<f64>();
    // A thread that waits for the GIL wants to run.
    slots.iter().map(|slot| ran(slot) + slot.waited[WaitReason::Gil as usize]).sum()
}

type Threads = BTreeMap<ProcessRef, Vec<(Tid, Vec<Slot>)>>;

fn threads(model: &Model, selection: &Selection, slots: Slots) -> Threads {
    let mut all = BTreeMap::new();
    let mut functions: BTreeMap<StackId, Option<FrameId>> = BTreeMap::new();
    let has_gil = model.is_on(Family::Gil);
    // A wait that ends later may begin within the slots.
    let later = Selection { from: Some(slots.from), ..selection.clone() };
    let within = Selection { to: Some(Nanos(slots.to.0.saturating_add(1))), ..later.clone() };
    for sample in model.cpu().selected(&within) {
        let leaf = *functions.entry(sample.stack).or_insert_with(|| leaf(model, sample.stack));
        if let Some(slot) = slots.of(sample.at)
            && let Some(cells) = of_thread(&mut all, (sample.process, sample.tid), slots)
        {
            cells[slot].run(leaf, sample.weight.0 as f64);
        }
    }
    let sleeps = model.offcpu().sleeps(&later).filter(|sleep| !has_gil || sleep.reason != WaitReason::Gil);
    let sleeps = sleeps.map(|sleep| (sleep.process, sleep.tid, sleep.reason, (sleep.from, sleep.at), sleep.total));
    let waits = model.gil().waits(&later);
    let waits = waits.map(|wait| (wait.process, wait.tid, WaitReason::Gil, (wait.from, wait.at), wait.total));
    for (process, tid, reason, (from, at), total) in sleeps.chain(waits) {
        let Some(cells) = of_thread(&mut all, (process, tid), slots) else { continue };
        // The exact times of merged sleeps are unknown, so they are spread evenly.
        let density = (total.0 as f64 / at.saturating_sub(from).0.max(1) as f64).min(1.0);
        for (slot, share) in slots.covered(from, at) {
            cells[slot].waited[reason as usize] += share * slots.length() * density;
        }
    }
    let mut threads = Threads::new();
    for ((process, tid), slots) in all {
        threads.entry(process).or_default().push((tid, slots));
    }
    threads
}

fn of_thread(
    all: &mut BTreeMap<(ProcessRef, Tid), Vec<Slot>>,
    thread: (ProcessRef, Tid),
    slots: Slots,
) -> Option<&mut Vec<Slot>> {
    let has_room = all.len() < KEPT || all.contains_key(&thread);
    has_room.then(|| all.entry(thread).or_insert_with(|| vec![Slot::default(); slots.count]))
}

fn leaf(model: &Model, stack: StackId) -> Option<FrameId> {
    let frame = birthplace(model, Some(stack)).or_else(|| model.stack(stack).last().copied());
    frame.map(|frame| model.function_of(frame))
}

fn arena_lanes(model: &Model, selection: &Selection, slots: Slots) -> Vec<Lane> {
    let mut taken: BTreeMap<ProcessRef, usize> = BTreeMap::new();
    let mut lanes = Vec::new();
    for row in arenas(model, selection) {
        let taken = taken.entry(row.process).or_default();
        *taken += 1;
        if *taken > ARENAS {
            continue;
        }
        let mut sums = Running::new(slots);
        for state in row.ids.iter().filter_map(|id| model.arenas().get(*id)) {
            let died = state.died.map_or(slots.to, |(at, _)| at);
            sums.add(slots, (state.begun, died), state.arena.bytes);
        }
        lanes.push(Lane { id: LaneId::Arenas(row.process, row.frame), cells: Cells::Amounts(sums.series()) });
    }
    lanes
}

fn transfer_lanes(model: &Model, selection: &Selection, slots: Slots) -> Vec<Lane> {
    let mut lanes: BTreeMap<(ProcessRef, Stage), Running> = BTreeMap::new();
    for (_, state) in model.ucx().transfers().filter(|(_, state)| has_transfer(selection, state)) {
        for stage in Stage::ALL {
            // A segment or transfer without an end continues.
            let open =
                (stage == Stage::Pending && state.transfer.completed.is_none()).then_some(state.transfer.submitted);
            let open = open.flatten().map(|from| (from, slots.to));
            if let Some(span) = stage.of(state).or(open) {
                let running = lanes.entry((state.transfer.process, stage)).or_insert_with(|| Running::new(slots));
                running.add(slots, span, 1);
            }
        }
    }
    let lane = |((process, stage), running): (_, Running)| Lane {
        id: LaneId::Transfers(process, stage),
        cells: Cells::Amounts(running.series()),
    };
    lanes.into_iter().map(lane).collect()
}

fn segment_lanes(model: &Model, selection: &Selection, slots: Slots) -> Vec<Lane> {
    let mut segments = segments(model, selection);
    segments.sort_by_key(|(id, state)| (std::cmp::Reverse(state.segment.bytes), *id));
    let lane = |(id, state): (SegmentId, &crate::families::shm::SegmentState)| {
        let mut sums = Running::new(slots);
        sums.add(slots, (state.begun, state.ended.unwrap_or(slots.to)), state.segment.bytes);
        Lane { id: LaneId::Segment(id), cells: Cells::Amounts(sums.series()) }
    };
    segments.into_iter().take(SEGMENTS).map(lane).collect()
}
