//! What one process holds: descriptors and mappings of segments.

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
    /// Offset of its start in the segment.
    offset: u64,
}

/// A mapping that has begun or, without an offset, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub segment: SegmentId,
    pub start: u64,
    pub end: u64,
    pub offset: Option<u64>,
}

/// The descriptors and mappings of a process. Each change returns the segments it affects.
#[derive(Clone, Debug, Default)]
pub struct Holder {
    fds: BTreeMap<u32, Descriptor>,
    /// By start address; they do not overlap.
    mappings: BTreeMap<u64, Mapping>,
    /// Number of descriptors and mappings of each segment that it holds or held.
    counts: BTreeMap<SegmentId, (u32, u32)>,
    /// Mappings that began or ended since the last call of `take_pieces`.
    pieces: Vec<Piece>,
}

impl Holder {
    pub fn count(&self, segment: SegmentId) -> (u32, u32) {
        self.counts.get(&segment).copied().unwrap_or_default()
    }

    pub fn known(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.counts.keys().copied()
    }

    pub fn held(&self) -> Vec<SegmentId> {
        self.counts.iter().filter(|(_, counts)| **counts != (0, 0)).map(|(segment, _)| *segment).collect()
    }

    pub fn has_mappings(&self) -> bool {
        !self.mappings.is_empty()
    }

    /// The length of all its mappings.
    pub fn mapped_bytes(&self) -> u64 {
        self.ranges().map(|range| range.end.saturating_sub(range.start)).fold(0, u64::saturating_add)
    }

    /// The addresses of its mappings.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.mappings.iter().map(|(start, mapping)| *start..mapping.end)
    }

    /// The segment mapped at this start address.
    pub fn mapped_at(&self, start: u64) -> Option<SegmentId> {
        self.mappings.get(&start).map(|mapping| mapping.segment)
    }

    /// The mappings that began or ended since the last call.
    pub fn take_pieces(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.pieces)
    }

    /// Forgets a segment that has ended, because its number may be reused soon.
    pub fn forget(&mut self, segment: SegmentId) {
        if self.count(segment) == (0, 0) {
            self.counts.remove(&segment);
        }
    }

    /// What a forked child holds; none of it is reported yet.
    pub fn fork(&self) -> Self {
        let counts = self.counts.iter().filter(|(_, counts)| **counts != (0, 0));
        let pieces = self.mappings.iter().map(|(start, mapping)| mapping.piece(*start));
        Self {
            fds: self.fds.clone(),
            mappings: self.mappings.clone(),
            counts: counts.map(|(segment, counts)| (*segment, *counts)).collect(),
            pieces: pieces.collect(),
        }
    }

    fn add_fd(&mut self, fd: u32, descriptor: Descriptor) -> Option<Descriptor> {
        let before = self.drop_fd(fd);
        self.counts.entry(descriptor.segment).or_default().0 += 1;
        self.fds.insert(fd, descriptor);
        before
    }

    fn drop_fd(&mut self, fd: u32) -> Option<Descriptor> {
        let descriptor = self.fds.remove(&fd)?;
        self.counts.entry(descriptor.segment).or_default().0 -= 1;
        Some(descriptor)
    }

    /// The mapping must not overlap another.
    fn add_mapping(&mut self, start: u64, mapping: Mapping) {
        self.counts.entry(mapping.segment).or_default().1 += 1;
        self.mappings.insert(start, mapping);
    }

    fn drop_mapping(&mut self, start: u64) {
        if let Some(mapping) = self.mappings.remove(&start) {
            self.counts.entry(mapping.segment).or_default().1 -= 1;
        }
    }

    pub fn open(&mut self, fd: u32, segment: SegmentId, close_on_exec: bool) -> Vec<SegmentId> {
        let before = self.add_fd(fd, Descriptor { segment, close_on_exec });
        unique(before.map(|before| before.segment).into_iter().chain([segment]))
    }

    pub fn close(&mut self, fd: u32) -> Vec<SegmentId> {
        self.drop_fd(fd).map(|fd| fd.segment).into_iter().collect()
    }

    /// Both ends are inclusive.
    pub fn close_range(&mut self, range: Range<u64>) -> Vec<SegmentId> {
        let fds: Vec<u32> = self.fds.keys().copied().filter(|fd| is_in(*fd, &range)).collect();
        let closed: Vec<Descriptor> = fds.into_iter().filter_map(|fd| self.drop_fd(fd)).collect();
        unique(closed.iter().map(|fd| fd.segment))
    }

    pub fn mark(&mut self, fd: u32, close_on_exec: bool) {
        if let Some(fd) = self.fds.get_mut(&fd) {
            fd.close_on_exec = close_on_exec;
        }
    }

    /// Marks descriptors that an exec closes; both ends are inclusive.
    pub fn mark_range(&mut self, range: Range<u64>) {
        for (_, descriptor) in self.fds.iter_mut().filter(|(fd, _)| is_in(**fd, &range)) {
            descriptor.close_on_exec = true;
        }
    }

    pub fn map(&mut self, range: Range<u64>, segment: SegmentId, offset: u64) -> Vec<SegmentId> {
        let mapping = Mapping { end: range.end, segment, offset };
        if self.mappings.get(&range.start) == Some(&mapping) {
            return vec![segment];
        }
        let mut touched = self.unmap(range.clone());
        self.pieces.push(mapping.piece(range.start));
        self.add_mapping(range.start, mapping);
        touched.push(segment);
        unique(touched.into_iter())
    }

    pub fn unmap(&mut self, range: Range<u64>) -> Vec<SegmentId> {
        let overlapping = self.overlapping(&range);
        for (start, mapping) in &overlapping {
            self.drop_mapping(*start);
            if *start < range.start {
                self.add_mapping(*start, Mapping { end: range.start, ..*mapping });
            }
            if mapping.end > range.end {
                let offset = mapping.offset + (range.end - start);
                self.add_mapping(range.end, Mapping { offset, ..*mapping });
            }
            let (start, end) = (range.start.max(*start), range.end.min(mapping.end));
            self.pieces.push(Piece { segment: mapping.segment, start, end, offset: None });
        }
        unique(overlapping.iter().map(|(_, mapping)| mapping.segment))
    }

    /// Moves a mapping from one range to another, which may be the same, larger or smaller. Like the kernel,
    /// merges it with neighbours that continue it in the segment.
    pub fn remap(&mut self, from: Range<u64>, to: Range<u64>) -> Vec<SegmentId> {
        let Some((start, mapping)) = self.overlapping(&from).first().copied() else { return Vec::new() };
        let offset = mapping.offset + from.start.saturating_sub(start);
        let mut touched = self.unmap(from);
        touched.extend(self.map(to.clone(), mapping.segment, offset));
        self.join(to.end);
        self.join(to.start);
        unique(touched.into_iter())
    }

    /// Merges the mappings that meet at this address if they are contiguous in one segment.
    fn join(&mut self, at: u64) {
        let Some((start, before)) = self.mappings.range(..at).next_back().map(|(start, it)| (*start, *it)) else {
            return;
        };
        let Some(after) = self.mappings.get(&at).copied() else { return };
        let is_one = before.segment == after.segment && before.offset + (at - start) == after.offset;
        if before.end == at && is_one {
            self.drop_mapping(at);
            self.drop_mapping(start);
            self.add_mapping(start, Mapping { end: after.end, ..before });
        }
    }

    /// How a newer snapshot of the process differs from what is known.
    pub fn difference(&self, shown: &Self) -> Difference {
        let fds = |these: &Self, those: &Self| {
            these
                .fds
                .iter()
                .any(|(fd, descriptor)| those.fds.get(fd).is_none_or(|other| other.segment != descriptor.segment))
        };
        let (known, seen) = (self.mapped(), shown.mapped());
        let more = |these: &BTreeMap<SegmentId, u64>, those: &BTreeMap<SegmentId, u64>| {
            these.iter().any(|(segment, bytes)| those.get(segment).is_none_or(|other| other < bytes))
        };
        Difference {
            is_new: self.fds.is_empty() && self.mappings.is_empty(),
            fd_missed: fds(shown, self),
            fd_gone: fds(self, shown),
            mapping_missed: more(&seen, &known),
            mapping_gone: more(&known, &seen),
        }
    }

    /// Bytes mapped of each segment.
    fn mapped(&self) -> BTreeMap<SegmentId, u64> {
        let mut bytes = BTreeMap::new();
        for (start, mapping) in &self.mappings {
            *bytes.entry(mapping.segment).or_default() += mapping.end - start;
        }
        bytes
    }

    /// Takes over a newer snapshot. Returns all segments that it held or holds.
    pub fn replace(&mut self, other: Self) -> Vec<SegmentId> {
        let before = self.held();
        let gone: Vec<(u64, Mapping)> = self.mappings.iter().map(|(start, mapping)| (*start, *mapping)).collect();
        let is_same = |(start, mapping): &(u64, Mapping)| other.mappings.get(start) == Some(mapping);
        for (start, mapping) in gone.iter().filter(|place| !is_same(place)) {
            self.unmap(*start..mapping.end);
        }
        for (start, mapping) in &other.mappings {
            if self.mappings.get(start) != Some(mapping) {
                self.map(*start..mapping.end, mapping.segment, mapping.offset);
            }
        }
        self.close_range(0..u64::from(u32::MAX));
        for (fd, descriptor) in other.fds {
            self.add_fd(fd, descriptor);
        }
        unique(before.into_iter().chain(self.held()))
    }

    /// Handles an exec. Returns all segments that it held.
    pub fn exec(&mut self) -> Vec<SegmentId> {
        let held = self.held();
        self.unmap(0..u64::MAX);
        let marked: Vec<u32> = self.fds.iter().filter(|(_, fd)| fd.close_on_exec).map(|(fd, _)| *fd).collect();
        for fd in marked {
            self.drop_fd(fd);
        }
        held
    }

    fn overlapping(&self, range: &Range<u64>) -> Vec<(u64, Mapping)> {
        let before = self.mappings.range(..range.start).next_back().filter(|(_, mapping)| mapping.end > range.start);
        let within = if range.is_empty() { 0..0 } else { range.clone() };
        before.into_iter().chain(self.mappings.range(within)).map(|(start, mapping)| (*start, *mapping)).collect()
    }
}

/// How a snapshot of a process differs from what is known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The process was not known to hold anything.
    pub is_new: bool,
    pub fd_missed: bool,
    pub fd_gone: bool,
    pub mapping_missed: bool,
    pub mapping_gone: bool,
}

impl Difference {
    pub fn is_none(&self) -> bool {
        !(self.fd_missed || self.fd_gone || self.mapping_missed || self.mapping_gone)
    }
}

impl Mapping {
    fn piece(&self, start: u64) -> Piece {
        Piece { segment: self.segment, start, end: self.end, offset: Some(self.offset) }
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
        let mut holder = Holder::default();
        holder.map(0x1000..0x9000, A, 0);
        assert_eq!(holder.unmap(0x0..0x2000), [A]);
        assert_eq!(holder.unmap(0x8000..0xa000), [A]);
        assert_eq!(holder.count(A), (0, 1));
        assert_eq!(holder.unmap(0x4000..0x5000), [A]);
        assert_eq!(holder.count(A), (0, 2));
        assert_eq!(holder.unmap(0x2000..0x4000), [A]);
        assert_eq!(holder.unmap(0x5000..0x8000), [A]);
        assert_eq!(holder.count(A), (0, 0));
        assert_eq!(holder.unmap(0..u64::MAX), []);
    }

    #[test]
    fn what_is_mapped_over_is_gone() {
        let mut holder = Holder::default();
        holder.map(0x1000..0x3000, A, 0);
        assert_eq!(holder.map(0x1000..0x3000, B, 0), [A, B]);
        assert_eq!((holder.count(A), holder.count(B)), ((0, 0), (0, 1)));
        assert_eq!(holder.remap(0x1000..0x3000, 0x8000..0xf000), [B]);
        assert_eq!(holder.unmap(0x1000..0x8000), []);
        assert_eq!(holder.count(B), (0, 1));
    }

    #[test]
    fn what_grows_into_a_hole_of_its_own_is_whole_again() {
        let mut holder = Holder::default();
        holder.map(0x1000..0x9000, A, 0);
        holder.unmap(0x2000..0x3000);
        assert_eq!(holder.count(A), (0, 2));
        holder.remap(0x1000..0x2000, 0x1000..0x3000);
        assert_eq!(holder.count(A), (0, 1));
        holder.unmap(0x4000..0x5000);
        holder.remap(0x5000..0x9000, 0x4000..0x8000);
        assert_eq!(holder.count(A), (0, 2), "they show different pieces");
    }

    #[test]
    fn an_exec_leaves_the_descriptors_that_are_not_marked() {
        let mut holder = Holder::default();
        holder.open(3, A, true);
        holder.open(4, A, false);
        holder.open(5, B, false);
        holder.map(0x1000..0x2000, B, 0);
        holder.mark(5, true);
        assert_eq!(holder.exec(), [A, B]);
        assert_eq!((holder.count(A), holder.count(B)), ((1, 0), (0, 0)));
        assert_eq!(holder.close_range(0..u64::from(u32::MAX)), [A]);
        assert_eq!(holder.known().count(), 2);
    }

    #[test]
    fn changes_of_mappings_are_reported_piece_by_piece() {
        let mut holder = Holder::default();
        holder.map(0x1000..0x4000, A, 0x8000);
        holder.unmap(0x2000..0x3000);
        let piece = |start, end, offset| Piece { segment: A, start, end, offset };
        assert_eq!(holder.take_pieces(), [piece(0x1000, 0x4000, Some(0x8000)), piece(0x2000, 0x3000, None)]);
        let mut child = holder.fork();
        let reported = [piece(0x1000, 0x2000, Some(0x8000)), piece(0x3000, 0x4000, Some(0xa000))];
        assert_eq!((child.take_pieces().as_slice(), child.count(A)), (reported.as_slice(), (0, 2)));
        child.exec();
        assert_eq!(child.take_pieces(), [piece(0x1000, 0x2000, None), piece(0x3000, 0x4000, None)]);
    }

    #[test]
    fn a_snapshot_that_differs_says_how() {
        let (mut known, mut shown) = (Holder::default(), Holder::default());
        known.open(3, A, false);
        shown.open(3, A, true);
        assert!(known.difference(&shown).is_none());
        shown.map(0x1000..0x2000, A, 0);
        assert_eq!(known.difference(&shown), Difference { mapping_missed: true, ..Difference::default() });
        known.open(4, B, false);
        known.map(0x1000..0x3000, A, 0);
        let expected = Difference { fd_gone: true, mapping_gone: true, ..Difference::default() };
        assert_eq!(known.difference(&shown), expected);
        assert!(Holder::default().difference(&shown).is_new);
        known.replace(shown.clone());
        assert!(known.difference(&shown).is_none());
        assert_eq!((known.count(A), known.count(B)), ((1, 1), (0, 0)));
    }
}
