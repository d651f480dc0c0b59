//! Names of native functions, from files' symbol tables and debug information, and from the maps that
//! processes write for code they generate.
//!
//! Another thread looks names up, for addresses seen for the first time. The watched user may have written
//! the files, so nothing in them is trusted: they are read instead of mapped, in pieces, up to limits,
//! without recursion.

mod debug_file;
pub mod demangle;
mod dwarf;
mod inside;
pub mod perf_map;
mod sections;
mod stubs;
mod symbols;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use foldhash::HashSet;
use object::elf;

use self::dwarf::{Dwarf, Frame, Recently};
use self::perf_map::PerfMaps;
use self::sections::{Sections, Segments};
use self::stubs::Stubs;
use self::symbols::Symbols;
use crate::cache::Cache;
use crate::files::{FileId, Stamp};

/// Stands for a function without a name.
pub const NAMELESS: &str = "<native>";
/// Longer names are truncated.
const NAME_MAX: usize = 1024;
/// Addresses whose names are cached; the least recently used are evicted.
const ADDRESSES_MAX: usize = 16_384;
/// Files whose tables are cached, and the bytes these may use.
const FILES_MAX: usize = 64;
const FILES_BYTES_MAX: usize = 4 << 20;
/// Files whose numbers are kept, so that cached names are found after a file's tables were dropped.
const NUMBERS_MAX: usize = 4096;

/// A file to look functions up in.
#[derive(Debug)]
pub struct Source {
    pub id: FileId,
    pub file: Arc<File>,
    /// As the process sees it.
    pub path: PathBuf,
    /// `/proc/PID/root`, which contains the process's own debug files.
    pub root: PathBuf,
}

/// A function at an address, with the line in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub function: Arc<str>,
    pub file: Option<Arc<str>>,
    pub line: Option<u32>,
}

/// A place in a file's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// Link-time address.
    Address(u64),
    Offset(u64),
}

/// The cached tables of a file.
#[derive(Debug, Default)]
struct Known {
    number: u64,
    segments: Segments,
    symbols: Symbols,
    stubs: Stubs,
    dwarf: Option<Dwarf>,
    debug_file: Option<File>,
    /// Which of these come from the debug file.
    symbols_are_apart: bool,
    dwarf_is_apart: bool,
}

impl Known {
    fn of(source: &Source, number: u64) -> Self {
        let file = &*source.file;
        let Some(sections) = Sections::of(file) else { return Self { number, ..Self::default() } };
        let has_symbols = |sections: &Sections| {
            sections.iter().any(|section| section.kind == elf::SHT_SYMTAB && !section.extent.is_empty())
        };
        let has_debug = |sections: &Sections| !sections.named(".debug_info").is_empty();
        let is_complete = has_symbols(&sections) && has_debug(&sections);
        let debug_file = if is_complete { None } else { debug_file::find(file, &sections, &source.path, &source.root) };
        let apart = debug_file.as_ref().and_then(Sections::of).unwrap_or_default();
        let symbols_are_apart = has_symbols(&apart);
        let dwarf_is_apart = has_debug(&apart);
        let at = |is_apart| match &debug_file {
            Some(debug_file) if is_apart => (debug_file, &apart),
            _ => (file, &sections),
        };
        let (symbol_file, symbol_sections) = at(symbols_are_apart);
        let (dwarf_file, dwarf_sections) = at(dwarf_is_apart);
        Self {
            number,
            segments: Segments::of(file).unwrap_or_default(),
            symbols: Symbols::of(symbol_file, symbol_sections),
            stubs: Stubs::of(&sections),
            dwarf: Dwarf::of(dwarf_file, dwarf_sections, number),
            symbols_are_apart,
            dwarf_is_apart,
            debug_file: debug_file.filter(|_| symbols_are_apart || dwarf_is_apart),
        }
    }

    fn bytes(&self) -> usize {
        self.symbols.bytes() + self.dwarf.as_ref().map_or(0, Dwarf::bytes)
    }

    /// The functions at an address, outermost first.
    fn find(&mut self, file: &File, recently: &mut Recently, address: u64) -> Vec<(Arc<str>, dwarf::Place)> {
        let at = |is_apart| self.debug_file.as_ref().filter(|_| is_apart).unwrap_or(file);
        let symbol = self.symbols.find(at(self.symbols_are_apart), address);
        let symbol = symbol.or_else(|| self.stubs.find(file, address));
        let dwarf_file = at(self.dwarf_is_apart);
        let mut frames = self.dwarf.as_mut().map(|dwarf| dwarf.find(dwarf_file, recently, address)).unwrap_or_default();
        if frames.is_empty() {
            frames.push(Frame { function: None, place: dwarf::Place::default() });
        }
        let outermost = frames[0].function.as_ref();
        // A symbol with namespace and type says more than the source's bare name.
        let is_better =
            |symbol: &str| outermost.is_none_or(|function| !function.is_mangled && demangle::is_mangled(symbol));
        let symbol = symbol.filter(|symbol| is_better(symbol)).map(shown);
        let names = frames.into_iter().enumerate().filter_map(|(depth, frame)| {
            let name = symbol.clone().filter(|_| depth == 0).or(frame.function.map(|function| function.name))?;
            Some((name, frame.place))
        });
        names.collect()
    }
}

/// Looks names up and caches them, in bounded memory.
#[derive(Debug)]
pub struct Names {
    /// The most recently used last.
    files: Vec<Known>,
    /// Numbers of files, including those whose tables were dropped.
    numbers: Cache<(FileId, Option<Stamp>), u64>,
    count: u64,
    recently: Recently,
    /// By number and place.
    found: Cache<(u64, Place), Box<[Name]>>,
    texts: HashSet<Arc<str>>,
    maps: PerfMaps,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            numbers: Cache::new(NUMBERS_MAX),
            count: 0,
            recently: Recently::default(),
            found: Cache::new(ADDRESSES_MAX),
            texts: HashSet::default(),
            maps: PerfMaps::default(),
        }
    }
}

impl Names {
    /// The functions at link-time addresses of a file: none if the file names none, several if calls are
    /// inlined, the outermost first. For a return address, pass the address minus one.
    pub fn look_up(&mut self, source: &Source, addresses: &[u64]) -> Vec<Vec<Name>> {
        self.look_up_places(source, addresses.iter().map(|address| Place::Address(*address)))
    }

    /// Like [`Self::look_up`], by offset in the file.
    pub fn look_up_offsets(&mut self, source: &Source, offsets: &[u64]) -> Vec<Vec<Name>> {
        self.look_up_places(source, offsets.iter().map(|offset| Place::Offset(*offset)))
    }

    fn look_up_places(&mut self, source: &Source, places: impl Iterator<Item = Place> + Clone) -> Vec<Vec<Name>> {
        let number = self.number(source);
        // Most questions are answered from the cache, without the file.
        if let Some(names) = places.clone().map(|place| Some(self.found.get(&(number, place))?.to_vec())).collect() {
            return names;
        }
        let mut known = match self.files.iter().position(|known| known.number == number) {
            Some(index) => self.files.remove(index),
            None => guarded(|| Known::of(source, number)).unwrap_or_else(|| Known { number, ..Known::default() }),
        };
        let names = places.map(|place| self.name(source, &mut known, place)).collect();
        self.files.push(known);
        self.make_room();
        names
    }

    /// The functions at addresses of a process where no file is mapped.
    pub fn look_up_jit(&mut self, pid: u32, addresses: &[u64]) -> Vec<Vec<Name>> {
        let names = self.maps.look_up(pid, addresses);
        let mut known = |name: String| Name { function: self.shared(Arc::from(name)), file: None, line: None };
        names.into_iter().map(|name| name.map(&mut known).into_iter().collect()).collect()
    }

    fn number(&mut self, source: &Source) -> u64 {
        let stamp = source.file.metadata().ok().map(|metadata| Stamp::of(&metadata));
        let key = (source.id, stamp);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        self.count += 1;
        self.numbers.insert(key, self.count);
        self.count
    }

    fn name(&mut self, source: &Source, known: &mut Known, place: Place) -> Vec<Name> {
        if let Some(found) = self.found.get(&(known.number, place)) {
            return found.to_vec();
        }
        let address = match place {
            Place::Address(address) => Some(address),
            Place::Offset(offset) => known.segments.address(offset),
        };
        let find = |address| guarded(|| known.find(&source.file, &mut self.recently, address));
        let found = address.map_or_else(|| Some(Vec::new()), find);
        let found = found.unwrap_or_else(|| {
            known.dwarf = None;
            Vec::new()
        });
        let names: Vec<Name> = found
            .into_iter()
            .map(|(name, (file, line))| Name {
                function: self.shared(name),
                file: file.map(|file| self.shared(file)),
                line,
            })
            .collect();
        self.found.insert((known.number, place), names.clone().into_boxed_slice());
        names
    }

    fn make_room(&mut self) {
        while self.files.len() > FILES_MAX
            || self.files.len() > 1 && self.files.iter().map(Known::bytes).sum::<usize>() > FILES_BYTES_MAX
        {
            self.files.remove(0);
        }
        if self.texts.len() > 2 * ADDRESSES_MAX {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
        }
    }

    fn shared(&mut self, text: Arc<str>) -> Arc<str> {
        if let Some(known) = self.texts.get(&text) {
            return Arc::clone(known);
        }
        self.texts.insert(Arc::clone(&text));
        text
    }
}

/// `None` if a parser panicked. Those of other crates panic on arithmetic overflow in builds that check it.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// A function's name as it is shown.
fn shown(name: String) -> Arc<str> {
    let mut name = guarded(|| demangle::demangle(&name)).flatten().unwrap_or(name);
    truncate(&mut name, NAME_MAX);
    Arc::from(name)
}

/// Truncates a text to at most `length` bytes, at a character boundary.
fn truncate(text: &mut String, length: usize) {
    text.truncate(text.floor_char_boundary(length));
}
