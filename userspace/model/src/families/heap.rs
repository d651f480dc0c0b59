//! The private memory of processes, by the stack that uses it: now, and at the moment when a process had most.
//!
//! Sampled pages represent the memory, each with the bytes that it stands for. A page in a block belongs to the stack that
//! mapped the block, and any other page to the stack that touched it first.

use std::collections::BTreeMap;

use crate::{HeapChange, History, Nanos, ProcessRef, StackId};

/// Bounds the sampled pages of a process, and its blocks. Further ones are dropped.
const PAGES_MAX: usize = 1 << 16;
/// Bounds the pages of all processes that forks copy. Beyond it, a child begins without its parent's lines.
const COPIED_MAX: usize = 1 << 20;
/// Bounds the rows of a process. Further stacks share a row without a stack for each kind.
const ROWS_MAX: usize = 1 << 14;
const NO_STACK: StackId = StackId(u32::MAX);
/// Bounds the processes. Beyond it, the one that ended first is forgotten.
const PROCESSES_MAX: usize = 1 << 12;
/// Bounds the points of a row's course. When there are more, every other one is dropped.
const POINTS_MAX: usize = 64;
/// The least distance of two points.
const POINT_EVERY: Nanos = Nanos(500_000_000);

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HeapKind {
    /// Small Python objects, in arenas of CPython's allocator.
    Objects,
    /// A block that was mapped for one purpose, such as a large array.
    Block,
    /// Anything else: malloc's heap, stacks, caches of allocators.
    Other,
}

impl HeapKind {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Block => "block",
            Self::Other => "other",
        }
    }
}

/// The memory of a process that has one use and one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeapKey {
    pub kind: HeapKind,
    pub stack: StackId,
}

/// How much a stack uses.
#[derive(Clone, Debug, Default)]
pub struct HeapRow {
    pub live: u64,
    /// Includes memory that was released again.
    pub touched: u64,
    /// When it first touched something.
    pub since: Nanos,
    peak: u64,
    /// The number of the peak for which `peak` holds. If the process had a later one, `live` has not changed since.
    peak_number: u32,
    /// What was live at some times, oldest first.
    points: Vec<(Nanos, u64)>,
    every: Nanos,
}

impl HeapRow {
    fn set(&mut self, at: Nanos, live: u64, peak_number: u32) {
        if self.peak_number != peak_number {
            (self.peak, self.peak_number) = (self.live, peak_number);
        }
        self.live = live;
        match self.points.last_mut() {
            Some((last, value)) if at < last.saturating_add(self.every) => *value = live,
            _ => self.points.push((at, live)),
        }
        if self.points.len() > POINTS_MAX {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 0
            });
            self.every = Nanos(self.every.0 * 2);
        }
    }
}

/// The resident memory of a process, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub anonymous: u64,
    pub files: u64,
    pub shared: u64,
}

impl Counted {
    pub fn total(self) -> u64 {
        self.anonymous.saturating_add(self.files).saturating_add(self.shared)
    }
}

#[derive(Clone, Copy, Debug)]
struct Page {
    at: Nanos,
    bytes: u64,
    key: HeapKey,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    at: Nanos,
    end: u64,
    stack: StackId,
}

/// Which moment is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeapTime {
    /// The latest.
    End,
    /// When the process had most.
    Peak,
}

#[derive(Clone, Debug, Default)]
pub struct ProcessHeap {
    pages: BTreeMap<u64, Page>,
    blocks: BTreeMap<u64, Block>,
    rows: BTreeMap<HeapKey, HeapRow>,
    counted: Counted,
    peak: Counted,
    peak_at: Nanos,
    peak_number: u32,
    ended: Option<Nanos>,
}

impl ProcessHeap {
    /// Returns the resident memory at that time.
    pub fn counted(&self, time: HeapTime) -> Counted {
        match time {
            HeapTime::End => self.counted,
            HeapTime::Peak => self.peak,
        }
    }

    pub fn peak_at(&self) -> Nanos {
        self.peak_at
    }

    /// The moment that is shown unless the user picks one: the latest, or the peak of a process that has ended, which
    /// gave everything back.
    pub fn usual_time(&self) -> HeapTime {
        if self.ended.is_some() { HeapTime::Peak } else { HeapTime::End }
    }

    /// Lists the memory of each stack at that time, with its row.
    pub fn rows(&self, time: HeapTime) -> impl Iterator<Item = (HeapKey, u64, &HeapRow)> + '_ {
        let rows = self.rows.iter().map(move |(key, row)| {
            let is_changed = row.peak_number == self.peak_number;
            let bytes = match time {
                HeapTime::Peak if is_changed => row.peak,
                HeapTime::Peak | HeapTime::End => row.live,
            };
            (*key, bytes, row)
        });
        rows.filter(|(_, bytes, _)| *bytes > 0)
    }

    /// What one stack used at some times, oldest first.
    pub fn course(&self, key: HeapKey) -> Option<&[(Nanos, u64)]> {
        self.rows.get(&key).map(|row| row.points.as_slice())
    }

    /// Returns what the sampled pages stand for together at that time.
    pub fn known(&self, time: HeapTime) -> u64 {
        self.rows(time).fold(0, |sum, (_, bytes, _)| sum.saturating_add(bytes))
    }

    /// Lists the live blocks of a stack: their addresses, when they were mapped, and their touched bytes.
    pub fn blocks_of(&self, stack: StackId) -> impl Iterator<Item = (std::ops::Range<u64>, Nanos, u64)> + '_ {
        self.blocks.iter().filter(move |(_, block)| block.stack == stack).map(|(start, block)| {
            let touched =
                self.pages.range(*start..block.end).fold(0, |sum: u64, (_, page)| sum.saturating_add(page.bytes));
            (*start..block.end, block.at, touched)
        })
    }

    fn block_at(&self, address: u64) -> Option<&Block> {
        self.blocks.range(..=address).next_back().map(|(_, block)| block).filter(|block| address < block.end)
    }

    /// Returns the key of the row that was changed.
    fn change(&mut self, key: HeapKey, at: Nanos, change: impl FnOnce(u64) -> u64) -> HeapKey {
        let has_room = self.rows.len() < ROWS_MAX || self.rows.contains_key(&key);
        let key = if has_room { key } else { HeapKey { stack: NO_STACK, ..key } };
        let number = self.peak_number;
        let new = || HeapRow { since: at, every: POINT_EVERY, peak_number: number, ..HeapRow::default() };
        let row = self.rows.entry(key).or_insert_with(new);
        let live = change(row.live);
        row.touched = row.touched.saturating_add(live.saturating_sub(row.live));
        row.set(at, live, number);
        key
    }

    fn remove(&mut self, address: u64, at: Nanos) -> Option<Page> {
        let page = self.pages.remove(&address)?;
        self.change(page.key, at, |live| live.saturating_sub(page.bytes));
        Some(page)
    }

    fn put(&mut self, address: u64, mut page: Page, at: Nanos) {
        self.remove(address, at);
        if self.pages.len() < PAGES_MAX {
            page.key = self.change(page.key, at, |live| live.saturating_add(page.bytes));
            self.pages.insert(address, page);
        }
    }

    fn set_counted(&mut self, at: Nanos, counted: Counted) {
        self.counted = counted;
        if counted.total() > self.peak.total() {
            (self.peak, self.peak_at) = (counted, at);
            self.peak_number += 1;
        }
    }

    fn touch(&mut self, at: Nanos, address: u64, bytes: u64, toucher: StackId, is_in_arena: bool) {
        let key = match self.block_at(address).filter(|block| block.at <= at) {
            Some(block) => HeapKey { kind: HeapKind::Block, stack: block.stack },
            None if is_in_arena => HeapKey { kind: HeapKind::Objects, stack: toucher },
            None => HeapKey { kind: HeapKind::Other, stack: toucher },
        };
        self.put(address, Page { at, bytes, key }, at);
    }

    /// A block is named later than pages that were touched right after its mmap, so it takes these over.
    fn map(&mut self, at: Nanos, address: u64, bytes: u64, stack: StackId) {
        let end = address.saturating_add(bytes);
        self.unmap(address, end, at);
        if self.blocks.len() < PAGES_MAX {
            self.blocks.insert(address, Block { at, end, stack });
        }
        let touched: Vec<(u64, Page)> = self.pages.range(address..end).map(|(place, page)| (*place, *page)).collect();
        for (place, page) in touched.into_iter().filter(|(_, page)| page.at >= at) {
            self.put(place, Page { key: HeapKey { kind: HeapKind::Block, stack }, ..page }, page.at.max(at));
        }
    }

    /// Ends the blocks, or the parts of them, that were mapped there before.
    fn unmap(&mut self, start: u64, end: u64, at: Nanos) {
        let overlapping = self.blocks.range(..end).rev().take_while(|(_, block)| block.end > start);
        let overlapping: Vec<(u64, Block)> = overlapping.map(|(from, block)| (*from, *block)).collect();
        for (from, block) in overlapping.into_iter().filter(|(_, block)| block.at <= at) {
            self.blocks.remove(&from);
            if from < start {
                self.blocks.insert(from, Block { end: start, ..block });
            }
            if block.end > end {
                self.blocks.insert(end, block);
            }
        }
    }

    fn free(&mut self, start: u64, end: u64, at: Nanos) {
        let gone = self.pages.range(start..end).filter(|(_, page)| page.at <= at);
        for address in gone.map(|(address, _)| *address).collect::<Vec<_>>() {
            self.remove(address, at);
        }
        // A single page was dropped and not unmapped.
        if end - start > PAGE {
            self.unmap(start, end, at);
        }
    }

    fn shift(&mut self, start: u64, bytes: u64, to: u64, at: Nanos) {
        let moved: Vec<u64> = self.pages.range(start..start.saturating_add(bytes)).map(|(place, _)| *place).collect();
        let moved: Vec<(u64, Page)> =
            moved.into_iter().filter_map(|place| Some((place, self.remove(place, at)?))).collect();
        self.unmap(start, start.saturating_add(bytes), at);
        for (place, page) in moved {
            self.put(to.saturating_add(place - start), page, at);
        }
    }

    fn end(&mut self, at: Nanos) {
        self.ended = Some(at);
        let keys: Vec<HeapKey> = self.rows.keys().copied().collect();
        for key in keys {
            self.change(key, at, |_| 0);
        }
        self.pages.clear();
        self.blocks.clear();
        self.counted = Counted::default();
    }
}

const PAGE: u64 = 4096;

#[derive(Debug)]
pub struct Heap {
    history: History,
    processes: BTreeMap<ProcessRef, ProcessHeap>,
}

impl Heap {
    pub fn new(history: History) -> Self {
        Self { history, processes: BTreeMap::new() }
    }

    /// `is_in_arena` says whether the touched address lies in an arena of CPython's allocator.
    pub fn add(&mut self, at: Nanos, process: ProcessRef, change: &HeapChange, is_in_arena: bool) {
        if let HeapChange::Inherited { parent } = *change {
            let copied = self.processes.get(&parent).filter(|_| self.has_room()).cloned();
            self.processes.extend(copied.map(|heap| (process, heap.copied(at))));
            return self.forget_oldest();
        }
        let heap = self.processes.entry(process).or_default();
        if heap.ended.is_some() {
            return;
        }
        match *change {
            HeapChange::Touched { address, bytes, anonymous, stack } => {
                heap.touch(at, address, bytes, stack, is_in_arena);
                heap.set_counted(at, Counted { anonymous, ..heap.counted });
            }
            HeapChange::Mapped { address, bytes, stack } => heap.map(at, address, bytes, stack),
            HeapChange::Freed { address, bytes } => heap.free(address, address.saturating_add(bytes), at),
            HeapChange::Moved { address, bytes, to } => heap.shift(address, bytes, to, at),
            HeapChange::Counted { anonymous, files, shared } => {
                heap.set_counted(at, Counted { anonymous, files, shared });
            }
            HeapChange::Inherited { .. } => {}
        }
        self.forget_oldest();
    }

    fn has_room(&self) -> bool {
        self.processes.values().map(|heap| heap.pages.len()).sum::<usize>() < COPIED_MAX
    }

    fn forget_oldest(&mut self) {
        if self.processes.len() > PROCESSES_MAX {
            let oldest = self.processes.iter().filter_map(|(id, heap)| Some((heap.ended?, *id))).min();
            oldest.map(|(_, id)| self.processes.remove(&id));
        }
    }

    pub fn end(&mut self, process: ProcessRef, at: Nanos) {
        if let Some(heap) = self.processes.get_mut(&process) {
            heap.end(at);
        }
    }

    /// Forgets processes that ended before the window ending at `now`.
    pub fn expire(&mut self, now: Nanos) {
        if let History::Window { length, .. } = self.history {
            let since = now.saturating_sub(length);
            self.processes.retain(|_, heap| heap.ended.is_none_or(|ended| ended >= since));
        }
    }

    /// Forgets evicted processes.
    pub(crate) fn reassign(&mut self, resolve: impl Fn(ProcessRef) -> ProcessRef) {
        self.processes.retain(|process, _| resolve(*process) == *process);
    }

    pub fn get(&self, process: ProcessRef) -> Option<&ProcessHeap> {
        self.processes.get(&process)
    }

    pub fn processes(&self) -> impl Iterator<Item = (ProcessRef, &ProcessHeap)> + '_ {
        self.processes.iter().map(|(process, heap)| (*process, heap))
    }
}

impl ProcessHeap {
    /// Returns the heap with which a fork of the process begins.
    fn copied(mut self, at: Nanos) -> Self {
        for row in self.rows.values_mut() {
            *row = HeapRow { live: row.live, since: row.since, every: POINT_EVERY, ..HeapRow::default() };
            row.points.push((at, row.live));
        }
        self.rows.retain(|_, row| row.live > 0);
        Self { peak: self.counted, peak_at: at, peak_number: 1, ended: None, ..self }
    }
}
