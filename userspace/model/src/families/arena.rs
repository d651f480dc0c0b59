//! Arenas: where they were born, how full they are, and what became of them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use super::places::{OfProcess, Placed};
use super::{Ended, Forgotten, Places};
use crate::{Arena, ArenaChange, ArenaId, Filled, History, Nanos, Objects, ProcessRef, StackId};

/// How many fork copies are followed back to the original arena.
const FORKS_MAX: usize = 64;
/// The kinds of CPython's own arenas.
const OWN: [&str; 2] = ["pymalloc", MIMALLOC];
const MIMALLOC: &str = "mimalloc";

/// How an arena ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its owner gave it back.
    Freed,
    /// The last object that had escaped from it is gone.
    LastOwner,
    /// Its process ended or exec'd.
    ProcessEnd,
}

impl Cause {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Freed => "freed",
            Self::LastOwner => "last_owner",
            Self::ProcessEnd => "process_end",
        }
    }
}

/// The state of a library's arena when it was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    pub at: Nanos,
    pub escaped: u64,
    /// Whether the library dropped it.
    pub popped: bool,
    /// Where the surviving objects escaped.
    pub stack: Option<StackId>,
}

#[derive(Clone, Debug)]
pub struct ArenaState {
    pub arena: Arena,
    pub begun: Nanos,
    /// Where it was born.
    pub stack: Option<StackId>,
    pub died: Option<(Nanos, Cause)>,
    /// The last examination: when, and what it found.
    pub filled: Option<(Nanos, Filled)>,
    /// For a library's arena.
    pub objects: Objects,
    pub closed: Option<Closed>,
    /// Address of the first slab of a library's arena, if known.
    pub slab: Option<u64>,
    /// Distinguishes arenas that use the same address in one process.
    pub generation: u32,
}

impl ArenaState {
    pub fn is_live(&self) -> bool {
        self.died.is_none()
    }

    /// Bytes backed by memory. mimalloc's segments are reserved as addresses, so only their used slices count.
    pub fn held(&self) -> u64 {
        const SLICE: u64 = 64 << 10;
        match self.filled {
            Some((_, filled)) if &*self.arena.kind == MIMALLOC => self.arena.bytes.min(u64::from(filled.slabs) * SLICE),
            _ => self.arena.bytes,
        }
    }

    /// Whether it was not freed while its process lived.
    pub fn is_kept(&self) -> bool {
        self.died.is_none_or(|(_, cause)| cause == Cause::ProcessEnd)
    }

    /// Whether it had not been freed before `end`.
    pub fn is_kept_at(&self, end: Nanos) -> bool {
        self.is_kept() || self.died.is_some_and(|(at, _)| at >= end)
    }

    /// Returns whether it was alive.
    fn die(&mut self, at: Nanos, cause: Cause) -> bool {
        let lived = self.is_live();
        self.died.get_or_insert((at, cause));
        lived
    }
}

/// Whether it is one of CPython's own arenas, whose address and size say where it lies.
pub fn is_own(arena: &Arena) -> bool {
    OWN.contains(&&*arena.kind)
}

/// The kind and birth stack of arenas that were forgotten.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Birth {
    pub process: ProcessRef,
    pub kind: Arc<str>,
    pub stack: Option<StackId>,
}

impl Placed for Birth {
    fn of_thread(&self) -> Self {
        Self { stack: None, ..self.clone() }
    }

    fn of_process(&self) -> Self {
        self.of_thread()
    }
}

impl OfProcess for Birth {
    fn process(&self) -> ProcessRef {
        self.process
    }

    fn of_others(&self) -> Self {
        Self { process: ProcessRef::OTHERS, ..self.clone() }
    }
}

#[derive(Debug)]
pub struct Arenas {
    arenas: BTreeMap<ArenaId, ArenaState>,
    /// Those that are live.
    live: BTreeMap<ProcessRef, BTreeSet<ArenaId>>,
    ended: Ended<ArenaId>,
    forgotten: Places<Birth, Forgotten>,
    /// How many arenas each address has had.
    generations: BTreeMap<(ProcessRef, u64), u32>,
}

impl Arenas {
    pub fn new(history: History) -> Self {
        let (arenas, ended) = (BTreeMap::new(), Ended::new(history));
        Self { arenas, live: BTreeMap::new(), ended, forgotten: Places::default(), generations: BTreeMap::new() }
    }

    /// Returns how many arenas were forgotten to make room.
    pub fn add(&mut self, at: Nanos, id: ArenaId, change: &ArenaChange) -> u64 {
        if let ArenaChange::Begun(arena) = change {
            return self.begin(at, id, arena);
        }
        let Some(state) = self.arenas.get_mut(&id) else { return 0 };
        match change {
            ArenaChange::Begun(_) => {}
            ArenaChange::Born(stack) => state.stack = Some(*stack),
            ArenaChange::Filled(filled) => state.filled = Some((at, *filled)),
            ArenaChange::Slab { address, .. } => {
                state.slab.get_or_insert(*address);
            }
            ArenaChange::Objects(objects) => {
                state.objects = *objects;
                state.arena.bytes = objects.bytes;
            }
            ArenaChange::Closed { escaped, popped } => {
                state.closed = Some(Closed { at, escaped: *escaped, popped: *popped, stack: None });
            }
            ArenaChange::Escaped(stack) => {
                if let Some(closed) = &mut state.closed {
                    closed.stack = Some(*stack);
                }
            }
            ArenaChange::Died => {
                let cause = if state.closed.is_some() { Cause::LastOwner } else { Cause::Freed };
                let process = state.arena.process;
                if state.die(at, cause) {
                    self.ended.push(at, id);
                    self.forget_live(process, id);
                }
            }
            ArenaChange::Mistaken => {
                let process = state.arena.process;
                self.arenas.remove(&id);
                self.forget_live(process, id);
            }
        }
        0
    }

    fn begin(&mut self, at: Nanos, id: ArenaId, arena: &Arena) -> u64 {
        if let Some(state) = self.arenas.get_mut(&id) {
            // An event about an arena already known says more about it.
            state.begun = state.begun.min(at);
            if state.arena.address != arena.address {
                state.generation = next_generation(&mut self.generations, arena);
            }
            let before = mem::replace(&mut state.arena, arena.clone()).process;
            if state.is_live() && before != arena.process {
                self.live.entry(arena.process).or_default().insert(id);
                self.forget_live(before, id);
            }
            return 0;
        }
        let parent = arena.parent.and_then(|parent| self.arenas.get(&parent));
        let (stack, filled) = parent.map_or((None, None), |parent| (parent.stack, parent.filled));
        let generation = next_generation(&mut self.generations, arena);
        let (objects, closed, slab) = (Objects::default(), None, None);
        let arena = arena.clone();
        let state = ArenaState { arena, begun: at, stack, died: None, filled, objects, closed, slab, generation };
        self.live.entry(state.arena.process).or_default().insert(id);
        self.arenas.insert(id, state);
        self.make_room()
    }

    fn make_room(&mut self) -> u64 {
        let Some((id, state)) = self.ended.make_room(&mut self.arenas) else { return 0 };
        self.forget_live(state.arena.process, id);
        let birth =
            Birth { process: state.arena.process, kind: Arc::clone(&state.arena.kind), stack: self.birth(&state) };
        self.forgotten.of(birth).add(state.held(), state.is_kept());
        1
    }

    /// A process is gone, and its memory with it.
    pub fn ended(&mut self, process: ProcessRef, at: Nanos) {
        for id in self.live.remove(&process).unwrap_or_default() {
            if self.arenas.get_mut(&id).is_some_and(|state| state.die(at, Cause::ProcessEnd)) {
                self.ended.push(at, id);
            }
        }
        let addresses = self.generations.range((process, 0)..=(process, u64::MAX));
        for key in addresses.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.generations.remove(&key);
        }
    }

    /// Reassigns the arenas of evicted processes.
    pub(crate) fn reassign(&mut self, resolve: impl Fn(ProcessRef) -> ProcessRef) {
        let is_other = |process: ProcessRef| resolve(process) != process;
        for state in self.arenas.values_mut() {
            state.arena.process = resolve(state.arena.process);
        }
        for (process, live) in self.live.extract_if(.., |process, _| is_other(*process)).collect::<Vec<_>>() {
            self.live.entry(resolve(process)).or_default().extend(live);
        }
        self.generations.retain(|(process, _), _| !is_other(*process));
        self.forgotten.reassign(resolve);
    }

    fn forget_live(&mut self, process: ProcessRef, id: ArenaId) {
        if let Entry::Occupied(mut live) = self.live.entry(process) {
            live.get_mut().remove(&id);
            if live.get().is_empty() {
                live.remove();
            }
        }
    }

    /// Forgets arenas that died before the window ending at `now`.
    pub fn expire(&mut self, now: Nanos) {
        self.ended.expire(now, &mut self.arenas);
    }

    /// The stack that made it or, for a fork copy, the original.
    pub fn birth(&self, state: &ArenaState) -> Option<StackId> {
        let mut state = state;
        for _ in 0..FORKS_MAX {
            if state.stack.is_some() {
                return state.stack;
            }
            state = self.arenas.get(&state.arena.parent?)?;
        }
        None
    }

    pub fn get(&self, id: ArenaId) -> Option<&ArenaState> {
        self.arenas.get(&id)
    }

    /// Sums of ended arenas that were forgotten to make room.
    pub fn forgotten(&self) -> impl Iterator<Item = (&Birth, Forgotten)> + '_ {
        self.forgotten.iter().map(|(birth, sum)| (birth, *sum))
    }

    /// In the order of first sight.
    pub fn arenas(&self) -> impl Iterator<Item = (ArenaId, &ArenaState)> + '_ {
        self.arenas.iter().map(|(id, state)| (*id, state))
    }
}

/// Addresses of arenas whose uses are counted. When there are more, all are forgotten, and their arenas count from 1 again.
const ADDRESSES_MAX: usize = 1 << 18;

fn next_generation(generations: &mut BTreeMap<(ProcessRef, u64), u32>, arena: &Arena) -> u32 {
    if generations.len() >= ADDRESSES_MAX {
        generations.clear();
    }
    let generation = generations.entry((arena.process, arena.address)).or_default();
    *generation += 1;
    *generation
}
