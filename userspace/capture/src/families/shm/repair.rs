//! Reconciliation: regularly compares what processes hold with what is known, to correct what records missed.
//!
//! The kernel's iterators show what every process holds, with the inodes' generations. On kernels without
//! them, `/proc` shows a few processes in turn. Records lag behind both, so only a difference seen twice,
//! with no record in between, is corrected.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use pyobs_abi::shm::{Bounds, Facts, Inode, Row, row};
use pyobs_model::{Event, Nanos, Reason};

use super::Shm;
use super::holder::{Difference, Holder};
use super::scan::Way;
use super::snapshots::{NO_EXIST, bounds};
use crate::kernel::cost;

/// The interval, and the shorter one after a difference was seen. That one doubles while the difference can neither be
/// confirmed nor excluded, because the process does not pause long enough.
const EVERY: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(500);
/// When the first comparison is due after the programs at system calls have been attached.
const FIRST_AFTER: Duration = Duration::from_millis(100);
/// An iteration is slow on a machine with very many mappings, so all of them together may use 1/4000 of a
/// CPU. For a short time after a difference was seen, they may use 1/100.
const SHARE: u32 = 4000;
const SHARE_AGAIN: u32 = 100;
/// Processes read per round through `/proc`; each costs about a millisecond.
const AT_ONCE: usize = 8;
const NONE_MAX: usize = 4096;
/// After the programs at system calls have been attached, differences are not losses for this long: they are from
/// before.
const FIRST: Duration = Duration::from_secs(3);

/// When the next comparison is due, and the differences seen.
pub struct Reconciliation {
    due: Instant,
    /// The interval while a difference is suspected.
    again: Duration,
    /// The last process read through `/proc`.
    last: u32,
    /// Each suspect process's number of records when the difference was seen.
    suspects: BTreeMap<u32, u64>,
    /// The same for processes that hold segments not yet known.
    strange: BTreeMap<u32, u64>,
    /// Inodes known not to be segments, whoever holds them.
    none: HashSet<Inode>,
    /// Until when differences are not losses.
    first_until: Option<Instant>,
}

impl Default for Reconciliation {
    fn default() -> Self {
        Self {
            due: Instant::now() + EVERY,
            again: AGAIN,
            last: 0,
            suspects: BTreeMap::new(),
            strange: BTreeMap::new(),
            none: HashSet::new(),
            first_until: None,
        }
    }
}

impl Reconciliation {
    /// The programs at system calls have been attached. What these holders had before is only partly known, so the
    /// first difference counts.
    pub fn starts(&mut self, holders: Vec<(u32, u64)>) {
        let now = Instant::now();
        self.suspects.extend(holders);
        (self.due, self.again, self.first_until) = (now + FIRST_AFTER, AGAIN, Some(now + FIRST));
    }

    pub fn is_first(&self) -> bool {
        self.first_until.is_some_and(|until| Instant::now() < until)
    }

    pub fn ended(&mut self, pid: u32) {
        self.suspects.remove(&pid);
    }
}

impl Shm {
    /// Whether it is time to compare.
    pub fn is_reconciliation_due(&self) -> bool {
        Instant::now() >= self.reconciliation.due && (!self.live.is_empty() || !self.holders.is_empty())
    }

    /// Compares; `iterate` runs the kernel's iterators, if there are any.
    pub fn reconcile(&mut self, now: Nanos, iterate: impl FnOnce() -> Option<Vec<Row>>, events: &mut Vec<Event>) {
        let before = cost::thread_time();
        match iterate() {
            Some(rows) => self.compare_all(&rows, now, events),
            None => self.compare_some(now, events),
        }
        let is_calm = self.reconciliation.suspects.is_empty() && self.reconciliation.strange.is_empty();
        let again = self.reconciliation.again;
        let (wait, share) = if is_calm || again >= EVERY { (EVERY, SHARE) } else { (again, SHARE_AGAIN) };
        self.reconciliation.again = if is_calm { AGAIN } else { EVERY.min(again * 2) };
        let took = cost::thread_time().saturating_sub(before);
        self.reconciliation.due = Instant::now() + wait.max(took * share);
    }

    fn compare_all(&mut self, rows: &[Row], now: Nanos, events: &mut Vec<Event>) {
        let mut shown: BTreeMap<u32, Holder> = BTreeMap::new();
        let mut strange: BTreeMap<u32, Vec<Inode>> = BTreeMap::new();
        for row in rows {
            let id = if row.flags & row::UNKNOWN == 0 { self.known(&row.facts) } else { None };
            let Some(id) = id else {
                // A segment whose creation was missed.
                let inode = row.facts.inode;
                if self.devices.is_memory(inode.dev) && !self.reconciliation.none.contains(&inode) {
                    strange.entry(row.pid).or_default().push(inode);
                }
                continue;
            };
            self.update(id, now, &row.facts, events);
            let holder = shown.entry(row.pid).or_default();
            if row.flags & row::DESCRIPTOR != 0 {
                holder.open(row.fd, id, row.flags & row::CLOSE_ON_EXEC != 0);
            } else {
                holder.map(row.start..row.end, id, row.offset);
            }
        }
        let pids: BTreeSet<u32> = self.holders.keys().chain(shown.keys()).copied().collect();
        self.reconciliation.suspects.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            self.compare(pid, shown.remove(&pid).unwrap_or_default(), now, events);
        }
        let before = std::mem::take(&mut self.reconciliation.strange);
        for (pid, inodes) in strange {
            let version = self.version(pid);
            if before.get(&pid) != Some(&version) {
                self.reconciliation.strange.insert(pid, version);
                continue;
            }
            self.take_snapshot(pid, 0, now, events);
            if !self.reconciliation.is_first() {
                events.push(Event::Loss { at: now, reason: Reason::SegmentHolderMissed, count: 1 });
            }
            // What the scan did not recognize is not a segment: System V shared memory.
            if self.reconciliation.none.len() < NONE_MAX {
                self.reconciliation.none.extend(inodes);
            }
        }
    }

    /// Compares the suspects and a few other processes in turn.
    fn compare_some(&mut self, now: Nanos, events: &mut Vec<Event>) {
        let last = self.reconciliation.last;
        let mut pids: Vec<u32> = self.holders.keys().copied().filter(|pid| *pid > last).collect();
        pids.sort_unstable();
        pids.truncate(AT_ONCE);
        self.reconciliation.last = if pids.len() < AT_ONCE { 0 } else { pids.last().copied().unwrap_or(0) };
        let suspects = self.reconciliation.suspects.keys().copied();
        let pids: BTreeSet<u32> = suspects.filter(|pid| self.holders.contains_key(pid)).chain(pids).collect();
        for pid in pids {
            if self.is_spent(pid) {
                continue;
            }
            let seen = self.shown_by(pid, false);
            // Absence from a truncated read does not mean it is gone.
            if seen.is_truncated {
                continue;
            }
            let mut shown = Holder::default();
            for found in seen.found {
                let Some(id) = self.known(&found.facts) else { continue };
                match found.way {
                    Way::Descriptor { fd, close_on_exec } => drop(shown.open(fd, id, close_on_exec)),
                    Way::Mapping { range, offset } => drop(shown.map(range, id, offset)),
                    Way::Name => {}
                }
            }
            self.compare(pid, shown, now, events);
        }
    }

    fn known(&self, facts: &Facts) -> Option<pyobs_model::SegmentId> {
        let id = *self.ids.get(&facts.inode)?;
        let generation = self.live.get(&id)?.generation;
        // `/proc` does not show generations, so 0 matches any.
        (generation == 0 || facts.generation == 0 || generation == facts.generation).then_some(id)
    }

    fn compare(&mut self, pid: u32, shown: Holder, now: Nanos, events: &mut Vec<Event>) {
        let (version, nobody) = (self.version(pid), Holder::default());
        let difference = self.holders.get(&pid).unwrap_or(&nobody).difference(&shown);
        if difference.is_none() {
            self.reconciliation.suspects.remove(&pid);
            return;
        }
        if self.reconciliation.suspects.insert(pid, version) != Some(version) {
            return;
        }
        self.reconciliation.suspects.remove(&pid);
        // From now on the kernel side has to watch this process's calls.
        let is_missing = self.maps.holders.insert(pid, Bounds::default(), NO_EXIST).is_ok();
        if is_missing || difference.mapping_missed {
            let _ = self.maps.found.insert(pid, bounds(shown.ranges()), 0);
        }
        let touched = self.holder(pid).replace(shown);
        self.note(touched, pid, now, events);
        if !self.reconciliation.is_first() {
            events.extend(repairs(difference).map(|reason| Event::Loss { at: now, reason, count: 1 }));
        }
        if self.holders.get(&pid).is_some_and(|holder| holder.held().is_empty()) && difference.is_new {
            self.holders.remove(&pid);
        }
    }
}

/// The kinds of correction in a difference.
fn repairs(difference: Difference) -> impl Iterator<Item = Reason> {
    let Difference { is_new, fd_missed, fd_gone, mapping_missed, mapping_gone } = difference;
    let kinds = [
        (is_new, Reason::SegmentHolderMissed),
        (fd_missed && !is_new, Reason::SegmentDescriptorMissed),
        (fd_gone, Reason::SegmentDescriptorGone),
        (mapping_missed && !is_new, Reason::SegmentMappingMissed),
        (mapping_gone, Reason::SegmentMappingGone),
    ];
    kinds.into_iter().filter(|(is_one, _)| *is_one).map(|(_, reason)| reason)
}
