//! Accesses of native code that Python calls, by line, within a time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::library::{LibraryTime, library_times};
use super::{calling_line, origin, processes};
use crate::families::redundancy::{
    Accesses, CallFrom, CallOf, CallSum, Depth, EQUAL, Line, Origin, PairOf, PairSum, Verdict,
};
use crate::{Family, FrameId, Model, Nanos, Pair, PairKind, ProcessRef, RegionId, Selection, StackId};

/// The minimum share that a library's line must have of the native code below a line of the program to be listed by
/// itself. Below it, the library spreads its work over many lines, and the code counts for the line of the program.
const OWN_SHARE: f64 = 0.1;

/// The minimum share of a line's samples that a call made by a package below it must have to count for the line.
const INNER_SHARE: f64 = 0.25;

/// The least share of its process's CPU time that a line must spend in a library to be chatty.
const CHATTY: f64 = 0.02;
/// The longest mean turn of a chatty loop, and the minimum number of timed turns.
const TURN_MAX: Nanos = Nanos(500_000);
const TURNS: u64 = 8;

/// A line of the program that calls a library of arrays in a loop, each time for little work.
#[derive(Clone, Debug)]
pub struct Chatty {
    pub library: LibraryTime,
    /// The function of the program that the library calls back, if any. The turns are then those of its calls.
    pub callback: Option<Arc<str>>,
    /// The part of its samples in the library that work on no data: those in the interpreter and, judged by the accesses
    /// whose address is known, those in native code.
    pub overhead: f64,
    pub turns: u64,
    /// The mean.
    pub turn: Nanos,
    /// The mean size of what a call of the library returns, if it is known.
    pub bytes: Option<u64>,
}

impl Chatty {
    /// Calls per second of the process's CPU time, if the library takes this share of it.
    pub fn per_second(&self, share: f64) -> f64 {
        share / self.turn.as_secs_f64().max(1e-9)
    }
}

/// A line that native code belongs to.
#[derive(Clone, Debug, Default)]
pub struct LineSum {
    pub accesses: Accesses,
    /// The weight of the accesses by the line of the program that led there.
    callers: BTreeMap<FrameId, u64>,
}

impl LineSum {
    /// The line of the program that led there most often, and its share.
    pub fn caller(&self) -> Option<(FrameId, f64)> {
        let all: u64 = self.callers.values().sum();
        let (caller, weight) = self.callers.iter().max_by_key(|(frame, weight)| (**weight, Reverse(**frame)))?;
        Some((*caller, *weight as f64 / all.max(1) as f64))
    }
}

#[derive(Clone, Debug, Default)]
pub struct RedundancyView {
    pub lines: BTreeMap<Line, LineSum>,
    pub calls: BTreeMap<CallOf, CallSum>,
    pub pairs: BTreeMap<PairOf, PairSum>,
    pub chatty: BTreeMap<Line, Chatty>,
    /// The lines that stand for themselves under their callers.
    own: BTreeSet<Origin>,
    /// All native code below each line of the program, whichever line it belongs to.
    below: BTreeMap<Line, Accesses>,
    /// CPU time of each process, as samples at the full rate.
    samples: BTreeMap<ProcessRef, f64>,
    /// The share of the samples whose calls were examined.
    examined: f64,
}

impl RedundancyView {
    /// A line's native code as a share of its process's CPU time.
    pub fn share(&self, line: Line) -> f64 {
        self.share_of(line.process, self.lines.get(&line).map(|sum| &sum.accesses))
    }

    fn share_of(&self, process: ProcessRef, accesses: Option<&Accesses>) -> f64 {
        let weight = accesses.map_or(0.0, |sum| sum.weight as f64);
        let all = self.samples.get(&process).copied().unwrap_or(0.0).max(weight);
        if all > 0.0 { weight / all } else { 0.0 }
    }

    /// The native code that a call can be a part of, as a share of its process's CPU time.
    pub fn share_around(&self, call: &CallOf) -> f64 {
        self.share_of(call.line.process, self.accesses_around(call))
    }

    fn accesses_around(&self, call: &CallOf) -> Option<&Accesses> {
        match call.depth {
            Depth::Line | Depth::Below => self.lines.get(&call.line).map(|sum| &sum.accesses),
            Depth::Program => self.below.get(&call.line),
        }
    }

    /// The share of its process's CPU time that a chatty line spends in the library.
    pub fn share_of_library(&self, line: Line, rate_hz: u32) -> f64 {
        let time = self.chatty.get(&line).map_or(0.0, |chatty| chatty.library.time.as_secs_f64());
        self.share_of_time(line, time, rate_hz)
    }

    fn share_of_time(&self, line: Line, seconds: f64, rate_hz: u32) -> f64 {
        let (of, all) = (seconds * f64::from(rate_hz), self.samples.get(&line.process).copied().unwrap_or(0.0));
        if all > 0.0 { (of / all).min(1.0) } else { 0.0 }
    }

    /// The share of a call.
    pub fn share_of_call(&self, call: &CallOf, compared: u64) -> f64 {
        self.share_around(call) * self.part_of_line(call, compared)
    }

    /// A call's share of its line's examined samples. For a call of a package, its share of all examined calls of packages
    /// at the line, because such a call often ends before it can be examined.
    fn part_of_line(&self, call: &CallOf, compared: u64) -> f64 {
        let samples = match call.depth {
            Depth::Program => {
                let others = self.calls.iter().filter(|(of, _)| of.line == call.line && of.depth == Depth::Program);
                others.map(|(_, sum)| sum.compared).sum::<u64>() as f64
            }
            Depth::Line | Depth::Below => {
                self.accesses_around(call).map_or(0.0, |sum| sum.samples as f64 * self.examined)
            }
        };
        compared as f64 / samples.max(compared as f64).max(1.0)
    }

    /// Whether a call counts for its line. A call that a package makes below the line counts only if it is much of the
    /// line's work, because packages repeat lookups all the time.
    pub fn counts_for_line(&self, call: &CallOf, sum: &CallSum) -> bool {
        call.depth != Depth::Below || self.part_of_line(call, sum.compared.max(sum.joins)) >= INNER_SHARE
    }

    /// The line of the program that led to a line most often, and its share of what led there.
    pub fn caller(&self, line: Line) -> (FrameId, f64) {
        self.lines.get(&line).and_then(LineSum::caller).unwrap_or((line.frame, 1.0))
    }

    /// The line that native code at the leaf of a stack belongs to.
    pub fn line(&self, model: &Model, process: ProcessRef, stack: StackId) -> Option<Line> {
        origin(model, process, stack).map(|origin| self.line_of(origin))
    }

    /// What is known about the waste at each line: dispatch, repeated calls, and stores that change nothing or are never read.
    pub fn verdicts(&self, model: &Model) -> BTreeMap<Line, Verdict> {
        let mut calls: BTreeMap<Line, Vec<CallSum>> = BTreeMap::new();
        for (call, sum) in self.calls.iter().filter(|(call, sum)| self.counts_for_line(call, sum)) {
            calls.entry(call.line).or_default().push(*sum);
        }
        let mut stores: BTreeMap<Line, (PairSum, PairSum)> = BTreeMap::new();
        for (pair, sum) in self.pairs.iter().filter(|(pair, _)| pair.is_array_store()) {
            if let Some(line) = self.line(model, pair.process, pair.second) {
                stores.entry(line).or_default().0.add(sum);
            }
            if let Some(line) = self.line(model, pair.process, pair.first) {
                stores.entry(line).or_default().1.add(sum);
            }
        }
        let verdict = |(line, sum): (&Line, &LineSum)| {
            let (over, dead) = stores.get(line).copied().unwrap_or_default();
            let calls = calls.get(line).map_or(&[][..], Vec::as_slice);
            let all = [
                sum.accesses.dispatch_verdict(),
                repetition_verdict(calls),
                over.equality_verdict(),
                dead.unread_verdict(),
            ];
            let verdict = match all {
                _ if self.chatty.contains_key(line) => Verdict::Found,
                _ if all.contains(&Verdict::Found) => Verdict::Found,
                // Either of these shows whether a line computes the same again.
                [Verdict::Clear, Verdict::Clear, ..] | [Verdict::Clear, _, Verdict::Clear, _] => Verdict::Clear,
                _ => Verdict::Undecided,
            };
            (*line, verdict)
        };
        self.lines.iter().map(verdict).collect()
    }

    /// The lines that are undecided, and the greatest share of its process's CPU time that one of them has.
    pub fn undecided(&self, verdicts: &BTreeMap<Line, Verdict>) -> (usize, f64) {
        let undecided = verdicts.iter().filter(|(_, verdict)| **verdict == Verdict::Undecided);
        undecided.fold((0, 0.0), |(count, most), (line, _)| (count + 1, self.share(*line).max(most)))
    }

    fn line_of(&self, origin: Origin) -> Line {
        if self.own.contains(&origin) { origin.line } else { origin.outer() }
    }

    /// Finds the lines that are chatty.
    fn find_chatty(&mut self, times: BTreeMap<Line, LibraryTime>, rate_hz: u32) {
        let mut turns: BTreeMap<Line, Vec<(Arc<str>, CallSum)>> = BTreeMap::new();
        for (call, sum) in self.calls.iter().filter(|(_, sum)| sum.turns > 0) {
            turns.entry(call.line).or_default().push((Arc::clone(&call.callee), *sum));
        }
        for (line, library) in times {
            // If the library calls a function back, only that function's turns count. The library's own are longer.
            let callback = library.callback().cloned();
            let of_line = turns.get(&line).into_iter().flatten();
            let mut sum = CallSum::default();
            let meant = of_line.filter(|(callee, _)| callback.as_ref().is_none_or(|callback| callback == callee));
            meant.for_each(|(_, more)| sum.add(more));
            let Some(turn) = sum.turn().filter(|_| sum.turns >= TURNS) else { continue };
            let mut accesses = Accesses::default();
            let callbacks = library.callback_lines().map(|frame| Line { frame, ..line });
            callbacks.chain([line]).filter_map(|line| self.below.get(&line)).for_each(|of| accesses.merge(of));
            let without_data = accesses.metadata_share().unwrap_or(0.0);
            let native = (library.samples - library.interpreted) as f64;
            let overhead = library.interpreted + (native * without_data) as u64;
            if turn <= TURN_MAX
                && self.share_of_time(line, library.time.as_secs_f64(), rate_hz) >= CHATTY
                && Verdict::of(overhead, library.samples, EQUAL) == Verdict::Found
            {
                let overhead = overhead as f64 / library.samples as f64;
                let bytes = sum.result_bytes().filter(|_| callback.is_none());
                self.chatty.insert(line, Chatty { library, callback, overhead, turns: sum.turns, turn, bytes });
            }
        }
    }

    fn add_accesses(&mut self, sums: BTreeMap<Origin, Accesses>) {
        let mut of_callers: BTreeMap<Line, u64> = BTreeMap::new();
        for (origin, sum) in &sums {
            *of_callers.entry(origin.outer()).or_default() += sum.weight;
        }
        let stands =
            |(origin, sum): &(&Origin, &Accesses)| sum.weight as f64 >= OWN_SHARE * of_callers[&origin.outer()] as f64;
        self.own = sums.iter().filter(stands).map(|(origin, _)| *origin).collect();
        for (origin, sum) in sums {
            let of_line = self.lines.entry(self.line_of(origin)).or_default();
            *of_line.callers.entry(origin.caller).or_default() += sum.weight;
            of_line.accesses.merge(&sum);
        }
    }
}

/// Whether a line's calls repeat. Callees with few of its calls do not count, because they may never get enough.
fn repetition_verdict(calls: &[CallSum]) -> Verdict {
    let all: u64 = calls.iter().map(|call| call.compared).sum();
    let counts = calls.iter().filter(|call| call.is_copying() || call.compared as f64 >= OWN_SHARE * all as f64);
    let verdict = |call: &CallSum| if call.is_copying() { Verdict::Found } else { call.repetition_verdict() };
    counts.map(verdict).min().unwrap_or(Verdict::Undecided)
}

/// A moving selection is extended to all kept time, because ten seconds prove nothing.
pub fn redundancy(model: &Model, selection: &Selection) -> RedundancyView {
    if !model.is_on(Family::Redundancy) {
        return RedundancyView::default();
    }
    let lasting = selection.lasting();
    // CPU samples may be kept for a shorter time.
    let (samples, accesses) = (model.cpu().since(&lasting), model.redundancy().since(&lasting));
    let kept = Some(samples).filter(|since| *since > accesses);
    let selection = &Selection { from: lasting.from.max(kept), ..lasting };
    let of_processes = Selection { tid: None, ..selection.clone() };
    let (family, rate) = (model.redundancy(), f64::from(model.meta().rate_hz));
    let mut view = RedundancyView {
        pairs: family.pair_sums(selection),
        samples: processes(model, &of_processes)
            .into_iter()
            .map(|row| (row.process, row.cpu.time.as_secs_f64() * rate))
            .collect(),
        ..RedundancyView::default()
    };
    let accesses = family.accesses(selection);
    for (origin, sum) in &accesses {
        view.below.entry(origin.outer()).or_default().merge(sum);
    }
    view.add_accesses(accesses);
    let all: u64 = view.lines.values().map(|sum| sum.accesses.samples).sum();
    let examined = Some(family.counts().samples).filter(|examined| *examined > 0).unwrap_or(all);
    view.examined = (examined as f64 / all.max(1) as f64).min(1.0);
    for (CallFrom { origin, callee, depth }, sum) in family.calls(selection) {
        let line = view.line_of(origin);
        let depth = if line == origin.line { depth } else { Depth::Below };
        view.calls.entry(CallOf { line, callee, depth }).or_default().add(&sum);
    }
    view.find_chatty(library_times(model, selection), model.meta().rate_hz);
    view
}

/// Pairs of stores, by the line of the second one.
pub fn stores(model: &Model, selection: &Selection, is_meant: impl Fn(&Pair) -> bool) -> BTreeMap<Line, PairSum> {
    let mut sums: BTreeMap<Line, PairSum> = BTreeMap::new();
    for (pair, _) in model.redundancy().pairs(selection) {
        if pair.kind == PairKind::Store
            && is_meant(pair)
            && let Some(frame) = calling_line(model, pair.second)
        {
            sums.entry(Line { process: pair.process, frame }).or_default().add(&PairSum::of(pair));
        }
    }
    sums
}

/// Whether a pair's address lay in one of these regions, or in a region inside one. `None` if its address is unknown.
pub fn lies_in(model: &Model, pair: &Pair, is_meant: impl Fn(RegionId) -> bool) -> Option<bool> {
    let address = pair.address?;
    Some(model.regions_at_time(pair.process, address, pair.at).any(|region| is_meant(region.id)))
}
