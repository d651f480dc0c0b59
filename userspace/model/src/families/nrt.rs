//! MemInfos of Numba's runtime: how many there were and how many are left, by birth stack.

use std::collections::{BTreeMap, BTreeSet};

use crate::{History, MemInfoChange, MemInfoId, Nanos, ProcessRef, StackId};

/// Limits deaths seen before their births. Birth events wait until their stacks have names.
const EARLY_MAX: usize = 1 << 20;
/// Limits the sites kept. Beyond it, sites without live MemInfos are forgotten.
const SITES_MAX: usize = 1 << 14;

/// A birth stack in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub process: ProcessRef,
    pub stack: StackId,
}

/// Totals of the MemInfos born at a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteSum {
    pub born: u64,
    pub died: u64,
    /// Bytes of the live ones.
    pub bytes: u64,
    /// References to the live ones that were examined.
    pub references: u64,
    pub looked: u64,
    /// Birth times of the live ones.
    live: BTreeSet<(Nanos, MemInfoId)>,
}

impl SiteSum {
    pub fn live(&self) -> u64 {
        self.born - self.died
    }

    /// When the oldest live one was born.
    pub fn since(&self) -> Option<Nanos> {
        self.live.first().map(|(at, _)| *at)
    }
}

#[derive(Clone, Copy, Debug)]
struct Live {
    site: Site,
    bytes: u64,
    data: u64,
    born: Nanos,
    /// The reference count at the last examination.
    references: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Nrt {
    live: BTreeMap<MemInfoId, Live>,
    early: BTreeMap<MemInfoId, Nanos>,
    early_references: BTreeMap<MemInfoId, u64>,
    sums: BTreeMap<Site, SiteSum>,
    forgotten: ForgottenSites,
}

/// Totals of the sites that were forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgottenSites {
    pub born: u64,
    pub died: u64,
}

impl Nrt {
    pub fn new(_: History) -> Self {
        Self::default()
    }

    /// Keeps everything: the number of sites is bounded anyway.
    pub fn expire(&mut self, _now: Nanos) {}

    pub fn add(&mut self, at: Nanos, id: MemInfoId, change: &MemInfoChange) {
        match *change {
            MemInfoChange::Born { process, bytes, data, stack } => {
                self.make_room();
                let site = Site { process, stack };
                let sum = self.sums.entry(site).or_default();
                sum.born += 1;
                sum.bytes = sum.bytes.saturating_add(bytes);
                sum.live.insert((at, id));
                self.live.insert(id, Live { site, bytes, data, born: at, references: None });
                if let Some(count) = self.early_references.remove(&id) {
                    self.referenced(id, count);
                }
                if self.early.remove(&id).is_some() {
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
                self.early.insert(id, at);
            }
            MemInfoChange::Died => {}
        }
    }

    /// Forgets half of the sites without live MemInfos, beginning with those that made the fewest.
    fn make_room(&mut self) {
        if self.sums.len() < SITES_MAX {
            return;
        }
        let mut dead: Vec<(u64, Site)> =
            self.sums.iter().filter(|(_, sum)| sum.live() == 0).map(|(site, sum)| (sum.born, *site)).collect();
        dead.sort_unstable();
        // If every site has live ones, the first site is forgotten and its MemInfos are no longer followed.
        let victims: Vec<Site> = match dead.len() {
            0 => self.sums.keys().next().copied().into_iter().collect(),
            count => dead.into_iter().take(count.div_ceil(2)).map(|(_, site)| site).collect(),
        };
        for site in victims {
            let Some(sum) = self.sums.remove(&site) else { continue };
            for (_, id) in &sum.live {
                self.live.remove(id);
            }
            self.forgotten.born += sum.born;
            self.forgotten.died += sum.died;
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

    /// When a MemInfo died whose birth is still to come.
    pub fn died_early(&self, id: MemInfoId) -> Option<Nanos> {
        self.early.get(&id).copied()
    }

    /// The process of a live MemInfo, and the address of its data.
    pub fn place(&self, id: MemInfoId) -> Option<(ProcessRef, u64)> {
        self.live.get(&id).map(|live| (live.site.process, live.data))
    }

    pub fn forgotten(&self) -> ForgottenSites {
        self.forgotten
    }

    pub fn sums(&self) -> impl Iterator<Item = (Site, &SiteSum)> + '_ {
        self.sums.iter().map(|(site, sum)| (*site, sum))
    }
}
