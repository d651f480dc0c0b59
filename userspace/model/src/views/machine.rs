//! The machine at a glance, each line over time: what Python uses, waits for, holds and sends, and what watching costs.

use crate::Family;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use foldhash::HashMap;

use super::slots::Running;
use super::weight::{Weight, add};
use super::{Series, Slots, gil_shares, own_line, spread, transfers};
use crate::families::nrt::SiteSum;
use crate::{FrameId, Model, Nanos, ProcessRef, Selection, StackId, Tid};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// `None` if the family was off; the same holds for the fields below.
    pub cpu: Option<CpuLine>,
    pub gil: Option<GilLine>,
    pub memory: Option<MemoryLine>,
    pub transfers: Option<TransfersLine>,
    /// In millionths of a core.
    pub cost: Series,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuLine {
    /// The number of cores that Python processes kept busy, on average.
    pub cores: f64,
    /// The line of a program with the most CPU time, and its share.
    pub hottest: Option<(FrameId, f64)>,
    pub series: Series,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct GilLine {
    /// The process whose threads wait most, and the thread in it that holds the GIL longest.
    pub process: Option<ProcessRef>,
    pub holder: Option<Tid>,
    /// Share of that process's time.
    pub held: f64,
    /// The average number of waiting threads, over all processes.
    pub wanted: f64,
    pub series: Series,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryLine {
    /// What is alive at the end of the time: segments, arenas, MemInfos. Each is `(count, bytes)`.
    pub segments: (u64, u64),
    pub arenas: (u64, u64),
    /// Unknown for an earlier time than the latest.
    pub meminfos: Option<(u64, u64)>,
    /// Bytes of segments and arenas.
    pub series: Series,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransfersLine {
    pub count: u64,
    pub bytes: u64,
    pub pending: u64,
    /// From request to end.
    pub p90: Nanos,
    /// Bytes of finished transfers.
    pub series: Series,
}

pub fn machine(model: &Model, selection: &Selection, count: usize) -> Machine {
    let slots = Slots::new(model, selection, count);
    let has_memory = Weight::Bytes.is_known(model);
    Machine {
        cpu: model.is_on(Family::Cpu).then(|| cpu(model, selection, slots)),
        gil: model.is_on(Family::Gil).then(|| gil(model, selection, slots)),
        memory: has_memory.then(|| memory(model, selection, slots)),
        transfers: model.is_on(Family::Ucx).then(|| sent(model, selection, slots)),
        cost: cost(model, slots),
    }
}

fn cpu(model: &Model, selection: &Selection, slots: Slots) -> CpuLine {
    let mut line = CpuLine { series: vec![0; slots.count], ..CpuLine::default() };
    let mut stacks: HashMap<StackId, u64> = HashMap::default();
    let is_python = |id: ProcessRef| model.process(id).is_some_and(|state| state.process.python.is_some());
    let mut time = 0_u64;
    for (place, sum) in model.cpu().sums(selection).into_iter().filter(|(place, _)| is_python(place.process)) {
        add(&mut time, sum.time.0);
        add(stacks.entry(place.stack).or_default(), sum.time.0);
    }
    for sample in model.cpu().selected(selection).filter(|sample| is_python(sample.process)) {
        if let Some(slot) = slots.of(sample.at) {
            add(&mut line.series[slot], sample.weight.0);
        }
    }
    let seconds = slots.to.saturating_sub(slots.from).as_secs_f64();
    line.cores = if seconds > 0.0 { Nanos(time).as_secs_f64() / seconds } else { 0.0 };
    let mut lines: BTreeMap<FrameId, u64> = BTreeMap::new();
    for (stack, count) in stacks {
        if let Some(frame) = own_line(model, stack).filter(|frame| model.is_python(*frame)) {
            add(lines.entry(frame).or_default(), count);
        }
    }
    let hottest = lines.into_iter().max_by_key(|(frame, count)| (*count, Reverse(*frame)));
    line.hottest = hottest.map(|(frame, count)| (frame, count as f64 / time.max(1) as f64));
    line
}

fn gil(model: &Model, selection: &Selection, slots: Slots) -> GilLine {
    let mut waited = vec![0.0; slots.count];
    for wait in model.gil().waits(selection) {
        let begun = wait.at.saturating_sub(wait.total);
        for (slot, share) in slots.covered(begun, wait.at) {
            waited[slot] += share;
        }
    }
    let shares = gil_shares(model, selection);
    let most = shares.iter().max_by_key(|(id, share)| (share.wanted.total, share.held, Reverse(**id)));
    GilLine {
        process: most.map(|(process, _)| *process),
        holder: most.and_then(|(_, share)| share.holder()).map(|(tid, _)| tid),
        held: most.map_or(0.0, |(_, share)| share.held_share()),
        wanted: shares.values().map(super::GilShare::wanted_share).sum(),
        series: waited.into_iter().map(|share| (share * 1e6) as u64).collect(),
    }
}

fn memory(model: &Model, selection: &Selection, slots: Slots) -> MemoryLine {
    let mut line = MemoryLine::default();
    let mut running = Running::new(slots);
    let mut lives = |begun: Nanos, ended: Option<Nanos>, bytes: u64, sum: &mut (u64, u64)| {
        running.add(slots, (begun, ended.unwrap_or(slots.to)), bytes);
        if begun <= slots.to && ended.is_none_or(|ended| ended > slots.to) {
            *sum = (sum.0 + 1, sum.1.saturating_add(bytes));
        }
    };
    for (_, state) in model.shm().segments() {
        lives(state.begun, state.ended, state.segment.bytes, &mut line.segments);
    }
    for (_, state) in model.arenas().arenas().filter(|(_, state)| selection.has_process(state.arena.process)) {
        lives(state.begun, state.died.map(|(at, _)| at), state.arena.bytes, &mut line.arenas);
    }
    if selection.end() > model.now() {
        let sums = model.nrt().sums().filter(|(site, _)| selection.has_process(site.process));
        let add = |(count, bytes): (u64, u64), sum: &SiteSum| (count + sum.live(), bytes.saturating_add(sum.bytes));
        line.meminfos = Some(sums.fold((0, 0), |all, (_, sum)| add(all, sum)));
    }
    line.series = running.series();
    line
}

fn sent(model: &Model, selection: &Selection, slots: Slots) -> TransfersLine {
    let mut line = TransfersLine { series: vec![0; slots.count], ..TransfersLine::default() };
    let mut lengths = Vec::new();
    let rows = transfers(model, selection);
    for (_, state, bytes) in rows.iter().filter(|(_, state, _)| state.transfer.parent.is_none()) {
        line.count += 1;
        line.bytes = line.bytes.saturating_add(*bytes);
        match (state.transfer.begun(), state.ended()) {
            (Some(begun), Some(ended)) => {
                lengths.push(ended.saturating_sub(begun));
                if let Some(slot) = slots.of(ended) {
                    line.series[slot] = line.series[slot].saturating_add(*bytes);
                }
            }
            _ => line.pending += 1,
        }
    }
    line.p90 = spread(lengths).p90;
    line
}

fn cost(model: &Model, slots: Slots) -> Series {
    let mut sums: BTreeMap<usize, (f64, u32)> = BTreeMap::new();
    for (at, share) in model.cost_history() {
        if let Some(slot) = slots.of(at) {
            let sum = sums.entry(slot).or_default();
            *sum = (sum.0 + share, sum.1 + 1);
        }
    }
    let mean = |(sum, count): &(f64, u32)| (sum / f64::from(*count) * 1e6) as u64;
    // A cost report covers the time since the one before.
    let next = |slot: usize| sums.range(slot..).next().map_or(0, |(_, sum)| mean(sum));
    (0..slots.count).map(next).collect()
}
