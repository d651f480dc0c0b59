//! Scans processes through `/proc`, to learn what they held before the capture began.

use std::ops::Range;
use std::time::Instant;

use aya::maps::MapError;
use pyobs_abi::shm::found::{NO_BIRTH, NO_GENERATION};
use pyobs_abi::shm::{Bounds, Known};
use pyobs_model::{Event, Nanos, Reason};

use super::scan::{Found, Shown, Way};
use super::{Shm, Snapshot};
use crate::kernel::cost::thread_time;
use crate::machine;

/// `BPF_NOEXIST` (<https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/bpf.h>).
pub(super) const NO_EXIST: u64 = 1;

/// Returns bounds that cover all these ranges.
pub(super) fn bounds(ranges: impl Iterator<Item = Range<u64>>) -> Bounds {
    ranges.fold(Bounds::default(), |mut bounds, range| {
        bounds.add(range.start, range.end);
        bounds
    })
}

/// Whether a map has no room for an element: `htab_map_update_elem` in
/// <https://github.com/torvalds/linux/blob/v6.1/kernel/bpf/hashtab.c>.
fn is_full(inserted: Result<(), MapError>) -> bool {
    matches!(inserted, Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::E2BIG))
}

impl Shm {
    /// Takes in the segments that already exist; `running` are the watched processes.
    pub fn scan(&mut self, now: Nanos, everything: bool, running: impl Iterator<Item = u32>, events: &mut Vec<Event>) {
        for pid in running {
            self.scanned.insert(pid);
            for found in self.examine(pid, true, now, events) {
                self.take_in(pid, found, now, events);
            }
        }
        if everything {
            for found in self.devices.of_folder() {
                let _ = self.maps.segments.insert(
                    found.facts.inode,
                    Known { generation: 0, found: NO_GENERATION },
                    NO_EXIST,
                );
                self.take_in(0, found, now, events);
            }
        }
        if self.live.is_empty() {
            return;
        }
        for pid in machine::processes().unwrap_or_default() {
            if !self.scanned.contains(&pid) {
                for found in self.examine(pid, false, now, events) {
                    self.take_in(pid, found, now, events);
                }
            }
        }
    }

    /// The segments that a process holds: the known ones, or with `others` all.
    fn examine(&mut self, pid: u32, others: bool, now: Nanos, events: &mut Vec<Event>) -> Vec<Found> {
        // Mark the process as a holder first, so that the kernel side reports its calls. It does not know earlier
        // mappings, so it reports every unmap while `/proc` is read.
        let mut has_no_room = is_full(self.maps.holders.insert(pid, Bounds::default(), NO_EXIST));
        let mut found = self.shown_by(pid, others).found;
        if found.iter().any(|found| found.mapping().is_some()) {
            has_no_room |= is_full(self.maps.found.insert(pid, Bounds::EVERYTHING, 0));
            let shown = self.shown_by(pid, others);
            if !shown.is_truncated {
                let _ = self.maps.found.insert(pid, bounds(shown.found.iter().filter_map(Found::mapping)), 0);
            }
            found = shown.found;
        }
        if has_no_room && !found.is_empty() {
            events.push(Event::Loss { at: now, reason: Reason::SegmentTableFull, count: 1 });
        }
        if found.is_empty() && self.maps.holders.get(&pid, 0).is_ok_and(|bounds| bounds.has_gained == 0) {
            let _ = self.maps.holders.remove(&pid);
            let _ = self.maps.found.remove(&pid);
        }
        let is_first = self.reconciliation.is_first();
        let unknown = NO_GENERATION | if is_first { NO_BIRTH } else { 0 };
        for found in &found {
            // Do not overwrite: the kernel side's own entries are more precise.
            let _ = self.maps.segments.insert(found.facts.inode, Known { generation: 0, found: unknown }, NO_EXIST);
        }
        found
    }

    /// Scans a process through `/proc`, charged to the process's allowance for map reads.
    pub(super) fn shown_by(&mut self, pid: u32, others: bool) -> Shown {
        let before = thread_time();
        let shown = self.devices.of_process(pid, others, |inode| self.ids.contains_key(inode));
        let took = thread_time().saturating_sub(before);
        self.map_reads.spend(pid, shown.lines, took, Instant::now());
        shown
    }

    /// Whether the process's allowance for map reads is used up.
    pub(super) fn is_spent(&self, pid: u32) -> bool {
        let now = Instant::now();
        self.map_reads.next(pid, now) > now
    }

    /// Scans a running process. Records of its earlier actions may still be in the ring buffer, so the next
    /// tick takes the result in only if no record has arrived by then.
    pub(super) fn take_snapshot(&mut self, pid: u32, tries: u32, now: Nanos, events: &mut Vec<Event>) {
        let version = self.version(pid);
        let found = self.examine(pid, true, now, events);
        if !found.is_empty() {
            self.snapshots.insert(pid, Snapshot { version, tries, found });
        }
    }

    /// Handles an anonymous shared mapping whose file the kernel side could not inspect (before Linux 5.17).
    /// `/proc` shows the file while the mapping exists.
    pub(super) fn made(&mut self, pid: u32, start: u64, at: Nanos, events: &mut Vec<Event>) {
        let found = if self.is_spent(pid) { Vec::new() } else { self.shown_by(pid, true).found };
        let mapping = found.into_iter().find_map(|found| match found.way {
            Way::Mapping { ref range, offset } if range.start == start => Some((range.clone(), offset, found)),
            _ => None,
        });
        let Some((range, offset, Found { facts, kind, name, .. })) = mapping else {
            return events.push(Event::Loss { at, reason: Reason::SegmentUnseen, count: 1 });
        };
        let _ = self.maps.segments.insert(facts.inode, Known { generation: 0, found: NO_GENERATION }, NO_EXIST);
        let known = self.ids.get(&facts.inode).copied();
        let id = known.or_else(|| self.begin(at, &facts, kind, &name, Some(pid), events));
        let Some(id) = id else { return };
        let touched = self.holder(pid).map(range, id, offset);
        self.note(touched, pid, at, events);
    }

    pub(super) fn version(&self, pid: u32) -> u64 {
        self.versions.get(&pid).copied().unwrap_or(0)
    }

    pub(super) fn take_in(&mut self, pid: u32, found: Found, now: Nanos, events: &mut Vec<Event>) {
        let Found { facts, kind, name, way } = found;
        let id = match self.ids.get(&facts.inode) {
            Some(id) => *id,
            None => {
                let Some(id) = self.begin(now, &facts, kind, &name, None, events) else { return };
                id
            }
        };
        let touched = match way {
            Way::Descriptor { fd, close_on_exec } => self.holder(pid).open(fd, id, close_on_exec),
            Way::Mapping { range, offset } => self.holder(pid).map(range, id, offset),
            Way::Name => return,
        };
        self.note(touched, pid, now, events);
    }
}
