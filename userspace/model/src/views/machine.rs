//! The machine in five lines: what Python uses, waits for, holds and sends, and what watching it costs; each over time.

use std::collections::BTreeMap;

use super::{gil_shares, has_transfer, spread, transfers};
use crate::{Model, Nanos, ProcessRef, Selection, Tid};

/// Equal parts of a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    pub from: Nanos,
    pub to: Nanos,
    pub count: usize,
}

impl Slots {
    /// The parts of the time that `selection` has, from the first time that is known on.
    pub fn new(model: &Model, selection: &Selection, count: usize) -> Self {
        let to = selection.to.unwrap_or(model.now()).min(model.now());
        Self { from: selection.from.unwrap_or_default().min(to), to, count }
    }

    /// How long each is, in nanoseconds.
    pub fn length(&self) -> f64 {
        self.to.saturating_sub(self.from).0.max(1) as f64 / self.count.max(1) as f64
    }

    /// Where a time lies, in slots from the first one's beginning on.
    fn position(&self, at: Nanos) -> f64 {
        (at.saturating_sub(self.from).0 as f64 / self.length()).min(self.count as f64)
    }

    pub fn of(&self, at: Nanos) -> Option<usize> {
        let is_inside = self.count > 0 && (self.from..=self.to).contains(&at);
        is_inside.then(|| (self.position(at) as usize).min(self.count - 1))
    }

    /// When one begins.
    pub fn start(&self, slot: usize) -> Nanos {
        self.from.saturating_add(Nanos((slot as f64 * self.length()) as u64))
    }

    /// The slots that a stretch of time covers, each with the share of it that is covered.
    pub fn covered(&self, from: Nanos, to: Nanos) -> impl Iterator<Item = (usize, f64)> + use<> {
        let slots = self.ends(from, to).map_or(0..0, |(first, last)| first..last + 1);
        let (first, last) = (self.position(from), self.position(to.max(from)));
        slots.map(move |slot| {
            let (begin, end) = (slot as f64, (slot + 1) as f64);
            (slot, (last.min(end) - first.max(begin)).clamp(0.0, 1.0))
        })
    }

    /// The first and the last of them.
    pub fn ends(&self, from: Nanos, to: Nanos) -> Option<(usize, usize)> {
        let is_inside = from <= self.to && to >= self.from && self.count > 0;
        let slot = |at: Nanos| (self.position(at) as usize).min(self.count.saturating_sub(1));
        is_inside.then(|| (slot(from), slot(to.max(from))))
    }
}

/// A number over time.
pub type Series = Vec<u64>;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Cores that Python processes kept busy on average; `None` where the family was off, as below.
    pub cpu: Option<(f64, Series)>,
    pub gil: Option<GilLine>,
    pub memory: Option<MemoryLine>,
    pub transfers: Option<TransfersLine>,
    /// In millionths of a core.
    pub cost: Series,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct GilLine {
    /// The process whose threads wait most, and the thread of it that holds the GIL longest.
    pub process: Option<ProcessRef>,
    pub holder: Option<Tid>,
    /// Of that process's time.
    pub held: f64,
    /// Threads that waited on average, in all processes.
    pub wanted: f64,
    pub series: Series,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryLine {
    /// What lives at the end of the time: segments, arenas, MemInfos; each `(how many, bytes)`.
    pub segments: (u64, u64),
    pub arenas: (u64, u64),
    pub meminfos: (u64, u64),
    /// Bytes of segments and arenas.
    pub series: Series,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransfersLine {
    pub count: u64,
    pub bytes: u64,
    pub pending: u64,
    /// From being asked for to the end.
    pub p90: Nanos,
    /// Bytes of those that ended.
    pub series: Series,
}

pub fn machine(model: &Model, selection: &Selection, count: usize) -> Machine {
    let slots = Slots::new(model, selection, count);
    let has_memory = ["shm", "arena", "nrt"].iter().any(|family| model.is_on(family));
    Machine {
        cpu: model.is_on("cpu").then(|| cpu(model, selection, slots)),
        gil: model.is_on("gil").then(|| gil(model, selection, slots)),
        memory: has_memory.then(|| memory(model, selection, slots)),
        transfers: model.is_on("ucx").then(|| sent(model, selection, slots)),
        cost: cost(model, slots),
    }
}

fn cpu(model: &Model, selection: &Selection, slots: Slots) -> (f64, Series) {
    let mut series = vec![0; slots.count];
    let is_python = |id: ProcessRef| model.process(id).is_some_and(|state| state.process.python.is_some());
    let mut samples = 0_u64;
    for sample in model.cpu().selected(selection).filter(|sample| is_python(sample.process)) {
        samples += 1;
        if let Some(slot) = slots.of(sample.at) {
            series[slot] += 1;
        }
    }
    let seconds = slots.to.saturating_sub(slots.from).as_secs_f64();
    let possible = seconds * f64::from(model.meta().rate_hz);
    (if possible > 0.0 { samples as f64 / possible } else { 0.0 }, series)
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
    let most = shares.iter().max_by_key(|(id, share)| (share.wanted.total, share.held, std::cmp::Reverse(**id)));
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
    // What comes in each slot, and what has gone before it.
    let mut changes = vec![0_i128; slots.count + 1];
    let mut lives = |begun: Nanos, ended: Option<Nanos>, bytes: u64, sum: &mut (u64, u64)| {
        if let Some((first, last)) = slots.ends(begun, ended.unwrap_or(slots.to)) {
            changes[first] += i128::from(bytes);
            changes[last + 1] -= i128::from(bytes);
        }
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
    for (_, sum) in model.nrt().sums().filter(|(site, _)| selection.has_process(site.process)) {
        line.meminfos = (line.meminfos.0 + sum.live(), line.meminfos.1.saturating_add(sum.bytes));
    }
    let running = changes.iter().take(slots.count).scan(0_i128, |sum, change| {
        *sum += change;
        Some(*sum)
    });
    line.series = running.map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX)).collect();
    line
}

fn sent(model: &Model, selection: &Selection, slots: Slots) -> TransfersLine {
    let mut line = TransfersLine { series: vec![0; slots.count], ..TransfersLine::default() };
    let mut lengths = Vec::new();
    let rows = transfers(model, selection);
    for (_, state, bytes) in rows.iter().filter(|(_, state, _)| state.transfer.parent.is_none()) {
        debug_assert!(has_transfer(selection, state));
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
    // A word of it is about the time since the one before.
    let next = |slot: usize| sums.range(slot..).next().map_or(0, |(_, sum)| mean(sum));
    (0..slots.count).map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Slots = Slots { from: Nanos(1_000), to: Nanos(2_000), count: 10 };

    #[test]
    fn times_have_their_slots() {
        let slots = [999, 1_000, 1_099, 1_100, 2_000, 2_001].map(|at| TEN.of(Nanos(at)));
        assert_eq!(slots, [None, Some(0), Some(0), Some(1), Some(9), None]);
        assert_eq!((TEN.start(0), TEN.start(9)), (Nanos(1_000), Nanos(1_900)));
    }

    #[test]
    fn stretches_cover_slots_in_part() {
        let covered = |from, to| TEN.covered(Nanos(from), Nanos(to)).collect::<Vec<_>>();
        assert_eq!(covered(1_050, 1_200), [(0, 0.5), (1, 1.0), (2, 0.0)]);
        assert_eq!(covered(0, 1_100), [(0, 1.0), (1, 0.0)]);
        assert_eq!(covered(1_950, 9_000), [(9, 0.5)]);
        assert_eq!(covered(0, 900), []);
        assert_eq!(covered(2_100, 2_200), []);
        let whole = covered(0, u64::MAX);
        assert_eq!((whole.len(), whole.iter().map(|(_, share)| share).sum::<f64>()), (10, 10.0));
    }

    #[test]
    fn no_time_and_no_slots_do_no_harm() {
        for slots in [Slots { count: 0, ..TEN }, Slots { to: TEN.from, ..TEN }] {
            assert!(slots.covered(Nanos(0), Nanos(u64::MAX)).count() <= slots.count);
            assert!(slots.of(TEN.from).is_none_or(|slot| slot < slots.count));
        }
    }
}
