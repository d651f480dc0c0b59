//! A model's region map: which events begin and end regions, and what lies at an address.

use super::{Model, Pid, Region, RegionId, Space};
use crate::{ArenaChange, ArenaId, MemInfoChange, MemInfoId, Nanos, ProcessRef, SegmentChange, SegmentId};

impl Model {
    /// The innermost region at an address of a process at a time.
    pub fn region_at_time(&self, process: ProcessRef, address: u64, at: Nanos) -> Option<&Region> {
        self.regions_at_time(process, address, at).next()
    }

    /// All regions at an address of a process at a time, innermost first.
    pub fn regions_at_time(&self, process: ProcessRef, address: u64, at: Nanos) -> impl Iterator<Item = &Region> + '_ {
        let lived = |state: &&super::ProcessState| {
            state.process.started.is_none_or(|started| started <= at) && state.ended.is_none_or(|ended| at <= ended)
        };
        let is_alive = self.process(process).filter(lived).is_some();
        let spaces = self.spaces(process).into_iter().filter(move |_| is_alive);
        spaces.filter_map(move |space| self.regions.at_time(space, address, at))
    }

    /// The innermost arena or segment at an address of a process at a time. The report has an `id` only for these.
    pub fn owner_at(&self, process: ProcessRef, address: u64, at: Nanos) -> Option<RegionId> {
        let mut all = self.regions_at_time(process, address, at).map(|region| region.id);
        all.find(|id| !matches!(id, RegionId::MemInfo(_)))
    }

    /// A process's present mappings of segments, by address. The process need not be watched.
    pub fn mappings(&self, pid: Pid) -> impl Iterator<Item = &Region> + '_ {
        self.regions.live(Space::Segments(pid))
    }

    /// From the innermost outwards.
    fn spaces(&self, process: ProcessRef) -> Vec<Space> {
        let own = [Space::MemInfos(process), Space::Slabs(process), Space::Arenas(process)];
        let pid = self.process(process).map(|state| Space::Segments(state.process.pid));
        own.into_iter().chain(pid).collect()
    }

    /// A process has ended or exec'd. The ends of its segment mappings have their own events.
    pub(super) fn end_regions(&mut self, process: ProcessRef, at: Nanos) {
        for space in [Space::MemInfos(process), Space::Slabs(process), Space::Arenas(process)] {
            self.regions.end_all(space, at);
        }
    }

    pub(super) fn segment_region(&mut self, at: Nanos, id: SegmentId, change: &SegmentChange) {
        let region = RegionId::Segment(id);
        match change {
            SegmentChange::Mapped { pid, address, bytes, offset } => {
                let (address, bytes, offset) = (*address, *bytes, *offset);
                let begun = Region { id: region, address, bytes, offset, stack: None, born: at, died: None };
                self.regions.begin(Space::Segments(*pid), begun);
            }
            SegmentChange::Unmapped { pid, address, bytes } => {
                self.regions.end(Space::Segments(*pid), *address..address.saturating_add(*bytes), at);
            }
            // All of its mappings go with it.
            SegmentChange::Ended { pid } => self.regions.end_all(Space::Segments(*pid), at),
            SegmentChange::Released | SegmentChange::Gone => {
                let holders = self.sums.shm.get(id).map(|state| &state.holders);
                for pid in holders.into_iter().flat_map(|holders| holders.keys()) {
                    self.regions.end_of(Space::Segments(*pid), region, at);
                }
            }
            _ => {}
        }
    }

    /// Call it before the arena itself changes.
    pub(super) fn arena_region(&mut self, at: Nanos, id: ArenaId, change: &ArenaChange) {
        let region = RegionId::Arena(id);
        let known = self.sums.arenas.get(id);
        let begun =
            |address, bytes| Region { id: region, address, bytes, offset: 0, stack: None, born: at, died: None };
        let was_known = known.is_some();
        let (arena, is_own) = match (change, known) {
            (ArenaChange::Begun(arena), _) => (arena, crate::families::arena::is_own(arena)),
            (_, Some(state)) => (&state.arena, crate::families::arena::is_own(&state.arena)),
            (_, None) => return,
        };
        let (process, address, bytes) = (arena.process, arena.address, arena.bytes);
        let space = if is_own { Space::Arenas(process) } else { Space::Slabs(process) };
        match change {
            ArenaChange::Begun(_) if is_own => {
                let before = self.regions.at(space, address).copied();
                if before.is_none_or(|before| (before.id, before.address, before.bytes) != (region, address, bytes)) {
                    // Its address may turn out to be different.
                    if was_known {
                        self.regions.take_back(space, region);
                    }
                    self.regions.begin(space, begun(address, bytes));
                }
            }
            ArenaChange::Slab { address, bytes } => self.regions.begin(space, begun(*address, *bytes)),
            ArenaChange::Died if self.regions.at(space, address).is_some_and(|found| is_own && found.id == region) => {
                self.regions.end(space, address..address.saturating_add(bytes), at);
            }
            ArenaChange::Died if !is_own => self.regions.end_of(space, region, at),
            ArenaChange::Mistaken => self.regions.take_back(space, region),
            _ => {}
        }
    }

    /// Call it before the MemInfo itself changes. The birth event waits until its stack has names, so the death may
    /// come first.
    pub(super) fn meminfo_region(&mut self, at: Nanos, id: MemInfoId, change: &MemInfoChange) {
        let region = RegionId::MemInfo(id);
        match *change {
            MemInfoChange::Born { process, bytes, data, stack } if data != 0 => {
                let died = self.sums.nrt.died_early(id);
                let ended = self.process(process).and_then(|state| state.ended);
                let space = Space::MemInfos(process);
                let stack = Some(stack);
                let begun = Region { id: region, address: data, bytes, offset: 0, stack, born: at, died: None };
                match died.into_iter().chain(ended).min() {
                    Some(end) => self.regions.add_past(space, Region { died: Some(end), ..begun }),
                    None => self.regions.begin(space, begun),
                }
            }
            MemInfoChange::Died => {
                let Some((process, data)) = self.sums.nrt.place(id) else { return };
                let space = Space::MemInfos(process);
                if let Some(found) = self.regions.at(space, data).filter(|found| found.id == region) {
                    let range = found.address..found.address.saturating_add(found.bytes);
                    self.regions.end(space, range, at);
                }
            }
            _ => {}
        }
    }
}
