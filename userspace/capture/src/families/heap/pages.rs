//! The sampled pages and the blocks of one process.
//!
//! A page and a block are reported once their stacks have names. What becomes of them before that is kept until then,
//! because nothing may be freed before it exists.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use pyobs_model::{Nanos, ProcessRef};

use crate::machine::living_thread;

pub const PAGE: u64 = 4096;
/// Bits of an entry in `/proc/PID/pagemap`: resident, and of a file or shared
/// (<https://github.com/torvalds/linux/blob/v6.1/Documentation/admin-guide/mm/pagemap.rst>).
const RESIDENT: u64 = 1 << 63;
const OF_A_FILE: u64 = 1 << 61;
/// Bounds what is kept of a process. Further pages and blocks are not followed, so they count until the process ends.
const KEPT_MAX: usize = 1 << 16;

/// Something that was sampled: a page, or the beginning of a block.
#[derive(Clone, Copy, Debug)]
struct Sampled {
    at: Nanos,
    end: u64,
    /// Whether it was reported.
    is_named: bool,
}

#[derive(Debug)]
pub struct Pages {
    pub process: ProcessRef,
    pages: BTreeMap<u64, Sampled>,
    blocks: BTreeMap<u64, Sampled>,
    /// What was freed before it had names, by address and time of the sample: when it was freed.
    freed: BTreeMap<(u64, Nanos), Nanos>,
    /// The last growth that was reported: from how many bytes, and when.
    last: (u64, Nanos),
}

impl Pages {
    pub fn new(process: ProcessRef) -> Self {
        let (pages, blocks, freed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { process, pages, blocks, freed, last: (0, Nanos(0)) }
    }

    /// Returns the pages and blocks with which a fork of the process begins.
    pub fn copied(&self, process: ProcessRef) -> Self {
        let named = |all: &BTreeMap<u64, Sampled>| {
            all.iter().filter(|(_, it)| it.is_named).map(|(address, it)| (*address, *it)).collect()
        };
        Self { pages: named(&self.pages), blocks: named(&self.blocks), ..Self::new(process) }
    }

    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.blocks.is_empty()
    }

    pub fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().copied()
    }

    /// Whether a sample counts. Threads that fault at once may both take one for the same growth.
    pub fn is_new_growth(&mut self, from: u64, at: Nanos) -> bool {
        const ONE: Nanos = Nanos(1_000_000);
        let is_twin = self.last.0 == from && at < self.last.1.saturating_add(ONE);
        self.last = (from, at);
        !is_twin
    }

    pub fn touch(&mut self, at: Nanos, address: u64) {
        if self.pages.len() < KEPT_MAX {
            self.pages.insert(address, Sampled { at, end: address + PAGE, is_named: false });
        }
    }

    pub fn map(&mut self, at: Nanos, address: u64, bytes: u64) {
        if self.blocks.len() < KEPT_MAX {
            self.blocks.insert(address, Sampled { at, end: address.saturating_add(bytes), is_named: false });
        }
    }

    /// The page has names now. Returns when it was freed, if it was.
    pub fn name_page(&mut self, at: Nanos, address: u64) -> Option<Nanos> {
        name(&mut self.pages, address, at);
        self.freed.remove(&(address, at))
    }

    /// The same for a block.
    pub fn name_block(&mut self, at: Nanos, address: u64) -> Option<Nanos> {
        name(&mut self.blocks, address, at);
        self.freed.remove(&(address, at))
    }

    /// The memory in a range is gone. Returns the pages that were sampled there; `None` if nothing was known of it.
    pub fn free(&mut self, range: &Range<u64>, at: Nanos) -> Option<Vec<u64>> {
        let pages: Vec<u64> = self.pages.range(range.clone()).map(|(address, _)| *address).collect();
        for address in &pages {
            if let Some(page) = self.pages.remove(address)
                && !page.is_named
            {
                self.freed.insert((*address, page.at), at);
            }
        }
        let overlapping = self.blocks.range(..range.end).rev().take_while(|(_, block)| block.end > range.start);
        let overlapping: Vec<(u64, Sampled)> = overlapping.map(|(start, block)| (*start, *block)).collect();
        let is_known = !pages.is_empty() || !overlapping.is_empty();
        let is_one_page = range.end - range.start <= PAGE;
        for (start, block) in overlapping.into_iter().filter(|_| !is_one_page) {
            self.cut(start, block, range, at);
        }
        is_known.then_some(pages)
    }

    /// Keeps what lies outside the range.
    fn cut(&mut self, start: u64, block: Sampled, range: &Range<u64>, at: Nanos) {
        self.blocks.remove(&start);
        if start < range.start {
            self.blocks.insert(start, Sampled { end: range.start, ..block });
        }
        if block.end > range.end {
            self.blocks.insert(range.end, block);
        }
        if !block.is_named && range.start <= start && block.end <= range.end {
            self.freed.insert((start, block.at), at);
        }
    }

    /// The memory in a range is elsewhere. Returns the pages that have moved; `None` if nothing was known of the range.
    pub fn shift(&mut self, range: &Range<u64>, to: u64, at: Nanos) -> Option<Vec<u64>> {
        let before: Vec<(u64, Sampled)> =
            self.pages.range(range.clone()).map(|(place, page)| (*place, *page)).collect();
        let moved = self.free(range, at)?;
        for (place, page) in before.into_iter().filter(|(_, page)| page.is_named) {
            let place = to.saturating_add(place - range.start);
            self.pages.insert(place, Sampled { end: place.saturating_add(PAGE), ..page });
        }
        Some(moved)
    }

    /// Lists the sampled pages that the process no longer has; `None` if they cannot be looked up.
    pub fn gone(&self, pid: u32) -> Option<Vec<u64>> {
        let pagemap = File::open(format!("/proc/{}/pagemap", living_thread(pid))).ok()?;
        let mut gone = Vec::new();
        for address in self.pages.keys() {
            let mut entry = [0; 8];
            pagemap.read_exact_at(&mut entry, address / PAGE * 8).ok()?;
            let entry = u64::from_ne_bytes(entry);
            if entry & RESIDENT == 0 || entry & OF_A_FILE != 0 {
                gone.push(*address);
            }
        }
        Some(gone)
    }
}

fn name(all: &mut BTreeMap<u64, Sampled>, address: u64, at: Nanos) {
    if let Some(sampled) = all.get_mut(&address).filter(|sampled| sampled.at == at) {
        sampled.is_named = true;
    }
}
