//! The meaning of a process's memory: an interval map of segment mappings, arenas, their slabs, and MemInfo data.
//!
//! Regions nest: a library's pool in a shared segment, a MemInfo's data in a pool. So each kind has its own map per
//! process, whose intervals do not overlap, and a lookup goes from the innermost kind outwards. The latest ended
//! regions are kept for lookups of an earlier time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

use crate::{ArenaId, History, MemInfoId, Nanos, Pid, ProcessRef, SegmentId, StackId};

/// How many ended regions are kept: the latest ones. Lookups do not find regions that ended earlier.
const PAST_MAX: usize = 1 << 18;
const REPORTED_MAX: usize = 1 << 17;
/// Limits the live regions. Lookups find nothing of regions that begin beyond it.
const LIVE_MAX: usize = 1 << 18;

/// What a region is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RegionId {
    Segment(SegmentId),
    Arena(ArenaId),
    MemInfo(MemInfoId),
}

impl RegionId {
    /// The name in JSON.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Segment(_) => "segment",
            Self::Arena(_) => "arena",
            Self::MemInfo(_) => "meminfo",
        }
    }
}

/// A range of a process's memory with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub id: RegionId,
    pub address: u64,
    pub bytes: u64,
    /// Where in the segment it begins; 0 for other kinds.
    pub offset: u64,
    /// The birth stack of a MemInfo. Segments and arenas keep their own.
    pub stack: Option<StackId>,
    pub born: Nanos,
    pub died: Option<Nanos>,
}

impl Region {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }

    fn has(&self, address: u64) -> bool {
        (self.address..self.end()).contains(&address)
    }

    fn lived(&self, at: Nanos) -> bool {
        self.born <= at && self.died.is_none_or(|died| at < died)
    }
}

/// One kind of region in one process. Processes that are not watched may hold segments too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    Segments(Pid),
    Arenas(ProcessRef),
    /// Memory that libraries subdivide.
    Slabs(ProcessRef),
    MemInfos(ProcessRef),
}

#[derive(Debug, Default)]
struct Intervals {
    live: BTreeMap<u64, Region>,
    /// Keyed by address and serial number.
    past: BTreeMap<(u64, u64), Region>,
    /// Size of the longest region that was ever in `past`.
    longest: u64,
}

impl Intervals {
    fn overlapping(&self, range: &Range<u64>) -> Vec<Region> {
        if range.is_empty() {
            return Vec::new();
        }
        let before = self.live.range(..range.start).next_back().filter(|(_, region)| region.end() > range.start);
        before.into_iter().chain(self.live.range(range.clone())).map(|(_, region)| *region).collect()
    }

    fn at(&self, address: u64) -> Option<&Region> {
        let (_, region) = self.live.range(..=address).next_back()?;
        region.has(address).then_some(region)
    }

    fn at_time(&self, address: u64, at: Nanos) -> Option<&Region> {
        let live = self.at(address).filter(|region| region.lived(at));
        live.or_else(|| {
            let since = address.saturating_sub(self.longest);
            let near = self.past.range((since, 0)..=(address, u64::MAX)).rev();
            near.map(|(_, region)| region).find(|region| region.has(address) && region.lived(at))
        })
    }
}

#[derive(Debug)]
pub struct Regions {
    history: History,
    spaces: HashMap<Space, Intervals>,
    /// Ended regions, in the order of their ends.
    past: VecDeque<(Space, u64, u64)>,
    next: u64,
    live: usize,
}

impl Regions {
    pub fn new(history: History) -> Self {
        Self { history, spaces: HashMap::new(), past: VecDeque::new(), next: 0, live: 0 }
    }

    /// A region begins, which ends whatever lay there.
    pub fn begin(&mut self, space: Space, region: Region) {
        if region.bytes == 0 {
            return;
        }
        self.end(space, region.address..region.end(), region.born);
        if self.live < LIVE_MAX {
            self.live += 1;
            self.spaces.entry(space).or_default().live.insert(region.address, region);
        }
    }

    /// Ends all regions in a range, or the parts of them inside it.
    pub fn end(&mut self, space: Space, range: Range<u64>, at: Nanos) {
        let Some(intervals) = self.spaces.get_mut(&space) else { return };
        let mut ended = Vec::new();
        for region in intervals.overlapping(&range) {
            intervals.live.remove(&region.address);
            self.live -= 1;
            let part = |from: u64, to: u64| Region {
                address: from,
                bytes: to - from,
                offset: region.offset.saturating_add(from - region.address),
                ..region
            };
            let (from, to) = (region.address.max(range.start), region.end().min(range.end));
            for (from, to) in [(region.address, from), (to, region.end())] {
                if from < to {
                    intervals.live.insert(from, part(from, to));
                    self.live += 1;
                }
            }
            ended.push(Region { died: Some(at), ..part(from, to) });
        }
        self.keep(space, ended);
    }

    /// Ends all regions of one thing.
    pub fn end_of(&mut self, space: Space, id: RegionId, at: Nanos) {
        let Some(intervals) = self.spaces.get_mut(&space) else { return };
        let ended = intervals.live.extract_if(.., |_, region| region.id == id);
        let ended: Vec<_> = ended.map(|(_, region)| Region { died: Some(at), ..region }).collect();
        self.live -= ended.len();
        self.keep(space, ended);
    }

    /// Removes a region that turned out not to be one.
    pub fn take_back(&mut self, space: Space, id: RegionId) {
        if let Some(intervals) = self.spaces.get_mut(&space) {
            self.live -= intervals.live.extract_if(.., |_, region| region.id == id).count();
        }
    }

    /// Ends every region of a process.
    pub fn end_all(&mut self, space: Space, at: Nanos) {
        let Some(intervals) = self.spaces.get_mut(&space) else { return };
        let live = std::mem::take(&mut intervals.live);
        self.live -= live.len();
        let ended = live.into_values().map(|region| Region { died: Some(at), ..region }).collect();
        self.keep(space, ended);
    }

    /// Adds a region that is reported after its end.
    pub fn add_past(&mut self, space: Space, region: Region) {
        self.keep(space, vec![region]);
    }

    fn keep(&mut self, space: Space, ended: Vec<Region>) {
        for region in ended {
            // A region that ended when it began never existed.
            if region.died.is_some_and(|died| died <= region.born) {
                continue;
            }
            let intervals = self.spaces.entry(space).or_default();
            intervals.longest = intervals.longest.max(region.bytes);
            intervals.past.insert((region.address, self.next), region);
            self.past.push_back((space, region.address, self.next));
            self.next += 1;
            let most = if self.history.has_sums() { REPORTED_MAX } else { PAST_MAX };
            if self.past.len() > most {
                self.forget_first();
            }
        }
        if self.spaces.get(&space).is_some_and(|intervals| intervals.live.is_empty() && intervals.past.is_empty()) {
            self.spaces.remove(&space);
        }
    }

    fn forget_first(&mut self) {
        let Some((space, address, number)) = self.past.pop_front() else { return };
        let Some(intervals) = self.spaces.get_mut(&space) else { return };
        intervals.past.remove(&(address, number));
        if intervals.live.is_empty() && intervals.past.is_empty() {
            self.spaces.remove(&space);
        }
    }

    /// Forgets regions that ended before `since`.
    pub fn expire(&mut self, since: Nanos) {
        while let Some((space, address, number)) = self.past.front() {
            let region = self.spaces.get(space).and_then(|intervals| intervals.past.get(&(*address, *number)));
            if region.is_some_and(|region| region.died.is_none_or(|died| died >= since)) {
                return;
            }
            self.forget_first();
        }
    }

    pub fn at(&self, space: Space, address: u64) -> Option<&Region> {
        self.spaces.get(&space)?.at(address)
    }

    pub fn at_time(&self, space: Space, address: u64, at: Nanos) -> Option<&Region> {
        self.spaces.get(&space)?.at_time(address, at)
    }

    /// Present regions, by address.
    pub fn live(&self, space: Space) -> impl Iterator<Item = &Region> + '_ {
        self.spaces.get(&space).into_iter().flat_map(|intervals| intervals.live.values())
    }
}
