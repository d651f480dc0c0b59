//! Sums of accesses, pairs and calls that are not kept one by one.

use std::collections::BTreeMap;

use super::{Accesses, CallOf, CallSum, Line, PairOf, PairSum};
use crate::{Access, ProcessRef, Selection};

/// Lines whose accesses are added up. They have names of up to 64 things each.
const LINES_MAX: usize = 1 << 12;
/// Pairs of places, and calls at lines, that are added up.
const PAIRS_MAX: usize = 1 << 16;
const CALLS_MAX: usize = 1 << 16;

/// What comes at further lines and places is in no sum but `left_out`.
#[derive(Debug, Default)]
pub(super) struct Folded {
    lines: BTreeMap<Line, Accesses>,
    calls: BTreeMap<CallOf, CallSum>,
    pairs: BTreeMap<PairOf, PairSum>,
    left_out: u64,
}

impl Folded {
    pub(super) fn access(&mut self, line: Line, access: &Access) {
        match sum(&mut self.lines, line, LINES_MAX) {
            Some(sum) => sum.add(access),
            None => self.left_out += 1,
        }
    }

    pub(super) fn call(&mut self, call: CallOf, of: &CallSum) {
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

    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(super) fn lines(&self, selection: &Selection) -> BTreeMap<Line, Accesses> {
        selected(&self.lines, selection, |line| line.process)
    }

    pub(super) fn calls(&self, selection: &Selection) -> BTreeMap<CallOf, CallSum> {
        selected(&self.calls, selection, |call| call.line.process)
    }

    pub(super) fn pairs(&self, selection: &Selection) -> BTreeMap<PairOf, PairSum> {
        selected(&self.pairs, selection, |pair| pair.process)
    }
}

fn sum<K: Ord, S: Default>(sums: &mut BTreeMap<K, S>, key: K, most: usize) -> Option<&mut S> {
    (sums.len() < most || sums.contains_key(&key)).then(|| sums.entry(key).or_default())
}

/// Those of a selection of processes. Times and threads select of those that are kept one by one.
fn selected<K: Ord + Clone, S: Clone>(
    sums: &BTreeMap<K, S>,
    selection: &Selection,
    process: impl Fn(&K) -> ProcessRef,
) -> BTreeMap<K, S> {
    let is_meant = |key: &K| !selection.is_timed() && selection.tid.is_none() && selection.has_process(process(key));
    sums.iter().filter(|(key, _)| is_meant(key)).map(|(key, sum)| (key.clone(), sum.clone())).collect()
}
