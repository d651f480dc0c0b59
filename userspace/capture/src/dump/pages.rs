//! The memory of a process in whole pages, each read once. A stack's frames and code objects lie close together, so
//! most reads need no system call.

use std::cell::RefCell;
use std::io;

use foldhash::HashMap;

use crate::memory::{Memory, ProcessMemory, Range};

const PAGE: u64 = 4096;
/// Pages below the requested one that are read with it: the frames of callers lie there.
const BEFORE: u64 = 3;
/// Bounds the pages kept of one process.
const PAGES_MAX: usize = 8192;
/// Larger reads go to the process directly.
const READ_MAX: usize = 2 * PAGE as usize;

pub struct Pages {
    memory: ProcessMemory,
    pages: RefCell<HashMap<u64, Box<[u8]>>>,
    /// The same pages a moment earlier.
    before: RefCell<HashMap<u64, Box<[u8]>>>,
}

impl Pages {
    pub fn new(pid: u32) -> Self {
        Self { memory: ProcessMemory::new(pid), pages: RefCell::default(), before: RefCell::default() }
    }

    /// Reads all pages again, twice in one system call: snapshots of the places that a stack led to the last time.
    pub fn renew(&self) {
        let (mut pages, mut before) = (self.pages.borrow_mut(), self.before.borrow_mut());
        before.clone_from(&pages);
        let once = before.iter_mut().map(|(page, bytes)| (*page, &mut **bytes));
        let again = pages.iter_mut().map(|(page, bytes)| (*page, &mut **bytes));
        let mut ranges: Vec<Range<'_>> = once.chain(again).collect();
        if self.memory.read_many(&mut ranges).is_err() {
            pages.clear();
            before.clear();
        }
    }

    /// The earlier one of the two snapshots.
    pub fn earlier(&self) -> Self {
        Self { memory: self.memory, pages: self.before.clone(), before: RefCell::default() }
    }

    /// Whether these words were the same in both snapshots.
    pub fn were_same(&self, words: &[(u64, u64)]) -> bool {
        let before = self.before.borrow();
        words.iter().all(|(address, word)| {
            let (page, offset) = (address & !(PAGE - 1), (address % PAGE) as usize);
            let bytes = before.get(&page).and_then(|bytes| bytes.get(offset..offset + 8));
            bytes.is_some_and(|bytes| bytes == word.to_ne_bytes())
        })
    }

    /// The process itself, without what was read before.
    pub fn now(&self) -> ProcessMemory {
        self.memory
    }

    fn fetch(&self, page: u64) -> io::Result<()> {
        let mut pages = self.pages.borrow_mut();
        if pages.len() >= PAGES_MAX {
            pages.clear();
        }
        let first = page.saturating_sub(BEFORE * PAGE);
        let mut bytes = vec![0; (page - first + PAGE) as usize];
        if page > first && self.memory.read(first, &mut bytes).is_ok() {
            for (number, bytes) in bytes.chunks(PAGE as usize).enumerate() {
                pages.entry(first + number as u64 * PAGE).or_insert_with(|| bytes.into());
            }
            return Ok(());
        }
        let mut bytes = vec![0; PAGE as usize];
        self.memory.read(page, &mut bytes)?;
        pages.insert(page, bytes.into());
        Ok(())
    }
}

impl Memory for Pages {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        if into.len() > READ_MAX {
            return self.memory.read(address, into);
        }
        let (mut at, mut done) = (address, 0);
        while done < into.len() {
            let (page, offset) = (at & !(PAGE - 1), (at % PAGE) as usize);
            let length = (PAGE as usize - offset).min(into.len() - done);
            if !self.pages.borrow().contains_key(&page) {
                self.fetch(page)?;
            }
            if let Some(bytes) = self.pages.borrow().get(&page) {
                into[done..done + length].copy_from_slice(&bytes[offset..offset + length]);
            }
            done += length;
            at = at.checked_add(length as u64).ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        }
        Ok(())
    }

    fn read_many(&self, ranges: &mut [Range<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|(address, into)| self.read(*address, into))
    }
}
