//! The kernel side's maps of unwind tables and mappings, and how their space is allocated.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::rc::Rc;

use aya::maps::{Array, ArrayOfMaps, MapData, MapError};
use aya_obj::Map;
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_ARRAY;
use pyobs_abi::unwind::{CHUNK_ROWS, CHUNKS_MAX, File, MAPPINGS_MAX, Mapping, state};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::images::Held;
use super::ranges::Ranges;
use super::table_allocator::{Room, TableAllocator};

/// `BPF_F_MMAPABLE` (<https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/bpf.h>).
const MMAPABLE: u32 = 1 << 10;
const ARRAY: u32 = BPF_MAP_TYPE_ARRAY as u32;
/// The tables of CPython 3.12 and its libraries have 97,000 rows (docs/BENCHMARKS.md, unwind tables).
const CHUNKS_AT_START: u32 = 2;
const CHUNK_BYTES: usize = CHUNK_ROWS as usize * 8;

/// Why a table could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("there is no room for a table of {0} rows")]
    Full(usize),
    #[error("the kernel refuses memory for unwind tables: {0}")]
    Map(#[from] MapError),
    #[error("the memory of an unwind table cannot be mapped: {0}")]
    Memory(#[from] rustix::io::Errno),
}

/// The tables of files.
pub struct Tables {
    chunks_by_number: ArrayOfMaps<MapData, MapData>,
    chunks: Vec<MapData>,
    files: Array<MapData, File>,
    table_allocator: TableAllocator,
}

impl Tables {
    pub fn new(rows: ArrayOfMaps<MapData, MapData>, files: Array<MapData, File>) -> Self {
        let table_allocator = TableAllocator::new(CHUNK_ROWS * CHUNKS_MAX);
        Self { chunks_by_number: rows, chunks: Vec::new(), files, table_allocator }
    }

    /// Bytes of kernel memory that tables use.
    pub fn bytes(&self) -> u64 {
        (self.chunks.len() * CHUNK_BYTES) as u64
    }

    /// Installs a file's table. Evicts the least recently used ones if necessary; returns false if their
    /// space is not free yet.
    pub fn install(&mut self, file: u32, words: &[u64], pages: u32, origin: u64) -> Result<bool, StoreError> {
        let length = u32::try_from(words.len()).map_err(|_| StoreError::Full(words.len()))?;
        let files = &self.files;
        let used = |file| files.get(&file, 0).map_or(0, |entry| entry.used);
        let mut taken = Vec::new();
        let room = self.table_allocator.place(file, length, used, |file| taken.push(file));
        for file in taken {
            self.files.set(file, File::default(), 0)?;
        }
        let start = match room {
            Room::At(start) => start,
            Room::Soon => return Ok(false),
            Room::Never => return Err(StoreError::Full(words.len())),
        };
        self.write(start, words)?;
        self.files.set(file, File { state: state::TABLE, pages, start, padding: 0, origin, used: 0 }, 0)?;
        Ok(true)
    }

    /// Removes what the kernel side knows about a file.
    pub fn forget(&mut self, file: u32) {
        // The rows can be reused only if the kernel side no longer refers to them.
        if self.files.set(file, File::default(), 0).is_ok() {
            self.table_allocator.take_away(file);
        }
    }

    /// Marks a file without tables, whose code uses rbp as frame pointer or cannot be walked.
    pub fn chain_by_frame_pointers(&mut self, file: u32) -> Result<(), StoreError> {
        Ok(self.files.set(file, File { state: state::FRAME_POINTERS, ..File::default() }, 0)?)
    }

    pub fn has(&self, file: u32) -> bool {
        self.table_allocator.has(file)
    }

    fn write(&mut self, start: u32, words: &[u64]) -> Result<(), StoreError> {
        let mut number = start;
        let mut rest = words;
        while !rest.is_empty() {
            let (chunk, at) = (number / CHUNK_ROWS, number % CHUNK_ROWS);
            let (part, later) = rest.split_at(rest.len().min((CHUNK_ROWS - at) as usize));
            self.fill(chunk, at as usize, part)?;
            number += part.len() as u32;
            rest = later;
        }
        Ok(())
    }

    /// Reserves room for an interpreter's tables. The kernel waits for all CPUs when a map is put into
    /// another (`maybe_wait_bpf_programs` in
    /// <https://github.com/torvalds/linux/blob/v6.1/kernel/bpf/syscall.c>). This takes about 15 ms, a third of
    /// the life of a short command.
    pub fn reserve(&mut self) -> Result<(), StoreError> {
        self.reach(CHUNKS_AT_START - 1)
    }

    /// Creates the chunks up to this number.
    fn reach(&mut self, number: u32) -> Result<(), StoreError> {
        while self.chunks.len() <= number as usize {
            let chunk = MapData::create(Map::new_from_params(ARRAY, 4, 8, CHUNK_ROWS, MMAPABLE), "unwind_rows", None)?;
            self.chunks_by_number.set(self.chunks.len() as u32, &chunk, 0)?;
            self.chunks.push(chunk);
        }
        Ok(())
    }

    fn fill(&mut self, number: u32, at: usize, words: &[u64]) -> Result<(), StoreError> {
        self.reach(number)?;
        let chunk = self.chunks[number as usize].fd().as_fd();
        // Mapped only during the copy, so that it does not count as our memory.
        // SAFETY: a new mapping that nothing else refers to; `at` and the words lie in the chunk (`write`), whose
        // elements are adjacent words.
        unsafe {
            let to = mmap(
                std::ptr::null_mut(),
                CHUNK_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                chunk,
                0,
            )?;
            std::ptr::copy_nonoverlapping(words.as_ptr(), to.cast::<u64>().add(at), words.len());
            munmap(to, CHUNK_BYTES)?;
        }
        Ok(())
    }
}

/// The mappings of processes.
pub struct MappingTable {
    array: Array<MapData, Mapping>,
    ranges: Rc<RefCell<Ranges>>,
    sets: u32,
}

/// The place of a process's mappings; they are removed when this is dropped.
#[derive(Debug)]
pub struct Placed {
    pub start: u32,
    pub count: u32,
    /// Unique number of this set of mappings.
    pub set: u32,
    ranges: Rc<RefCell<Ranges>>,
    /// Keeps the files' numbers from being reused.
    _files: Held,
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.ranges.borrow_mut().give(self.start, self.count);
    }
}

impl MappingTable {
    pub fn new(array: Array<MapData, Mapping>) -> Self {
        Self { array, ranges: Rc::new(RefCell::new(Ranges::new(0, MAPPINGS_MAX))), sets: 0 }
    }

    /// `None` if the table is full.
    pub fn place(&mut self, mappings: &[Mapping], files: Held) -> Option<Placed> {
        let count = u32::try_from(mappings.len()).ok()?;
        let start = self.ranges.borrow_mut().take(count)?;
        self.sets = self.sets.wrapping_add(1).max(1);
        let placed = Placed { start, count, set: self.sets, ranges: Rc::clone(&self.ranges), _files: files };
        for (number, mapping) in (start..).zip(mappings) {
            self.array.set(number, *mapping, 0).ok()?;
        }
        Some(placed)
    }
}
