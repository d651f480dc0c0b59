//! Native code: how to step from a frame to its caller, and which functions are called.
//!
//! The kernel side walks native stacks with tables ([`pyobs_abi::unwind`]). [`table`] makes them from a
//! file's call frame information, row by row with [`rules`]. [`builder`] does so in its own thread, and
//! [`store`] puts them into the kernel side's maps. [`Native`] combines these.
//!
//! `pyobs dump` walks the stacks of threads that sleep from outside ([`walk`]). It needs few rows of a file, which
//! [`lookup`] finds without making the whole table.

pub mod builder;
mod contents;
pub mod images;
pub mod lookup;
pub mod merge;
pub mod namer;
pub mod names;
mod ranges;
pub mod rules;
mod seat;
pub mod store;
pub mod table;
mod table_allocator;
pub mod walk;

use foldhash::HashMap;
use pyobs_abi::unwind;

use self::builder::{Builder, Built};
use self::contents::Contents;
use self::images::{Image, Numbers};
use self::store::{MappingTable, Placed, Tables};
use crate::files::FileId;
use crate::kernel::cost::ThreadTime;
use crate::process_maps::{Mapping, Mappings};

/// Everything that the kernel side needs to step through native code.
pub struct Native {
    numbers: Numbers,
    tables: Tables,
    mappings: MappingTable,
    builder: Builder,
    /// By number: whether its table is being made.
    asked: HashMap<u32, bool>,
    /// Tables that wait until others are evicted.
    waiting: Vec<Built>,
}

impl Native {
    pub fn new(mut tables: Tables, mappings: MappingTable) -> std::io::Result<Self> {
        // If this fails, stacks end at the first JIT frame.
        let _ = tables.chain_by_frame_pointers(unwind::FILE_ANONYMOUS);
        // Failure is reported later, by each table without room.
        let _ = tables.reserve();
        Ok(Self {
            numbers: Numbers::default(),
            tables,
            mappings,
            builder: Builder::start()?,
            asked: HashMap::default(),
            waiting: Vec::new(),
        })
    }

    /// CPU time used to make tables.
    pub fn thread_time(&self) -> ThreadTime {
        self.builder.thread_time()
    }

    /// Tells the kernel side the mappings of a process; `None` if there is no room.
    pub fn place(&mut self, mappings: &Mappings) -> Option<Placed> {
        self.renew_numbers();
        let mappings: Vec<_> = mappings
            .iter()
            .take(unwind::PROCESS_MAPPINGS_MAX as usize)
            .map(|mapping| unwind::Mapping {
                start: mapping.start,
                end: mapping.end,
                base: mapping.start.wrapping_sub(mapping.offset),
                file: self.numbers.number(Image::of(mapping)),
                padding: 0,
            })
            .collect();
        let files = self.numbers.hold(mappings.iter().map(|mapping| mapping.file).collect());
        self.mappings.place(&mappings, files)
    }

    /// When numbers are used up, takes them back from files that no process maps.
    fn renew_numbers(&mut self) {
        if !self.numbers.are_used_up() {
            return;
        }
        let asked = &self.asked;
        for number in self.numbers.take_back(|number| asked.get(&number) == Some(&true)) {
            self.tables.forget(number);
            self.asked.remove(&number);
        }
    }

    /// Requests the tables of all files that a process maps.
    pub fn want_all(&mut self, pid: u32, mappings: &Mappings) {
        for mapping in mappings.iter() {
            self.want(pid, mapping);
        }
    }

    /// Requests a file's table, unless it exists or is being made.
    pub fn want(&mut self, pid: u32, mapping: &Mapping) {
        let image = Image::of(mapping);
        let number = self.numbers.number(image);
        let is_known = match self.asked.get(&number) {
            Some(under_way) => *under_way || self.tables.has(number),
            None => false,
        };
        if is_known || !Numbers::has_number(number) {
            return;
        }
        // A failure is not cached: it may be readable next time.
        if let Ok(contents) = Contents::of(pid, mapping) {
            self.builder.ask(number, contents);
            self.asked.insert(number, true);
        }
    }

    /// Drops the table of a file that was replaced.
    pub fn forget(&mut self, file: FileId) {
        let number = self.numbers.number(Image::File(file));
        if Numbers::has_number(number) {
            self.tables.forget(number);
            self.asked.remove(&number);
        }
    }

    /// Installs finished tables.
    pub fn settle(&mut self) {
        let mut built = std::mem::take(&mut self.waiting);
        built.extend(self.builder.done());
        for built in built {
            let installed = match &built.table {
                Some(table) => self.tables.install(built.number, &table.words, table.pages, table.code.origin()),
                None => self.tables.chain_by_frame_pointers(built.number).map(|()| true),
            };
            // A table without room stays missing, and the samples that need it say so.
            if installed.unwrap_or(true) {
                self.asked.insert(built.number, false);
            } else {
                self.waiting.push(built);
            }
        }
    }

    /// Bytes of kernel memory that tables use.
    pub fn bytes(&self) -> u64 {
        self.tables.bytes()
    }
}
