//! Native work below Python lines that changes nothing: what memory it accesses, and whether repeated accesses to an
//! address or repeated calls were equal.

mod accesses;
mod calls;
mod folded;
mod pairs;
mod verdict;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

pub use self::accesses::{Accesses, DISPATCH, Names};
pub use self::calls::{CallFrom, CallOf, CallSum, Depth};
use self::folded::{Folded, Suspect};
use self::pairs::is_array_store;
pub use self::pairs::{PairOf, PairSum};
pub use self::verdict::{EQUAL, Verdict, least_share, least_trials};
use super::past::{Past, Timed};
use crate::{
    Access, FrameId, History, Nanos, NativeCall, Pair, Place, ProcessRef, RegionId, Selection, StackId, Touched,
    Watchpoints,
};

/// How many type, array and function names are interned.
const NAMES_KEPT: usize = 50_000;

/// A Python line with native code below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    pub process: ProcessRef,
    pub frame: FrameId,
}

/// Where native code was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    pub line: Line,
    /// The line of the program that led there, which is often the same.
    pub caller: FrameId,
}

impl Origin {
    /// The line of the program.
    pub fn outer(&self) -> Line {
        Line { frame: self.caller, ..self.line }
    }
}

/// An access or a call, with what its stack tells.
#[derive(Clone, Debug)]
struct At<T> {
    origin: Origin,
    event: T,
}

impl<T: Timed> Timed for At<T> {
    fn at(&self) -> Nanos {
        self.event.at()
    }
}

impl Timed for Access {
    fn at(&self) -> Nanos {
        self.at
    }
}

impl Timed for (NativeCall, Depth) {
    fn at(&self) -> Nanos {
        self.0.at
    }
}

impl Timed for (Pair, Option<RegionId>) {
    fn at(&self) -> Nanos {
        self.0.at
    }
}

#[derive(Debug)]
pub struct Redundancy {
    accesses: Past<At<Access>>,
    calls: Past<At<(NativeCall, Depth)>>,
    pairs: Past<(Pair, Option<RegionId>)>,
    folded: Folded,
    /// Interned names of types, arrays and functions.
    names: HashSet<Arc<str>>,
    counts: Watchpoints,
}

impl Redundancy {
    pub fn new(history: History) -> Self {
        Self {
            accesses: Past::new(history),
            calls: Past::new(history),
            pairs: Past::new(history),
            folded: Folded::default(),
            names: HashSet::new(),
            counts: Watchpoints::default(),
        }
    }

    pub fn add_access(&mut self, access: &Access, origin: Option<Origin>) {
        let Some(origin) = origin else { return };
        let touched = access.touched.as_ref().map(|touched| self.known(touched));
        let element_of = access.element_of.as_ref().map(|array| self.name(array));
        let access = At { origin, event: Access { touched, element_of, ..access.clone() } };
        if let Some(oldest) = self.accesses.push(access).filter(|_| self.accesses.has_sums()) {
            self.folded.access(oldest.origin, &oldest.event);
        }
    }

    /// `region` is the arena or segment that contains its address, `line` the one that the second access belongs to.
    pub fn add_pair(&mut self, pair: &Pair, region: Option<RegionId>, line: Option<Line>) {
        if !self.pairs.covered().has_time(pair.at) {
            if let Some(line) = line.filter(|_| is_array_store(pair.kind, &pair.touched)) {
                self.folded.store(line, &PairSum::of(pair));
            }
            return;
        }
        let touched = self.known(&pair.touched);
        let oldest = self.pairs.push((Pair { touched, ..pair.clone() }, region));
        if let Some((pair, region)) = oldest.filter(|_| self.pairs.has_sums()) {
            self.folded.pair(PairOf::of(&pair, region), &PairSum::of(&pair));
        }
    }

    pub fn add_call(&mut self, call: &NativeCall, origin: Option<(Origin, Depth)>) {
        let Some((origin, depth)) = origin else { return };
        let callee = self.name(&call.callee);
        let event = (NativeCall { callee, ..call.clone() }, depth);
        let oldest = self.calls.push(At { origin, event });
        if let Some(At { origin, event: (call, depth) }) = oldest.filter(|_| self.calls.has_sums()) {
            self.folded.call(CallFrom { origin, callee: call.callee, depth }, &CallSum::of(call.compared));
        }
    }

    fn known(&mut self, touched: &Touched) -> Touched {
        match touched {
            Touched::Metadata(name) => Touched::Metadata(name.as_ref().map(|name| self.name(name))),
            Touched::Array(name) => Touched::Array(self.name(name)),
            Touched::Static | Touched::Unknown => touched.clone(),
        }
    }

    fn name(&mut self, name: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        if self.names.len() < NAMES_KEPT {
            self.names.insert(Arc::clone(name));
        }
        Arc::clone(name)
    }

    /// Reassigns the events of evicted processes.
    pub(crate) fn reassign(&mut self, resolve: impl Fn(ProcessRef) -> ProcessRef) {
        for At { origin, event } in self.accesses.iter_mut() {
            (origin.line.process, event.process) = (resolve(origin.line.process), resolve(event.process));
        }
        for At { origin, event: (call, _) } in self.calls.iter_mut() {
            (origin.line.process, call.process) = (resolve(origin.line.process), resolve(call.process));
        }
        self.pairs.iter_mut().for_each(|(pair, _)| pair.process = resolve(pair.process));
        self.folded.reassign(resolve);
    }

    /// Forgets events older than the window ending at `now`.
    pub fn expire(&mut self, now: Nanos) {
        while self.accesses.expire(now).is_some() {}
        while self.calls.expire(now).is_some() {}
        while self.pairs.expire(now).is_some() {}
    }

    /// The time from which on accesses of `selection` are known, one by one or in sums.
    pub fn since(&self, selection: &Selection) -> Nanos {
        self.accesses.since(selection)
    }

    pub fn set_counts(&mut self, counts: Watchpoints) {
        self.counts = counts;
    }

    /// Totals since the recording began.
    pub fn counts(&self) -> Watchpoints {
        self.counts
    }

    /// The sums of the accesses in `selection`.
    pub fn accesses(&self, selection: &Selection) -> BTreeMap<Origin, Accesses> {
        let mut sums = self.summed_in(selection).map(|folded| folded.accesses(selection)).unwrap_or_default();
        for At { origin, event } in self.selected(selection) {
            sums.entry(*origin).or_default().add(event);
        }
        sums
    }

    /// The sums of events that are not kept one by one, if they cover the time of `selection`.
    fn summed_in(&self, selection: &Selection) -> Option<&Folded> {
        self.accesses.is_summed(selection).then_some(&self.folded)
    }

    fn selected<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a At<Access>> + 'a {
        let all = self.accesses.since_then(selection.from);
        all.filter(|access| selection.has(access.event.process, access.event.tid, access.event.at))
    }

    /// The times of samples in native code below a line of a library or of the program.
    pub fn seen_at<'a>(&'a self, selection: &'a Selection, line: Line) -> impl Iterator<Item = Nanos> + 'a {
        let is_there = move |of: &&At<Access>| of.origin.line == line || of.origin.outer() == line;
        self.selected(selection).filter(is_there).map(|of| of.event.at)
    }

    /// The sums of the calls in `selection`.
    pub fn calls(&self, selection: &Selection) -> BTreeMap<CallFrom, CallSum> {
        let mut sums = self.summed_in(selection).map(|folded| folded.calls(selection)).unwrap_or_default();
        for At { origin, event: (call, depth) } in self.calls.since_then(selection.from) {
            if selection.has(call.process, call.tid, call.at) {
                let key = CallFrom { origin: *origin, callee: Arc::clone(&call.callee), depth: *depth };
                sums.entry(key).or_default().add(&CallSum::of(call.compared));
            }
        }
        sums
    }

    /// Returns the number of accesses, pairs and calls that are in sums only, of places that are only in the sums of their
    /// threads, and of events that are in no sum.
    pub fn summed(&self) -> (u64, u64, u64) {
        let gone = self.accesses.gone() + self.pairs.gone() + self.calls.gone();
        (if self.accesses.has_sums() { gone } else { 0 }, self.folded.places_gone(), self.folded.left_out())
    }

    /// Accesses that are kept in sums only.
    pub fn accesses_summed(&self) -> u64 {
        if self.accesses.has_sums() { self.accesses.gone() } else { 0 }
    }

    /// The time from which on accesses are kept one by one.
    pub fn kept_since(&self) -> Nanos {
        self.accesses.kept_since()
    }

    /// Pairs whose second access is in `selection`.
    pub fn pairs<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a (Pair, Option<RegionId>)> + 'a {
        self.pairs.since_then(selection.from).filter(|(pair, _)| selection.has(pair.process, pair.tid, pair.at))
    }

    pub fn pair_sums(&self, selection: &Selection) -> BTreeMap<PairOf, PairSum> {
        let mut sums = self.summed_in(selection).map(|folded| folded.pairs(selection)).unwrap_or_default();
        for (pair, region) in self.pairs(selection) {
            sums.entry(PairOf::of(pair, *region)).or_default().add(&PairSum::of(pair));
        }
        sums
    }

    /// Redundant samples that are kept one by one: those in dispatch, and stores into arrays at lines where most stores left
    /// the value unchanged. Such lines are found over all time, not just the selected one. `line` maps a stack to the line
    /// that called its native code.
    pub fn redundant<'a>(
        &'a self,
        selection: &'a Selection,
        line: impl Fn(StackId) -> Option<FrameId> + 'a,
    ) -> impl Iterator<Item = (Nanos, Place, u64)> + 'a {
        let stores = self.redundant_stores(&line);
        let event = move |At { event, .. }: &'a At<Access>| {
            let suspect = Suspect::of(event).filter(|suspect| is_redundant(suspect, &stores, &line))?;
            Some((event.at, suspect.place, u64::from(event.weight)))
        };
        self.selected(selection).filter_map(event)
    }

    /// The weight of redundant samples that are kept in sums only, by place.
    pub fn redundant_sums(
        &self,
        selection: &Selection,
        line: impl Fn(StackId) -> Option<FrameId>,
    ) -> impl Iterator<Item = (Place, u64)> {
        let stores = self.redundant_stores(&line);
        let suspects = self.summed_in(selection).into_iter().flat_map(Folded::suspects);
        let meant = suspects.filter(move |(Suspect { place, .. }, _)| selection.has_thread(place.process, place.tid));
        meant
            .filter(move |(suspect, _)| is_redundant(suspect, &stores, &line))
            .map(|(suspect, sum)| (suspect.place, sum))
    }

    /// The lines where most stores into arrays left the value unchanged.
    fn redundant_stores(&self, line: impl Fn(StackId) -> Option<FrameId>) -> BTreeSet<Line> {
        let mut stores = self.folded.stores().clone();
        for (pair, sum) in self.pair_sums(self.pairs.covered()) {
            if let Some(frame) = line(pair.second).filter(|_| is_array_store(pair.kind, &pair.touched)) {
                stores.entry(Line { process: pair.process, frame }).or_default().add(&sum);
            }
        }
        stores.into_iter().filter(|(_, sum)| sum.equal * 2 > sum.compared).map(|(line, _)| line).collect()
    }
}

fn is_redundant(suspect: &Suspect, stores: &BTreeSet<Line>, line: impl Fn(StackId) -> Option<FrameId>) -> bool {
    let Suspect { place, stores: is_store } = suspect;
    let is_redundant_line = |frame| stores.contains(&Line { process: place.process, frame });
    !is_store || line(place.stack).is_some_and(is_redundant_line)
}
