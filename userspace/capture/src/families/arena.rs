//! The family `arena`: which memory is an arena of CPython's, and how full it is.
//!
//! The BPF programs report every mapping of an arena's size. It is an arena if the call came from the
//! interpreter's own allocation function. Where the stack does not show that, it is an arena if it contains
//! pools a moment later. Interpreters that use mimalloc instead are searched for its segments, because no
//! system call announces them.

mod allocator;
mod collector;
pub mod library;
pub mod pools;
mod scan;
mod segments;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pyobs_abi::arena::Freed;
use pyobs_abi::calls::{ARENA_BEGIN, ARENA_END};
use pyobs_abi::control;
use pyobs_abi::record::{self, Header};
use pyobs_abi::stack::{native, native_address};
use pyobs_model::{Arena, ArenaChange, ArenaId, Event, Family, Filled, Nanos, ProcessRef, Reason};

use self::allocator::{Allocator, Kinds};
use crate::cpython::attached::Attached;
use crate::family::{AtMappings, FamilySpec, MapSize};
use crate::kernel::cost;
use crate::memory::is_gone;
use crate::pipeline::decode::Stack;
use crate::pipeline::processes::Running;

/// Probes and their map are needed only if the user names libraries.
pub const SPEC: FamilySpec = FamilySpec {
    is_on_by_default: true,
    stacks: &[record::ARENA_BIRTH, record::ARENA_STACK],
    records: &[record::ARENA_FREED, record::ARENA_HIT],
    start: collector::start,
    programs: &library::programs::PROGRAMS,
    maps: &[MapSize::new("ARENA_CALLS")],
    system_calls: [&ARENA_BEGIN, &ARENA_END],
    at_mappings: AtMappings::All,
    control_bit: control::FAMILY_ARENA,
    ..FamilySpec::new(Family::Arena, "memory that CPython's allocators hold")
};

/// Arenas tracked at a time (64 GiB); further ones are counted as lost.
const ARENAS_MAX: usize = 65_536;
/// How often arenas without a known state are inspected, and how many at a time. Each takes about 40 µs,
/// once.
const INSPECT_EVERY: Duration = Duration::from_secs(1);
const NEW_CHECKS: usize = 1024;
/// Arenas inspected per turn. Turns may use this share of a CPU plus saved time, so that a process that lives
/// only a few seconds is still checked every second.
const CHECKS: usize = 256;
const INSPECT_SHARE: f64 = 0.0005;
const INSPECT_SAVED_MAX: Duration = Duration::from_millis(40);
/// Memory of an arena's size that has no pools after this many looks and this time is not an arena.
const TRIES: u32 = 4;
const PATIENCE: Duration = Duration::from_millis(200);

/// What a stack was taken for: where an arena was created, or where it was closed while objects in it were
/// alive.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    Birth { id: ArenaId, at: Nanos },
    Escape { id: ArenaId, at: Nanos },
}

/// Allocates arena numbers, shared by CPython's arenas and those of libraries.
#[derive(Clone, Debug, Default)]
pub struct Ids(Arc<AtomicU32>);

impl Ids {
    fn next(&self) -> ArenaId {
        ArenaId(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

struct Live {
    id: ArenaId,
    bytes: u64,
    filled: Option<Filled>,
}

/// Memory of an arena's size that may turn out not to be an arena.
struct Doubt {
    since: Instant,
    tries: u32,
}

/// A process that runs CPython.
struct Owner {
    id: ProcessRef,
    allocator: Allocator,
}

pub struct Arenas {
    start: Nanos,
    latest: Nanos,
    kinds: Kinds,
    /// By pid and address.
    live: BTreeMap<(u32, u64), Live>,
    doubts: BTreeMap<(u32, u64), Doubt>,
    owners: HashMap<u32, Owner>,
    ids: Ids,
    looked_new: Instant,
    inspected: Instant,
    inspect_after: Duration,
    inspect_time: cost::Bucket,
    /// The last key inspected; the next turn continues after it.
    inspected_last: (u32, u64),
}

impl Arenas {
    /// Sets the time on the kernel's clock at which the recording begins.
    pub fn starts_at(&mut self, start: Nanos) {
        self.start = start;
        self.latest = Nanos(0);
    }

    pub fn new(start: Nanos, ids: Ids) -> Self {
        Self {
            start,
            latest: Nanos(0),
            kinds: Kinds::default(),
            live: BTreeMap::new(),
            doubts: BTreeMap::new(),
            owners: HashMap::new(),
            ids,
            looked_new: Instant::now(),
            inspected: Instant::now(),
            inspect_after: INSPECT_EVERY,
            inspect_time: cost::Bucket::new(INSPECT_SHARE, INSPECT_SAVED_MAX),
            inspected_last: (0, 0),
        }
    }

    /// Event time of a record. Records of different CPUs can be slightly out of order; event times must not
    /// go back.
    fn at(&mut self, header: &Header) -> Nanos {
        self.latest = self.latest.max(Nanos(header.time).saturating_sub(self.start));
        self.latest
    }

    /// Handles memory of an arena's size that a process obtained. Returns the arena created by this stack.
    pub fn born(
        &mut self,
        stack: &Stack,
        process: ProcessRef,
        python: Option<&Attached>,
        events: &mut Vec<Event>,
    ) -> Option<ArenaId> {
        let at = self.at(&stack.sample.header);
        let pid = stack.sample.header.pid;
        let [address, bytes] = stack.sample.detail;
        let known = self.owners.get(&pid).map(|owner| owner.allocator);
        let allocator =
            known.or_else(|| python.map(|python| Allocator::of(python.number, python.layout.free_threaded)));
        if allocator.is_some_and(|allocator| allocator.shape().is_none_or(|shape| shape.arena != bytes)) {
            return None;
        }
        let allocator = python.and_then(|python| python.arena_allocator.as_ref());
        let is_sure = allocator.is_some_and(|range| comes_out_of(stack, range));
        if !is_sure && allocator.is_some() && stack.sample.native == native::COMPLETE {
            return None;
        }
        // An arena found here earlier is the same one, or one whose end was not seen.
        let found = self.overlapping(pid, address, bytes);
        let found = found.and_then(|key| self.live.remove(&key)).map(|live| live.id);
        let id = self.begin(
            at,
            (pid, address),
            found,
            Arena { process, kind: Arc::clone(&self.kinds.pymalloc), address, bytes, born: true, parent: None },
            events,
        )?;
        if !is_sure && found.is_none() {
            self.doubts.insert((pid, address), Doubt { since: Instant::now(), tries: 0 });
        }
        Some(id)
    }

    fn begin(
        &mut self,
        at: Nanos,
        key: (u32, u64),
        known: Option<ArenaId>,
        arena: Arena,
        events: &mut Vec<Event>,
    ) -> Option<ArenaId> {
        if self.live.len() >= ARENAS_MAX {
            events.push(Event::Loss { at, reason: Reason::ArenaTableFull, count: 1 });
            return None;
        }
        let id = known.unwrap_or_else(|| self.ids.next());
        self.live.insert(key, Live { id, bytes: arena.bytes, filled: None });
        events.push(Event::Arena { at, id, change: ArenaChange::Begun(arena) });
        Some(id)
    }

    fn of(&self, pid: u32) -> impl Iterator<Item = (u64, &Live)> + '_ {
        self.live.range((pid, 0)..=(pid, u64::MAX)).map(|((_, address), live)| (*address, live))
    }

    fn overlapping(&self, pid: u32, address: u64, bytes: u64) -> Option<(u32, u64)> {
        let (key, live) = self.live.range((pid, 0)..(pid, address.saturating_add(bytes))).next_back()?;
        (key.1.saturating_add(live.bytes) > address).then_some(*key)
    }

    /// Handles memory that a process returned to the kernel.
    pub fn freed(&mut self, freed: &Freed, events: &mut Vec<Event>) {
        let (at, pid) = (self.at(&freed.header), freed.header.pid);
        let Some(key) = self.overlapping(pid, freed.address, freed.bytes) else { return };
        self.doubts.remove(&key);
        if let Some(live) = self.live.remove(&key) {
            events.push(Event::Arena { at, id: live.id, change: ArenaChange::Died });
        }
    }

    /// Copies the parent's arenas to the child.
    pub fn forked(&mut self, parent: u32, child: u32, id: ProcessRef, at: Nanos, events: &mut Vec<Event>) {
        self.latest = self.latest.max(at);
        let Some(allocator) = self.owners.get(&parent).map(|owner| owner.allocator) else { return };
        self.ended(child, events);
        self.owners.insert(child, Owner { id, allocator });
        let arenas: Vec<(u64, u64, ArenaId)> =
            self.of(parent).map(|(address, live)| (address, live.bytes, live.id)).collect();
        for (address, bytes, parent) in arenas {
            let (kind, parent) = (self.kinds.of(allocator), Some(parent));
            let arena = Arena { process: id, kind, address, bytes, born: false, parent };
            self.begin(self.latest, (child, address), None, arena, events);
        }
    }

    /// Forgets a process that has ended or runs another program now. No event per arena: the end of the
    /// process implies theirs.
    pub fn ended(&mut self, pid: u32, events: &mut Vec<Event>) {
        let was_python = self.owners.remove(&pid).is_some();
        let ids: Vec<(u64, ArenaId)> = self.of(pid).map(|(address, live)| (address, live.id)).collect();
        for (address, id) in ids {
            self.live.remove(&(pid, address));
            self.doubts.remove(&(pid, address));
            if !was_python {
                events.push(Event::Arena { at: self.latest, id, change: ArenaChange::Mistaken });
            }
        }
    }

    /// Call regularly: takes in the arenas of processes not seen before, and inspects how full some arenas
    /// are.
    pub fn tick<'a>(&mut self, now: Nanos, running: impl Iterator<Item = Running<'a>>, events: &mut Vec<Event>) {
        for process in running {
            if self.owners.get(&process.pid).is_none_or(|owner| owner.id != process.id) {
                let allocator = Allocator::of_process(process.pid, process.python);
                self.take_in(now, (process.pid, process.id), allocator, events);
            }
        }
        let doubtful: Vec<(u32, u64)> = self.doubts.keys().copied().collect();
        self.inspect(now, &doubtful, events);
        if self.looked_new.elapsed() >= INSPECT_EVERY {
            self.looked_new = Instant::now();
            let new = self.live.iter().filter(|(_, live)| live.filled.is_none());
            let new: Vec<(u32, u64)> = new.map(|(key, _)| *key).take(NEW_CHECKS).collect();
            self.inspect(now, &new, events);
        }
        if self.inspected.elapsed() >= self.inspect_after {
            self.inspected = Instant::now();
            let before = cost::thread_time();
            self.find_segments(now, events);
            let after = (std::ops::Bound::Excluded(self.inspected_last), std::ops::Bound::Unbounded);
            let next: Vec<(u32, u64)> = self.live.range(after).map(|(key, _)| *key).take(CHECKS).collect();
            self.inspected_last = if next.len() < CHECKS { (0, 0) } else { next[CHECKS - 1] };
            self.inspect(now, &next, events);
            let spent = cost::thread_time().saturating_sub(before);
            self.inspect_after = INSPECT_EVERY.max(self.inspect_time.spend(spent, Instant::now()));
        }
    }

    /// Inspects all arenas a last time.
    pub fn finish(&mut self, now: Nanos, events: &mut Vec<Event>) {
        self.find_segments(now, events);
        let all: Vec<(u32, u64)> = self.live.keys().copied().collect();
        self.inspect(now, &all, events);
    }

    fn take_in(
        &mut self,
        now: Nanos,
        (pid, process): (u32, ProcessRef),
        allocator: Allocator,
        events: &mut Vec<Event>,
    ) {
        self.latest = self.latest.max(now);
        self.owners.insert(pid, Owner { id: process, allocator });
        let arena = allocator.shape().map(|shape| shape.arena);
        let others: Vec<u64> = self.of(pid).filter(|(_, live)| Some(live.bytes) != arena).map(|(at, _)| at).collect();
        others.into_iter().for_each(|address| self.mistaken((pid, address), events));
        for (address, bytes) in allocator.find(pid).unwrap_or_default() {
            if self.overlapping(pid, address, bytes).is_some() {
                continue;
            }
            let arena = Arena { process, kind: self.kinds.of(allocator), address, bytes, born: false, parent: None };
            self.begin(self.latest, (pid, address), None, arena, events);
        }
        let all: Vec<(u32, u64)> = self.of(pid).map(|(address, _)| (pid, address)).take(CHECKS).collect();
        self.inspect(self.latest, &all, events);
    }

    /// mimalloc takes and returns segments without a system call, so they have to be searched for.
    fn find_segments(&mut self, now: Nanos, events: &mut Vec<Event>) {
        self.latest = self.latest.max(now);
        let owners = self.owners.iter().filter(|(_, owner)| owner.allocator.shape().is_none());
        let owners: Vec<_> = owners.map(|(pid, owner)| (*pid, owner.id, owner.allocator)).collect();
        for (pid, process, allocator) in owners {
            let Some(found) = allocator.find(pid) else { continue };
            let gone: BTreeSet<(u64, u64)> = self.of(pid).map(|(address, live)| (address, live.bytes)).collect();
            let gone: Vec<u64> =
                gone.difference(&found.iter().copied().collect()).map(|(address, _)| *address).collect();
            for address in gone {
                if let Some(live) = self.live.remove(&(pid, address)) {
                    events.push(Event::Arena { at: self.latest, id: live.id, change: ArenaChange::Died });
                }
            }
            for (address, bytes) in found {
                if !self.live.contains_key(&(pid, address)) {
                    let kind = Arc::clone(&self.kinds.mimalloc);
                    let arena = Arena { process, kind, address, bytes, born: true, parent: None };
                    self.begin(self.latest, (pid, address), None, arena, events);
                }
            }
        }
    }

    fn inspect(&mut self, now: Nanos, keys: &[(u32, u64)], events: &mut Vec<Event>) {
        for of_process in keys.chunk_by(|one, other| one.0 == other.0) {
            let pid = of_process.first().map_or(0, |key| key.0);
            let Some(allocator) = self.owners.get(&pid).map(|owner| owner.allocator) else { continue };
            let arena = |key: &(u32, u64)| Some((key.1, self.live.get(key)?.bytes));
            let arenas: Vec<(u64, u64)> = of_process.iter().filter_map(arena).collect();
            for ((address, _), found) in arenas.iter().zip(allocator.inspect(pid, &arenas)) {
                // The segment was released since the last search, and the next search reports that.
                if !matches!(found, Ok(None)) || allocator.shape().is_some() {
                    self.inspected(now, (pid, *address), found, events);
                }
            }
        }
    }

    fn inspected(&mut self, now: Nanos, key: (u32, u64), found: io::Result<Option<Filled>>, events: &mut Vec<Event>) {
        let Some(live) = self.live.get_mut(&key) else { return };
        match found {
            Ok(Some(filled)) => {
                self.doubts.remove(&key);
                if live.filled.replace(filled) != Some(filled) {
                    events.push(Event::Arena { at: now, id: live.id, change: ArenaChange::Filled(filled) });
                }
            }
            Err(error) if is_gone(&error) => {}
            Ok(None) | Err(_) => match self.doubts.get_mut(&key) {
                Some(doubt) => {
                    doubt.tries += 1;
                    if doubt.tries >= TRIES && doubt.since.elapsed() >= PATIENCE {
                        self.mistaken(key, events);
                    }
                }
                // Either the process is ending and its memory is gone, or it changed the arena during each read.
                None => events.push(Event::Loss { at: now, reason: Reason::ArenaUnreadable, count: 1 }),
            },
        }
    }

    fn mistaken(&mut self, key: (u32, u64), events: &mut Vec<Event>) {
        self.doubts.remove(&key);
        if let Some(live) = self.live.remove(&key) {
            events.push(Event::Arena { at: self.latest, id: live.id, change: ArenaChange::Mistaken });
        }
    }
}

fn comes_out_of(stack: &Stack, function: &Range<u64>) -> bool {
    stack.native.iter().any(|word| function.contains(&native_address(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::version::Version;

    fn begun(arenas: &mut Arenas, key: (u32, u64), events: &mut Vec<Event>) {
        let (kind, bytes) = (Arc::clone(&arenas.kinds.pymalloc), 1 << 20);
        let arena = Arena { process: ProcessRef(0), kind, address: key.1, bytes, born: true, parent: None };
        arenas.begin(Nanos(1), key, None, arena, events);
    }

    #[test]
    fn a_free_threaded_build_has_no_arenas_of_pymallocs() {
        let (version, mut events) = (Version::new(3, 14, 0), Vec::new());
        assert_eq!(Allocator::of(version, false), Allocator::Pymalloc(pools::Shape::of(version)));
        let mut arenas = Arenas::new(Nanos(0), Ids::default());
        // Also a possible size of mimalloc's memory.
        begun(&mut arenas, (7, 0x7f00_0000_0000), &mut events);
        begun(&mut arenas, (8, 0x7f00_0000_0000), &mut events);
        events.clear();
        arenas.take_in(Nanos(2), (7, ProcessRef(0)), Allocator::of(version, true), &mut events);
        let [Event::Arena { change: ArenaChange::Mistaken, .. }] = events[..] else { panic!("{events:?}") };
        assert_eq!((arenas.of(7).count(), arenas.of(8).count()), (0, 1));
        // A forked child uses the same allocator.
        arenas.forked(7, 9, ProcessRef(1), Nanos(3), &mut events);
        assert_eq!(arenas.owners.get(&9).map(|owner| owner.allocator), Some(Allocator::of(version, true)));
    }
}
