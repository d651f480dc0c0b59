//! Sums of accesses, pairs and calls that are not kept one by one.

use std::collections::BTreeMap;

use super::{Accesses, CallFrom, CallSum, Line, Origin, PairOf, PairSum};
use crate::families::places::{OfProcess, Placed, Places, reassign};
use crate::{Access, Place, ProcessRef, Selection, Touched};

/// Limits the lines with sums of stores, and the lines and callers with sums of accesses, each with up to 64 names.
const LINES_MAX: usize = 1 << 12;
/// How many pairs of places, and calls at lines, have sums.
const PAIRS_MAX: usize = 1 << 16;
const CALLS_MAX: usize = 1 << 16;

/// Accesses that may be redundant, by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Suspect {
    pub(super) place: Place,
    /// Whether they are stores into arrays, which are redundant only at some lines, rather than dispatch.
    pub(super) stores: bool,
}

impl Suspect {
    pub(super) fn of(access: &Access) -> Option<Self> {
        let stores = match access.touched {
            Some(Touched::Metadata(_) | Touched::Static) => false,
            Some(Touched::Array(_)) if access.stores => true,
            Some(Touched::Array(_) | Touched::Unknown) | None => return None,
        };
        Some(Self { place: Place { process: access.process, tid: access.tid, stack: access.stack }, stores })
    }
}

impl Placed for Suspect {
    fn of_thread(&self) -> Self {
        Self { place: self.place.of_thread(), ..*self }
    }

    fn of_process(&self) -> Self {
        Self { place: self.place.of_process(), ..*self }
    }
}

impl OfProcess for Suspect {
    fn process(&self) -> ProcessRef {
        self.place.process
    }

    fn of_others(&self) -> Self {
        Self { place: self.place.of_others(), ..*self }
    }
}

/// Events at further lines and places are in no sum; `left_out` counts them.
#[derive(Debug, Default)]
pub(super) struct Folded {
    accesses: BTreeMap<Origin, Accesses>,
    calls: BTreeMap<CallFrom, CallSum>,
    pairs: BTreeMap<PairOf, PairSum>,
    /// The weight of accesses that may be redundant.
    suspects: Places<Suspect, u64>,
    /// Stores into arrays outside the covered time, which help to tell where stores are redundant.
    stores: BTreeMap<Line, PairSum>,
    left_out: u64,
}

impl Folded {
    pub(super) fn access(&mut self, origin: Origin, access: &Access) {
        match sum(&mut self.accesses, origin, LINES_MAX) {
            Some(sum) => sum.add(access),
            None => self.left_out += 1,
        }
        if let Some(suspect) = Suspect::of(access) {
            let sum = self.suspects.of(suspect);
            *sum = sum.saturating_add(u64::from(access.weight));
        }
    }

    /// Adds a store into an array that is outside the covered time.
    pub(super) fn store(&mut self, line: Line, of: &PairSum) {
        match sum(&mut self.stores, line, LINES_MAX) {
            Some(sum) => sum.add(of),
            None => self.left_out += 1,
        }
    }

    pub(super) fn stores(&self) -> &BTreeMap<Line, PairSum> {
        &self.stores
    }

    pub(super) fn suspects(&self) -> impl Iterator<Item = (&Suspect, u64)> {
        self.suspects.iter().map(|(suspect, weight)| (suspect, *weight))
    }

    pub(super) fn call(&mut self, call: CallFrom, of: &CallSum) {
        match sum(&mut self.calls, call, CALLS_MAX) {
            Some(sum) => sum.add(of),
            None => self.left_out += 1,
        }
    }

    pub(super) fn pair(&mut self, pair: PairOf, of: &PairSum) {
        match sum(&mut self.pairs, pair, PAIRS_MAX) {
            Some(sum) => sum.add(of),
            None => self.left_out += 1,
        }
    }

    /// Reassigns the sums of evicted processes.
    pub(super) fn reassign(&mut self, resolve: impl Fn(ProcessRef) -> ProcessRef) {
        reassign(&mut self.accesses, |of| other(of, |of| &mut of.line.process, &resolve), |sum, of| sum.merge(&of));
        reassign(&mut self.calls, |of| other(of, |of| &mut of.origin.line.process, &resolve), |sum, of| sum.add(&of));
        reassign(&mut self.pairs, |of| other(of, |of| &mut of.process, &resolve), |sum, of| sum.add(&of));
        reassign(&mut self.stores, |of| other(of, |of| &mut of.process, &resolve), |sum, of| sum.add(&of));
        self.suspects.reassign(resolve);
    }

    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// How many places are only in the sums of their threads and processes.
    pub(super) fn places_gone(&self) -> u64 {
        self.suspects.gone()
    }

    /// Call these three only for a selection whose time the sums cover.
    pub(super) fn accesses(&self, selection: &Selection) -> BTreeMap<Origin, Accesses> {
        selected(&self.accesses, selection, |origin| origin.line.process)
    }

    pub(super) fn calls(&self, selection: &Selection) -> BTreeMap<CallFrom, CallSum> {
        selected(&self.calls, selection, |call| call.origin.line.process)
    }

    pub(super) fn pairs(&self, selection: &Selection) -> BTreeMap<PairOf, PairSum> {
        selected(&self.pairs, selection, |pair| pair.process)
    }
}

/// The same key of [`ProcessRef::OTHERS`]; `None` if its process was not evicted.
fn other<K: Clone>(
    key: &K,
    process: impl Fn(&mut K) -> &mut ProcessRef,
    resolve: impl Fn(ProcessRef) -> ProcessRef,
) -> Option<K> {
    let mut other = key.clone();
    let of = process(&mut other);
    let known = resolve(*of);
    (std::mem::replace(of, known) != known).then_some(other)
}

fn sum<K: Ord, S: Default>(sums: &mut BTreeMap<K, S>, key: K, most: usize) -> Option<&mut S> {
    (sums.len() < most || sums.contains_key(&key)).then(|| sums.entry(key).or_default())
}

/// The sums of the selected processes. A selection of one thread has none, because lines and calls have no threads.
fn selected<K: Ord + Clone, S: Clone>(
    sums: &BTreeMap<K, S>,
    selection: &Selection,
    process: impl Fn(&K) -> ProcessRef,
) -> BTreeMap<K, S> {
    let is_meant = |key: &K| selection.tid.is_none() && selection.has_process(process(key));
    sums.iter().filter(|(key, _)| is_meant(key)).map(|(key, sum)| (key.clone(), sum.clone())).collect()
}
