//! Native code: how to step from a frame to its caller, and what functions are called.
//!
//! The kernel side walks a native stack by tables ([`pyobs_abi::unwind`]), which [`table`] makes of a file's call frame
//! information, one row at a time by [`rules`]; [`builder`] does so beside the work, [`store`] keeps them where the
//! kernel side finds them. [`Native`] brings these together.

pub mod builder;
pub mod images;
pub mod namer;
pub mod names;
mod ranges;
pub mod rules;
mod seat;
pub mod store;
pub mod table;
mod table_allocator;

use foldhash::HashMap;
use pyobs_abi::unwind;

use self::builder::{Builder, Built, From};
use self::images::{Image, Numbers};
use self::store::{MappingTable, Placed, Tables};
use crate::files::{self, FileId};
use crate::kernel::cost::ThreadTime;
use crate::memory::{Memory, ProcessMemory};
use crate::process_maps::{Mapping, Mappings};

/// The kernel's code in user space has two pages, or a few.
const VDSO_MAX: u64 = 64 << 10;

/// Everything that the kernel side needs to step through native code.
pub struct Native {
    numbers: Numbers,
    tables: Tables,
    mappings: MappingTable,
    builder: Builder,
    /// By number, whether its table is under way.
    asked: HashMap<u32, bool>,
    /// Tables for which others make room.
    waiting: Vec<Built>,
}

impl Native {
    pub fn new(mut tables: Tables, mappings: MappingTable) -> std::io::Result<Self> {
        // Where that cannot be set, stacks end at the first frame of a JIT.
        let _ = tables.chain_by_frame_pointers(unwind::FILE_ANONYMOUS);
        // Where there is no room, each table says so.
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

    /// What the making of tables has cost.
    pub fn thread_time(&self) -> ThreadTime {
        self.builder.thread_time()
    }

    /// Tells the kernel side the mappings of a process; `None` where there is no room.
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

    /// Takes numbers back from files that nothing maps any more, when there are no others.
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

    /// Asks for the tables of all files that a process maps.
    pub fn want_all(&mut self, pid: u32, mappings: &Mappings) {
        for mapping in mappings.iter() {
            self.want(pid, mapping);
        }
    }

    /// Asks for the table of a file, unless it is there or under way.
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
        let from = match image {
            Image::Vdso => {
                let mut image = vec![0; mapping.end.saturating_sub(mapping.start).min(VDSO_MAX) as usize];
                ProcessMemory::new(pid).read(mapping.start, &mut image).ok().map(|()| From::Memory(image))
            }
            _ => match files::open(pid, mapping) {
                Ok(Some((file, size))) => Some(From::File(file, size)),
                // No library, so that nothing else can be known of it.
                Ok(None) => Some(From::Memory(Vec::new())),
                // It may be there next time.
                Err(_) => None,
            },
        };
        if let Some(from) = from {
            self.builder.ask(number, from);
            self.asked.insert(number, true);
        }
    }

    /// Takes away what was made of a file that is another now.
    pub fn forget(&mut self, file: FileId) {
        let number = self.numbers.number(Image::File(file));
        if Numbers::has_number(number) {
            self.tables.forget(number);
            self.asked.remove(&number);
        }
    }

    /// Puts tables that are done in their place.
    pub fn settle(&mut self) {
        let mut built = std::mem::take(&mut self.waiting);
        built.extend(self.builder.done());
        for built in built {
            let installed = match &built.table {
                Some(table) => self.tables.install(built.number, &table.words, table.pages, table.code.origin()),
                None => self.tables.chain_by_frame_pointers(built.number).map(|()| true),
            };
            // A table without room is missing, as the samples say that need it.
            if installed.unwrap_or(true) {
                self.asked.insert(built.number, false);
            } else {
                self.waiting.push(built);
            }
        }
    }

    /// Whether tables are under way.
    pub fn is_busy(&self) -> bool {
        self.asked.values().any(|under_way| *under_way)
    }

    /// Bytes that tables take in the kernel.
    pub fn bytes(&self) -> u64 {
        self.tables.bytes()
    }
}
