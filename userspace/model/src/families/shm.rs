//! Shared segments: who made them, who holds them, and what became of them.

use std::collections::{BTreeMap, BTreeSet};

use super::places::Placed;
use super::{Ended, Forgotten, Places};
use crate::{History, Nanos, Pid, Segment, SegmentChange, SegmentId, SegmentKind, StackId};

/// Limits the past holders and the passes kept per segment.
const PAST_MAX: usize = 4096;

/// What a process holds of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    pub fds: u32,
    pub mappings: u32,
    pub since: Nanos,
    /// Its resident bytes when they were last examined.
    pub shown: Option<Shown>,
}

/// Resident bytes of a segment in one process's mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub resident: u64,
    /// The same with each page divided by the number of processes that map it.
    pub share: u64,
}

/// What a process held of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastHolder {
    pub pid: Pid,
    /// The most it held at one time.
    pub fds: u32,
    pub mappings: u32,
    pub from: Nanos,
    pub to: Nanos,
    /// When the process ended.
    pub ended: Option<Nanos>,
}

/// A descriptor was passed from one process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    pub at: Nanos,
    pub from: Option<Pid>,
    pub to: Pid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlink {
    pub at: Nanos,
    pub by: Option<Pid>,
    /// The number of other processes that held it then.
    pub users: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SegmentVerdict {
    Held,
    Released,
    /// Its name is left, and every process that held it has ended.
    Residue,
}

impl SegmentVerdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Released => "released",
            Self::Residue => "residue",
        }
    }
}

#[derive(Clone, Debug)]
pub struct SegmentState {
    pub segment: Segment,
    pub begun: Nanos,
    /// The stack that made it.
    pub stack: Option<StackId>,
    pub unlinked: Option<Unlink>,
    /// When its memory was freed.
    pub evicted: Option<Nanos>,
    /// When it ended, however that became known.
    pub ended: Option<Nanos>,
    /// The time of the last event about it.
    changed: Nanos,
    /// Bytes backed by memory when it was last examined, each counted once.
    pub allocated: Option<u64>,
    pub holders: BTreeMap<Pid, Holder>,
    pub past: Vec<PastHolder>,
    pub passed: Vec<Pass>,
    /// Descriptors in flight.
    pub in_flight: u32,
    /// Living processes that hold or held it.
    alive: BTreeSet<Pid>,
    most: BTreeMap<Pid, (u32, u32)>,
}

impl SegmentState {
    fn new(segment: Segment, at: Nanos) -> Self {
        Self {
            segment,
            begun: at,
            stack: None,
            unlinked: None,
            evicted: None,
            ended: None,
            changed: at,
            allocated: None,
            holders: BTreeMap::new(),
            past: Vec::new(),
            passed: Vec::new(),
            in_flight: 0,
            alive: BTreeSet::new(),
            most: BTreeMap::new(),
        }
    }

    pub fn verdict(&self) -> SegmentVerdict {
        if self.ended.is_some() {
            return SegmentVerdict::Released;
        }
        if !self.holders.is_empty() || self.in_flight > 0 {
            return SegmentVerdict::Held;
        }
        match (self.segment.kind, self.segment.linked) {
            (SegmentKind::Shm, true) if self.alive.is_empty() => SegmentVerdict::Residue,
            (SegmentKind::Shm, true) => SegmentVerdict::Held,
            _ => SegmentVerdict::Released,
        }
    }

    /// How many processes held it just before `end`.
    pub fn holders_at(&self, end: Nanos) -> usize {
        let past = self.past.iter().filter(|past| past.from < end && past.to >= end);
        self.holders.values().filter(|holder| holder.since < end).count() + past.count()
    }

    /// Its state just before `end`, as far as events tell. Descriptors in flight are only known for the present.
    pub fn verdict_at(&self, end: Nanos) -> SegmentVerdict {
        let held_by = |past: &&PastHolder| past.from < end;
        let lived_on = |past: &PastHolder| past.ended.is_none_or(|ended| ended >= end);
        let is_linked = self.segment.linked || self.unlinked.is_some_and(|unlink| unlink.at >= end);
        match self.ended {
            // Nothing has happened to it since.
            None if self.changed < end => self.verdict(),
            Some(ended) if ended < end => SegmentVerdict::Released,
            _ if self.holders_at(end) > 0 => SegmentVerdict::Held,
            _ if self.segment.kind != SegmentKind::Shm || !is_linked => SegmentVerdict::Released,
            _ if self.past.iter().filter(held_by).any(lived_on) => SegmentVerdict::Held,
            _ => SegmentVerdict::Residue,
        }
    }

    /// `dev:ino:generation`.
    pub fn id(&self) -> String {
        format!("{}:{}:{}", self.segment.dev, self.segment.ino, self.segment.generation)
    }

    /// When it was made, if that was seen.
    pub fn created(&self) -> Option<Nanos> {
        self.segment.creator.map(|_| self.begun)
    }

    /// Whether it is a semaphore rather than shared data.
    pub fn is_semaphore(&self) -> bool {
        let Segment { kind, name, bytes, .. } = &self.segment;
        kind.is_semaphore(name.as_deref().unwrap_or_default().as_bytes(), *bytes)
    }

    fn apply(&mut self, at: Nanos, change: &SegmentChange) {
        self.changed = self.changed.max(at);
        match change {
            SegmentChange::Begun(_) => {}
            SegmentChange::Born(stack) => self.stack = Some(*stack),
            SegmentChange::Resized(bytes) => self.segment.bytes = *bytes,
            SegmentChange::Holds { pid, fds, mappings } => self.holds(at, *pid, *fds, *mappings),
            // The region map handles these.
            SegmentChange::Mapped { .. } | SegmentChange::Unmapped { .. } => {}
            SegmentChange::Allocated(bytes) => self.allocated = Some(*bytes),
            SegmentChange::Shown { pid, resident, share } => {
                if let Some(holder) = self.holders.get_mut(pid) {
                    holder.shown = Some(Shown { resident: *resident, share: *share });
                }
            }
            SegmentChange::Ended { pid } => {
                self.holds(at, *pid, 0, 0);
                self.alive.remove(pid);
                for past in self.past.iter_mut().filter(|past| past.pid == *pid) {
                    past.ended.get_or_insert(at);
                }
            }
            SegmentChange::Unlinked { by } => {
                self.segment.linked = false;
                let users = self.holders.keys().filter(|pid| Some(**pid) != *by).count() as u32;
                match &mut self.unlinked {
                    // It was first seen without the process that did it.
                    Some(unlink) => unlink.by = unlink.by.or(*by),
                    None => self.unlinked = Some(Unlink { at, by: *by, users }),
                }
            }
            SegmentChange::Sent { .. } => self.in_flight = self.in_flight.saturating_add(1),
            SegmentChange::Passed { from, to } => {
                self.in_flight = self.in_flight.saturating_sub(u32::from(from.is_some()));
                if self.passed.len() < PAST_MAX {
                    self.passed.push(Pass { at, from: *from, to: *to });
                }
            }
            SegmentChange::Released => {
                self.evicted = Some(at);
                self.end(at);
            }
            SegmentChange::Gone => self.end(at),
        }
    }

    fn end(&mut self, at: Nanos) {
        self.ended.get_or_insert(at);
        let left: Vec<Pid> = self.holders.keys().copied().collect();
        left.into_iter().for_each(|pid| self.holds(at, pid, 0, 0));
        self.in_flight = 0;
        // An emptied map keeps its allocation.
        (self.holders, self.most, self.alive) = Default::default();
        self.past.shrink_to_fit();
    }

    fn holds(&mut self, at: Nanos, pid: Pid, fds: u32, mappings: u32) {
        if fds == 0 && mappings == 0 {
            let Some(holder) = self.holders.remove(&pid) else { return };
            let (fds, mappings) = self.most.remove(&pid).unwrap_or_default();
            if self.past.len() < PAST_MAX {
                self.past.push(PastHolder { pid, fds, mappings, from: holder.since, to: at, ended: None });
            }
            return;
        }
        self.alive.insert(pid);
        let holder = self.holders.entry(pid).or_insert(Holder { fds, mappings, since: at, shown: None });
        (holder.fds, holder.mappings) = (fds, mappings);
        let most = self.most.entry(pid).or_default();
        *most = (most.0.max(fds), most.1.max(mappings));
    }
}

/// What it is, and where it was made.
type Made = (SegmentKind, Option<StackId>);

impl Placed for Made {
    fn of_thread(&self) -> Self {
        (self.0, None)
    }

    fn of_process(&self) -> Self {
        self.of_thread()
    }
}

#[derive(Debug)]
pub struct Shm {
    segments: BTreeMap<SegmentId, SegmentState>,
    ended: Ended<SegmentId>,
    /// Semaphores are left out.
    forgotten: Places<Made, Forgotten>,
}

impl Shm {
    pub fn new(history: History) -> Self {
        Self { segments: BTreeMap::new(), ended: Ended::new(history), forgotten: Places::default() }
    }

    /// Returns how many segments were forgotten to make room.
    pub fn add(&mut self, at: Nanos, id: SegmentId, change: &SegmentChange) -> u64 {
        if let SegmentChange::Begun(segment) = change {
            let state = self.segments.entry(id).or_insert_with(|| SegmentState::new(segment.clone(), at));
            // An event about a known segment says more about it.
            state.segment = segment.clone();
            return self.make_room();
        }
        let Some(state) = self.segments.get_mut(&id) else { return 0 };
        let had_ended = state.ended.is_some();
        state.apply(at, change);
        if let Some(ended) = state.ended.filter(|_| !had_ended) {
            self.ended.push(ended, id);
        }
        0
    }

    fn make_room(&mut self) -> u64 {
        let Some((_, state)) = self.ended.make_room(&mut self.segments) else { return 0 };
        if !state.is_semaphore() {
            let sum = self.forgotten.of((state.segment.kind, state.stack));
            sum.add(state.segment.bytes, state.verdict() == SegmentVerdict::Residue);
        }
        1
    }

    /// Forgets segments that ended before the window ending at `now`.
    pub fn expire(&mut self, now: Nanos) {
        self.ended.expire(now, &mut self.segments);
    }

    pub fn get(&self, id: SegmentId) -> Option<&SegmentState> {
        self.segments.get(&id)
    }

    /// All segments except semaphores, in the order of first sight.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentId, &SegmentState)> + '_ {
        self.segments.iter().map(|(id, state)| (*id, state)).filter(|(_, state)| !state.is_semaphore())
    }

    /// Sums of segments forgotten to make room: their kind, and the stack that made them.
    pub fn forgotten(&self) -> impl Iterator<Item = (SegmentKind, Option<StackId>, Forgotten)> + '_ {
        self.forgotten.iter().map(|((kind, stack), sum)| (*kind, *stack, *sum))
    }
}
