//! What one process has: descriptors and mappings of segments.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pyobs_model::SegmentId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Descriptor {
    segment: SegmentId,
    close_on_exec: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    end: u64,
    segment: SegmentId,
    /// Where in the segment it begins.
    offset: u64,
}

/// Each change returns the segments that it is about.
#[derive(Clone, Debug, Default)]
pub struct Person {
    fds: BTreeMap<u32, Descriptor>,
    /// By where they begin; they do not overlap.
    mappings: BTreeMap<u64, Mapping>,
    /// Those that it holds or held.
    known: BTreeSet<SegmentId>,
}

impl Person {
    pub fn count(&self, segment: SegmentId) -> (u32, u32) {
        let fds = self.fds.values().filter(|fd| fd.segment == segment).count();
        let mappings = self.mappings.values().filter(|mapping| mapping.segment == segment).count();
        (fds as u32, mappings as u32)
    }

    pub fn known(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.known.iter().copied()
    }

    pub fn held(&self) -> Vec<SegmentId> {
        let fds = self.fds.values().map(|fd| fd.segment);
        unique(fds.chain(self.mappings.values().map(|mapping| mapping.segment)))
    }

    pub fn open(&mut self, fd: u32, segment: SegmentId, close_on_exec: bool) -> Vec<SegmentId> {
        self.known.insert(segment);
        let before = self.fds.insert(fd, Descriptor { segment, close_on_exec });
        unique(before.map(|before| before.segment).into_iter().chain([segment]))
    }

    pub fn close(&mut self, fd: u32) -> Vec<SegmentId> {
        self.fds.remove(&fd).map(|fd| fd.segment).into_iter().collect()
    }

    /// Both ends included.
    pub fn close_range(&mut self, range: Range<u64>) -> Vec<SegmentId> {
        let (fds, kept) = std::mem::take(&mut self.fds).into_iter().partition(|(fd, _)| is_in(*fd, &range));
        self.fds = kept;
        let fds: BTreeMap<u32, Descriptor> = fds;
        unique(fds.values().map(|fd| fd.segment))
    }

    pub fn mark(&mut self, fd: u32, close_on_exec: bool) {
        if let Some(fd) = self.fds.get_mut(&fd) {
            fd.close_on_exec = close_on_exec;
        }
    }

    /// An exec closes these; both ends included.
    pub fn mark_range(&mut self, range: Range<u64>) {
        for (_, descriptor) in self.fds.iter_mut().filter(|(fd, _)| is_in(**fd, &range)) {
            descriptor.close_on_exec = true;
        }
    }

    pub fn map(&mut self, range: Range<u64>, segment: SegmentId, offset: u64) -> Vec<SegmentId> {
        let mut touched = self.unmap(range.clone());
        self.known.insert(segment);
        self.mappings.insert(range.start, Mapping { end: range.end, segment, offset });
        touched.push(segment);
        unique(touched.into_iter())
    }

    pub fn unmap(&mut self, range: Range<u64>) -> Vec<SegmentId> {
        let overlapping = self.overlapping(&range);
        for (start, mapping) in &overlapping {
            self.mappings.remove(start);
            if *start < range.start {
                self.mappings.insert(*start, Mapping { end: range.start, ..*mapping });
            }
            if mapping.end > range.end {
                let offset = mapping.offset + (range.end - start);
                self.mappings.insert(range.end, Mapping { offset, ..*mapping });
            }
        }
        unique(overlapping.iter().map(|(_, mapping)| mapping.segment))
    }

    /// What was mapped in one range is now in another, which may be the same, larger or smaller. The kernel makes one
    /// mapping of it and its neighbours where they show one piece of the segment.
    pub fn remap(&mut self, from: Range<u64>, to: Range<u64>) -> Vec<SegmentId> {
        let Some((start, mapping)) = self.overlapping(&from).first().copied() else { return Vec::new() };
        let offset = mapping.offset + from.start.saturating_sub(start);
        let mut touched = self.unmap(from);
        touched.extend(self.map(to.clone(), mapping.segment, offset));
        self.join(to.end);
        self.join(to.start);
        unique(touched.into_iter())
    }

    /// Makes one mapping of those that end and begin at this address, if they show one piece of a segment.
    fn join(&mut self, at: u64) {
        let Some((start, before)) = self.mappings.range(..at).next_back().map(|(start, it)| (*start, *it)) else {
            return;
        };
        let Some(after) = self.mappings.get(&at).copied() else { return };
        let is_one = before.segment == after.segment && before.offset + (at - start) == after.offset;
        if before.end == at && is_one {
            self.mappings.remove(&at);
            self.mappings.insert(start, Mapping { end: after.end, ..before });
        }
    }

    /// Whether another look at the same process shows the same.
    pub fn is_like(&self, other: &Self) -> bool {
        let fds = |person: &Self| -> Vec<(u32, SegmentId)> {
            person.fds.iter().map(|(fd, descriptor)| (*fd, descriptor.segment)).collect()
        };
        fds(self) == fds(other) && self.mapped() == other.mapped()
    }

    /// Bytes of each segment.
    fn mapped(&self) -> BTreeMap<SegmentId, u64> {
        let mut bytes = BTreeMap::new();
        for (start, mapping) in &self.mappings {
            *bytes.entry(mapping.segment).or_default() += mapping.end - start;
        }
        bytes
    }

    /// Takes over what another look shows. Returns all that it held or holds.
    pub fn replace(&mut self, other: Self) -> Vec<SegmentId> {
        let before = self.held();
        (self.fds, self.mappings) = (other.fds, other.mappings);
        self.known.extend(other.known);
        unique(before.into_iter().chain(self.held()))
    }

    /// It becomes another program. Returns all that it held.
    pub fn exec(&mut self) -> Vec<SegmentId> {
        let held = self.held();
        self.mappings.clear();
        self.fds.retain(|_, fd| !fd.close_on_exec);
        held
    }

    fn overlapping(&self, range: &Range<u64>) -> Vec<(u64, Mapping)> {
        let before = self.mappings.range(..range.start).next_back().filter(|(_, mapping)| mapping.end > range.start);
        let within = if range.is_empty() { 0..0 } else { range.clone() };
        before.into_iter().chain(self.mappings.range(within)).map(|(start, mapping)| (*start, *mapping)).collect()
    }
}

fn is_in(fd: u32, range: &Range<u64>) -> bool {
    (range.start..=range.end).contains(&fd.into())
}

fn unique(segments: impl Iterator<Item = SegmentId>) -> Vec<SegmentId> {
    segments.collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SegmentId = SegmentId(0);
    const B: SegmentId = SegmentId(1);

    #[test]
    fn a_mapping_can_be_cut_at_either_end_and_in_the_middle() {
        let mut person = Person::default();
        person.map(0x1000..0x9000, A, 0);
        assert_eq!(person.unmap(0x0..0x2000), [A]);
        assert_eq!(person.unmap(0x8000..0xa000), [A]);
        assert_eq!(person.count(A), (0, 1));
        assert_eq!(person.unmap(0x4000..0x5000), [A]);
        assert_eq!(person.count(A), (0, 2));
        assert_eq!(person.unmap(0x2000..0x4000), [A]);
        assert_eq!(person.unmap(0x5000..0x8000), [A]);
        assert_eq!(person.count(A), (0, 0));
        assert_eq!(person.unmap(0..u64::MAX), []);
    }

    #[test]
    fn what_is_mapped_over_is_gone() {
        let mut person = Person::default();
        person.map(0x1000..0x3000, A, 0);
        assert_eq!(person.map(0x1000..0x3000, B, 0), [A, B]);
        assert_eq!((person.count(A), person.count(B)), ((0, 0), (0, 1)));
        assert_eq!(person.remap(0x1000..0x3000, 0x8000..0xf000), [B]);
        assert_eq!(person.unmap(0x1000..0x8000), []);
        assert_eq!(person.count(B), (0, 1));
    }

    #[test]
    fn what_grows_into_a_hole_of_its_own_is_whole_again() {
        let mut person = Person::default();
        person.map(0x1000..0x9000, A, 0);
        person.unmap(0x2000..0x3000);
        assert_eq!(person.count(A), (0, 2));
        person.remap(0x1000..0x2000, 0x1000..0x3000);
        assert_eq!(person.count(A), (0, 1));
        person.unmap(0x4000..0x5000);
        person.remap(0x5000..0x9000, 0x4000..0x8000);
        assert_eq!(person.count(A), (0, 2), "they show different pieces");
    }

    #[test]
    fn an_exec_leaves_the_descriptors_that_are_not_marked() {
        let mut person = Person::default();
        person.open(3, A, true);
        person.open(4, A, false);
        person.open(5, B, false);
        person.map(0x1000..0x2000, B, 0);
        person.mark(5, true);
        assert_eq!(person.exec(), [A, B]);
        assert_eq!((person.count(A), person.count(B)), ((1, 0), (0, 0)));
        assert_eq!(person.close_range(0..u64::from(u32::MAX)), [A]);
        assert_eq!(person.known().count(), 2);
    }
}
