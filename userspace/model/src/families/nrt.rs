//! MemInfos of Numba's runtime: how many there have been, and which are left, by where they were born.

use std::collections::{BTreeMap, BTreeSet};

use crate::{MemInfoChange, MemInfoId, Nanos, ProcessRef, StackId};

/// Deaths that are told before their births, whose stacks wait for names.
const EARLY_MAX: usize = 1 << 20;

/// A stack in a process that gave birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub process: ProcessRef,
    pub stack: StackId,
}

/// What became of those that were born at a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub born: u64,
    pub died: u64,
    /// Of those that live.
    pub bytes: u64,
    /// References to those that live, of as many as were looked at.
    pub references: u64,
    pub looked: u64,
    /// When those that live were born.
    live: BTreeSet<(Nanos, MemInfoId)>,
}

impl Sum {
    pub fn live(&self) -> u64 {
        self.born - self.died
    }

    /// When the first of those that live was born.
    pub fn since(&self) -> Option<Nanos> {
        self.live.first().map(|(at, _)| *at)
    }
}

#[derive(Clone, Copy, Debug)]
struct Live {
    site: Site,
    bytes: u64,
    born: Nanos,
    /// When it was looked at last.
    references: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Nrt {
    live: BTreeMap<MemInfoId, Live>,
    early: BTreeSet<MemInfoId>,
    early_references: BTreeMap<MemInfoId, u64>,
    sums: BTreeMap<Site, Sum>,
}

impl Nrt {
    pub fn add(&mut self, at: Nanos, id: MemInfoId, change: &MemInfoChange) {
        match *change {
            MemInfoChange::Born { process, bytes, stack } => {
                let site = Site { process, stack };
                let sum = self.sums.entry(site).or_default();
                sum.born += 1;
                sum.bytes = sum.bytes.saturating_add(bytes);
                sum.live.insert((at, id));
                self.live.insert(id, Live { site, bytes, born: at, references: None });
                if let Some(count) = self.early_references.remove(&id) {
                    self.referenced(id, count);
                }
                if self.early.remove(&id) {
                    self.died(id);
                }
            }
            MemInfoChange::Referenced(count) if self.live.contains_key(&id) => self.referenced(id, count),
            MemInfoChange::Referenced(count) if self.early_references.len() < EARLY_MAX => {
                self.early_references.insert(id, count);
            }
            MemInfoChange::Referenced(_) => {}
            MemInfoChange::Died if self.live.contains_key(&id) => self.died(id),
            MemInfoChange::Died if self.early.len() < EARLY_MAX => {
                self.early.insert(id);
            }
            MemInfoChange::Died => {}
        }
    }

    fn referenced(&mut self, id: MemInfoId, count: u64) {
        let Some(live) = self.live.get_mut(&id) else { return };
        let sum = self.sums.entry(live.site).or_default();
        let before = live.references.replace(count);
        sum.looked += u64::from(before.is_none());
        sum.references = sum.references.saturating_sub(before.unwrap_or(0)).saturating_add(count);
    }

    fn died(&mut self, id: MemInfoId) {
        let Some(live) = self.live.remove(&id) else { return };
        let sum = self.sums.entry(live.site).or_default();
        sum.died += 1;
        sum.bytes = sum.bytes.saturating_sub(live.bytes);
        sum.looked -= u64::from(live.references.is_some());
        sum.references = sum.references.saturating_sub(live.references.unwrap_or(0));
        sum.live.remove(&(live.born, id));
    }

    pub fn sums(&self) -> impl Iterator<Item = (Site, &Sum)> + '_ {
        self.sums.iter().map(|(site, sum)| (*site, sum))
    }
}
