//! Names of native functions: by the symbol tables and the debug information of files, and by the maps that processes
//! keep of code that they make themselves.
//!
//! Names are looked up beside the work, for addresses that come up for the first time. Whoever is watched has written
//! the files, so nothing in them is believed: they are read, not mapped, in pieces, up to limits, without recursion.

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

/// A name is cut behind so many bytes.
const NAME_MAX: usize = 1024;
/// Addresses whose names are remembered.
const ADDRESSES_MAX: usize = 16_384;
/// Files whose tables are remembered, and what these take at the most.
const FILES_MAX: usize = 64;
const FILES_BYTES_MAX: usize = 8 << 20;
/// Files whose numbers are remembered, so that their addresses' names are found when their tables are not any more.
const NUMBERS_MAX: usize = 4096;

/// A file whose functions are asked for.
#[derive(Debug)]
pub struct Source {
    pub id: FileId,
    pub file: Arc<File>,
    /// As the process sees it.
    pub path: PathBuf,
    /// `/proc/PID/root`, under which the process's own debug files are.
    pub root: PathBuf,
}

/// A function at an address, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub function: Arc<str>,
    pub file: Option<Arc<str>>,
    pub line: Option<u32>,
}

/// A place in a file's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// Link-time.
    Address(u64),
    Offset(u64),
}

/// What was read of a file.
#[derive(Debug, Default)]
struct Known {
    number: u64,
    segments: Segments,
    symbols: Symbols,
    stubs: Stubs,
    dwarf: Option<Dwarf>,
    debug_file: Option<File>,
    /// Which of these are of the debug file.
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
        // The source's bare name tells less than a symbol that says in which namespace and type it is.
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

/// Looks names up, and remembers them. What it takes has a bound.
#[derive(Debug)]
pub struct Names {
    /// The last is the one that was used last.
    files: Vec<Known>,
    /// Files by number, also those of which nothing else is remembered.
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
    /// The functions at link-time addresses of a file: none where the file tells none, several where functions are
    /// inlined into another, the outermost first. An address after a call is to be one less than the return address.
    pub fn look_up(&mut self, source: &Source, addresses: &[u64]) -> Vec<Vec<Name>> {
        self.look_up_places(source, addresses.iter().map(|address| Place::Address(*address)))
    }

    /// As [`Self::look_up`], by where in the file the code is.
    pub fn look_up_offsets(&mut self, source: &Source, offsets: &[u64]) -> Vec<Vec<Name>> {
        self.look_up_places(source, offsets.iter().map(|offset| Place::Offset(*offset)))
    }

    fn look_up_places(&mut self, source: &Source, places: impl Iterator<Item = Place> + Clone) -> Vec<Vec<Name>> {
        let number = self.number(source);
        // Most questions are answered without the file.
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

/// `None` where a parser panicked, which those of other crates do on sums that do not fit, in builds that check.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// The name of a function as it is shown.
fn shown(name: String) -> Arc<str> {
    let mut name = guarded(|| demangle::demangle(&name)).flatten().unwrap_or(name);
    truncate(&mut name, NAME_MAX);
    Arc::from(name)
}

/// Cuts a text behind `length` bytes, or a little before.
fn truncate(text: &mut String, length: usize) {
    text.truncate(text.floor_char_boundary(length));
}
