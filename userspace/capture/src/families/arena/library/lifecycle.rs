//! What hits mean for arenas and the objects in them.
//!
//! An arena's address may become known only with the first object in it: an open arena without an address
//! takes that of the first object whose arena is unknown. A library whose description has no arenas has one
//! per process, without an address.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pyobs_abi::arena::library::{Hit, value};
use pyobs_model::{Arena, ArenaChange, ArenaId, Event, Nanos, Objects, ProcessRef, Reason};

use super::super::{Ids, Wanted};
use super::description::Role;
use crate::cache::Cache;

/// Arenas and objects tracked at a time; further ones are counted as lost.
const ARENAS_MAX: usize = 65_536;
const OBJECTS_MAX: usize = 1 << 19;
/// Threads with state that lasts from one hit to the next; the least recently used are evicted.
const THREADS_MAX: usize = 4096;
/// Slabs of one thread whose addresses are kept from one hit to the next; further ones have no address.
const PLACES_MAX: usize = 64;

/// Pid, library and address.
type Key = (u32, usize, u64);

struct LiveArena {
    pid: u32,
    library: usize,
    begun: Nanos,
    arena: Arena,
    context: Option<u64>,
    /// Bytes of one slab and of all slabs.
    slab_bytes: u64,
    slab_total: u64,
    /// Bytes of the live objects.
    object_bytes: u64,
    sum: Objects,
    closed: Closing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    Open,
    /// The library closed it but kept it, because objects in it were alive. It may be closed again.
    Kept,
    /// The library has discarded it.
    Popped,
}

impl LiveArena {
    /// The arena's contents. If new slabs are not reported but their size is known, it has at least one.
    fn objects(&self) -> Objects {
        let (slabs, bytes) = match self.slab_total {
            0 if self.slab_bytes > 0 => (1, self.slab_bytes.max(self.object_bytes)),
            0 => (self.sum.slabs, self.object_bytes),
            total => (self.sum.slabs, total),
        };
        Objects { slabs, bytes, ..self.sum }
    }
}

/// Memory that a thread has added to an arena not yet known.
#[derive(Default)]
struct Slabs {
    count: u32,
    bytes: u64,
    /// Addresses and sizes.
    places: Vec<(u64, u64)>,
}

/// A hit and the process it belongs to.
pub struct Where<'a> {
    pub hit: &'a Hit,
    pub at: Nanos,
    pub process: ProcessRef,
    pub library: usize,
    pub kind: &'a Arc<str>,
}

impl Where<'_> {
    /// Address and size of a new slab; the size is 0 if it is not known.
    fn place(&self) -> Option<(u64, u64)> {
        let address = self.hit.value(value::OBJECT).filter(|address| *address != 0)?;
        Some((address, self.hit.value(value::BYTES).unwrap_or(0)))
    }

    fn key(&self, address: u64) -> Key {
        (self.hit.header.pid, self.library, address)
    }
}

pub struct Lifecycles {
    ids: Ids,
    live: BTreeMap<ArenaId, LiveArena>,
    /// By the library's own identifier, and by address.
    contexts: HashMap<Key, ArenaId>,
    addresses: HashMap<Key, ArenaId>,
    /// Open arenas without an address, the latest last.
    unplaced: Vec<ArenaId>,
    /// Each with its arena and its size.
    objects: HashMap<Key, (ArenaId, u64)>,
    /// By thread.
    slabs: Cache<u32, Slabs>,
    /// What the next stack of each thread is for.
    stacks: Cache<u32, Wanted>,
    changed: BTreeSet<ArenaId>,
}

impl Lifecycles {
    pub fn new(ids: Ids) -> Self {
        Self {
            ids,
            live: BTreeMap::new(),
            contexts: HashMap::new(),
            addresses: HashMap::new(),
            unplaced: Vec::new(),
            objects: HashMap::new(),
            slabs: Cache::new(THREADS_MAX),
            stacks: Cache::new(THREADS_MAX),
            changed: BTreeSet::new(),
        }
    }

    pub fn hit(&mut self, role: Role, of: &Where<'_>, events: &mut Vec<Event>) {
        let address = of.hit.value(value::ARENA).filter(|address| *address != 0);
        match role {
            Role::Opened => self.opened(of, address, events),
            Role::Closed => self.closed(of, address, events),
            Role::SlabAdded => self.slab_added(of, address, events),
            Role::ObjectBorn => self.object_born(of, address, events),
            Role::ObjectDied => self.object_died(of, events),
            Role::Destroyed => {
                let id = address.and_then(|address| self.addresses.get(&of.key(address)).copied());
                id.into_iter().for_each(|id| self.die(id, of.at, events));
            }
        }
    }

    /// What the stack that a thread has sent is for.
    pub fn stack(&mut self, tid: u32) -> Option<Wanted> {
        self.stacks.remove(&tid)
    }

    fn expect_stack(&mut self, tid: u32, wanted: Wanted) {
        self.stacks.insert(tid, wanted);
    }

    fn begin(&mut self, of: &Where<'_>, address: Option<u64>, born: bool, events: &mut Vec<Event>) -> Option<ArenaId> {
        if self.live.len() >= ARENAS_MAX {
            events.push(Event::Loss { at: of.at, reason: Reason::ArenaTableFull, count: 1 });
            return None;
        }
        let id = self.ids.next();
        let (process, kind) = (of.process, Arc::clone(of.kind));
        let arena = Arena { process, kind, address: address.unwrap_or(0), bytes: 0, born, parent: None };
        events.push(Event::Arena { at: of.at, id, change: ArenaChange::Begun(arena.clone()) });
        let (pid, library, begun) = (of.hit.header.pid, of.library, of.at);
        let (context, slab_bytes, slab_total, object_bytes) = (None, 0, 0, 0);
        let (sum, closed) = (Objects::default(), Closing::Open);
        let live = LiveArena { pid, library, begun, arena, context, slab_bytes, slab_total, object_bytes, sum, closed };
        self.live.insert(id, live);
        if let Some(address) = address {
            self.addresses.insert(of.key(address), id);
        }
        Some(id)
    }

    fn opened(&mut self, of: &Where<'_>, address: Option<u64>, events: &mut Vec<Event>) {
        let context = of.hit.value(value::CONTEXT).filter(|context| *context != 0);
        if address.is_none() && context.is_none() {
            return;
        }
        let Some(id) = self.begin(of, address, true, events) else { return };
        if let Some(live) = self.live.get_mut(&id) {
            live.context = context;
            live.slab_bytes = of.hit.value(value::BYTES).unwrap_or(0);
        }
        if address.is_none() {
            self.unplaced.push(id);
        }
        if let Some(context) = context {
            self.contexts.insert(of.key(context), id);
        }
        self.place_slab(id, of.place(), of.at, events);
        self.expect_stack(of.hit.header.tid, Wanted::Birth { id, at: of.at });
    }

    fn closed(&mut self, of: &Where<'_>, address: Option<u64>, events: &mut Vec<Event>) {
        let by_context = of.hit.value(value::CONTEXT).and_then(|context| self.contexts.get(&of.key(context)));
        let by_address = address.and_then(|address| self.addresses.get(&of.key(address)));
        let Some(id) = by_context.or(by_address).copied() else { return };
        let popped = of.hit.value(value::POPPED).is_none_or(|popped| popped != 0);
        let closing = if popped { Closing::Popped } else { Closing::Kept };
        let is_news = |live: &&mut LiveArena| live.closed == Closing::Open || live.closed == Closing::Kept && popped;
        let Some(live) = self.live.get_mut(&id).filter(is_news) else { return };
        live.closed = closing;
        self.unplaced.retain(|other| *other != id);
        let alive = live.sum.born - live.sum.dead;
        if popped && alive == 0 {
            return self.die(id, of.at, events);
        }
        // The library kept it for some object: a dead one may be revived when another object refers to it.
        let escaped = if popped { alive } else { alive.max(1) };
        self.report(id, of.at, events);
        events.push(Event::Arena { at: of.at, id, change: ArenaChange::Closed { escaped, popped } });
        self.expect_stack(of.hit.header.tid, Wanted::Escape { id, at: of.at });
    }

    fn slab_added(&mut self, of: &Where<'_>, address: Option<u64>, events: &mut Vec<Event>) {
        let bytes = of.hit.value(value::BYTES).unwrap_or(0);
        match address.and_then(|address| self.addresses.get(&of.key(address)).copied()) {
            Some(id) => {
                self.add_slabs(id, 1, bytes);
                self.place_slab(id, of.place(), of.at, events);
            }
            None => {
                let tid = of.hit.header.tid;
                let mut slabs = self.slabs.remove(&tid).unwrap_or_default();
                slabs.count += 1;
                slabs.bytes = slabs.bytes.saturating_add(bytes);
                slabs.places.extend(of.place().filter(|_| slabs.places.len() < PLACES_MAX));
                self.slabs.insert(tid, slabs);
            }
        }
    }

    /// A slab without a known size has the size of the arena's slabs.
    fn place_slab(&self, id: ArenaId, place: Option<(u64, u64)>, at: Nanos, events: &mut Vec<Event>) {
        let Some((address, bytes)) = place else { return };
        let bytes = if bytes > 0 { bytes } else { self.live.get(&id).map_or(0, |live| live.slab_bytes) };
        if bytes > 0 {
            events.push(Event::Arena { at, id, change: ArenaChange::Slab { address, bytes } });
        }
    }

    fn add_slabs(&mut self, id: ArenaId, count: u32, bytes: u64) {
        let Some(live) = self.live.get_mut(&id) else { return };
        let bytes = if bytes == 0 { live.slab_bytes.saturating_mul(count.into()) } else { bytes };
        live.sum.slabs = live.sum.slabs.saturating_add(count);
        live.slab_total = live.slab_total.saturating_add(bytes);
        self.changed.insert(id);
    }

    fn object_born(&mut self, of: &Where<'_>, address: Option<u64>, events: &mut Vec<Event>) {
        let Some(object) = of.hit.value(value::OBJECT).filter(|object| *object != 0) else { return };
        // A wrapper may return an object that an inner function returned before.
        if self.objects.contains_key(&of.key(object)) {
            return;
        }
        if self.objects.len() >= OBJECTS_MAX {
            return events.push(Event::Loss { at: of.at, reason: Reason::ArenaTableFull, count: 1 });
        }
        let known = self.addresses.get(&of.key(address.unwrap_or(0))).copied();
        let placed = known.or_else(|| self.place(of, address?, events));
        let Some(id) = placed.or_else(|| self.begin(of, Some(address.unwrap_or(0)), false, events)) else { return };
        if let Some(slabs) = self.slabs.remove(&of.hit.header.tid) {
            self.add_slabs(id, slabs.count, slabs.bytes);
            slabs.places.into_iter().for_each(|place| self.place_slab(id, Some(place), of.at, events));
        }
        let bytes = of.hit.value(value::BYTES).unwrap_or(0);
        self.objects.insert(of.key(object), (id, bytes));
        if let Some(live) = self.live.get_mut(&id) {
            live.sum.born += 1;
            live.object_bytes = live.object_bytes.saturating_add(bytes);
            self.changed.insert(id);
        }
    }

    /// Gives an address to the last opened arena of the process that has none.
    fn place(&mut self, of: &Where<'_>, address: u64, events: &mut Vec<Event>) -> Option<ArenaId> {
        let is_own = |id: &ArenaId| {
            self.live.get(id).is_some_and(|live| (live.pid, live.library) == (of.hit.header.pid, of.library))
        };
        let at = self.unplaced.iter().rposition(is_own)?;
        let id = self.unplaced.remove(at);
        let live = self.live.get_mut(&id)?;
        live.arena.address = address;
        events.push(Event::Arena { at: live.begun, id, change: ArenaChange::Begun(live.arena.clone()) });
        self.addresses.insert(of.key(address), id);
        Some(id)
    }

    fn object_died(&mut self, of: &Where<'_>, events: &mut Vec<Event>) {
        let object = of.hit.value(value::OBJECT).unwrap_or(0);
        let Some((id, bytes)) = self.objects.remove(&of.key(object)) else { return };
        let Some(live) = self.live.get_mut(&id) else { return };
        live.sum.dead += 1;
        live.object_bytes = live.object_bytes.saturating_sub(bytes);
        self.changed.insert(id);
        // The last owner is about to release it.
        if live.closed != Closing::Open && of.hit.value(value::USES) == Some(1) {
            self.die(id, of.at, events);
        }
    }

    fn die(&mut self, id: ArenaId, at: Nanos, events: &mut Vec<Event>) {
        self.report(id, at, events);
        events.push(Event::Arena { at, id, change: ArenaChange::Died });
        self.forget(id);
    }

    fn forget(&mut self, id: ArenaId) {
        self.changed.remove(&id);
        self.unplaced.retain(|other| *other != id);
        let Some(live) = self.live.remove(&id) else { return };
        let key = |address| (live.pid, live.library, address);
        for (map, address) in [(&mut self.addresses, Some(live.arena.address)), (&mut self.contexts, live.context)] {
            if let Some(key) = address.map(key)
                && map.get(&key) == Some(&id)
            {
                map.remove(&key);
            }
        }
        if live.sum.born != live.sum.dead {
            self.objects.retain(|_, (arena, _)| *arena != id);
        }
    }

    fn report(&mut self, id: ArenaId, at: Nanos, events: &mut Vec<Event>) {
        if let Some(live) = self.live.get(&id)
            && self.changed.remove(&id)
        {
            events.push(Event::Arena { at, id, change: ArenaChange::Objects(live.objects()) });
        }
    }

    /// Emits what has changed since the last call.
    pub fn tick(&mut self, at: Nanos, events: &mut Vec<Event>) {
        let changed: Vec<ArenaId> = self.changed.iter().copied().collect();
        changed.into_iter().for_each(|id| self.report(id, at, events));
    }

    /// Forgets a process that has ended or runs another program now. No event per arena: the end of the
    /// process implies theirs.
    pub fn ended(&mut self, pid: u32, at: Nanos, events: &mut Vec<Event>) {
        let ids: Vec<ArenaId> = self.live.iter().filter(|(_, live)| live.pid == pid).map(|(id, _)| *id).collect();
        for id in ids {
            self.report(id, at, events);
            self.forget(id);
        }
    }
}

#[cfg(test)]
mod tests;
