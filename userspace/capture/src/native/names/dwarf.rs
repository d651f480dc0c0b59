//! Functions, inlined calls and lines from debug information. A file is read unit by unit, as addresses are
//! looked up, and the cached units of all files together are bounded.
//!
//! The file is hostile input: everything in it is read once, without recursion, up to limits.

mod lines;
mod reader;
mod unit;

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use gimli::{AttributeValue, DebugAranges, LittleEndian};

pub use self::lines::Place;
use self::reader::{AbbreviationTables, Parts, Reader, Root};
use self::unit::Unit;
use super::demangle;
use super::sections::Sections;

use crate::cache::Cache;

/// Units listed per file; further ones are not found.
const UNITS_MAX: usize = 1 << 16;
/// Ranges of code, each belonging to one unit.
const COVERAGE_MAX: usize = 1 << 18;
const ARANGES_MAX: u64 = 16 << 20;
/// Units tried that claim the same address.
const CLAIMS_MAX: usize = 4;
/// Ranges before an address that are checked for one that extends to it.
const LOOK_BACK: usize = 64;
/// References followed to the entry with a function's name.
const HOPS_MAX: usize = 8;
/// Cached names of functions.
const FUNCTIONS_MAX: usize = 8192;
/// Bytes of one unit's tables; larger ones are not read.
const UNIT_BYTES_MAX: usize = 6 << 20;
/// Bytes of all units' tables; the oldest units are dropped, but the newest is kept whatever its size. Names are cached by
/// address, so a unit is needed again only for a new address.
const UNITS_BYTES_MAX: usize = 8 << 20;
/// After this much CPU time a file's debug information is not read further: the file is hostile or too large.
const TIME_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    length: u32,
    unit: u32,
}

/// An index of a file's debug information.
#[derive(Debug)]
pub struct Dwarf {
    /// Identifies the file in [`Recently`].
    number: u64,
    parts: Parts,
    /// Offsets in `.debug_info`.
    units: Vec<u64>,
    /// By address.
    coverage: Vec<Piece>,
    spent: Duration,
}

/// A function's name in the debug information.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: Arc<str>,
    /// Whether the name includes the namespace and type.
    pub is_mangled: bool,
}

/// A function at an address, with the line in it.
#[derive(Debug)]
pub struct Frame {
    pub function: Option<Function>,
    pub place: Place,
}

/// What was used most recently, of all files.
#[derive(Debug)]
pub struct Recently {
    units: Units,
    tables: AbbreviationTables,
    /// By file and entry.
    functions: Cache<(u64, u64), Option<Function>>,
}

impl Default for Recently {
    fn default() -> Self {
        Self { units: Units::default(), tables: AbbreviationTables::default(), functions: Cache::new(FUNCTIONS_MAX) }
    }
}

/// By file and offset.
#[derive(Debug, Default)]
struct Units {
    list: Vec<(u64, u64, Arc<Option<Unit>>)>,
    bytes: usize,
}

impl Units {
    /// A file's unit. Failed reads are cached too.
    fn get(&mut self, file: u64, offset: u64, read: impl FnOnce() -> Option<Unit>) -> Arc<Option<Unit>> {
        let known = self.list.iter().position(|(of, at, _)| (*of, *at) == (file, offset));
        let unit = match known {
            Some(index) => self.list.remove(index).2,
            None => {
                let unit = Arc::new(read().filter(|unit| unit.bytes() <= UNIT_BYTES_MAX));
                self.bytes += bytes(&unit);
                unit
            }
        };
        self.list.push((file, offset, Arc::clone(&unit)));
        while self.bytes > UNITS_BYTES_MAX && self.list.len() > 1 {
            let (_, _, oldest) = self.list.remove(0);
            self.bytes -= bytes(&oldest);
        }
        unit
    }
}

fn bytes(unit: &Option<Unit>) -> usize {
    64 + unit.as_ref().map_or(0, Unit::bytes)
}

impl Dwarf {
    /// `None` for a file without debug information.
    pub fn of(file: &File, sections: &Sections, number: u64) -> Option<Self> {
        let started = cpu_time();
        let parts = Parts::of(sections);
        if parts.info.is_empty() {
            return None;
        }
        let mut dwarf = Self { number, parts, units: Vec::new(), coverage: Vec::new(), spent: Duration::ZERO };
        dwarf.list_units(file, started);
        dwarf.spent = cpu_time().saturating_sub(started);
        Some(dwarf)
    }

    fn list_units(&mut self, file: &File, started: Duration) {
        let mut tables = AbbreviationTables::default();
        let mut reader = Reader::new(file, self.number, self.parts, &mut tables);
        let mut headers = Vec::new();
        let mut offset = 0;
        while let Some(header) = reader.header(offset).filter(|_| headers.len() < UNITS_MAX) {
            self.units.push(offset);
            headers.push(header);
            offset += header.length;
        }
        let mut is_covered = vec![false; self.units.len()];
        let aranges = self.parts.aranges;
        if aranges.length() <= ARANGES_MAX
            && let Some(bytes) = aranges.read(file, 0, ARANGES_MAX as usize)
        {
            let mut lists = DebugAranges::new(&bytes, LittleEndian).headers();
            while let Ok(Some(list)) = lists.next() {
                let Ok(unit) = self.units.binary_search(&(list.debug_info_offset().0 as u64)) else { continue };
                let mut entries = list.entries();
                while let Ok(Some(entry)) = entries.next() {
                    is_covered[unit] |= cover(&mut self.coverage, entry.address(), entry.length(), unit);
                }
            }
        }
        for (unit, header) in headers.iter().enumerate().filter(|(_, header)| header.has_code) {
            if is_covered[unit] || cpu_time().saturating_sub(started) > TIME_MAX {
                continue;
            }
            let Some(abbreviations) = reader.abbreviations(header.abbreviations) else { continue };
            let Some(ranges) = reader.unit_ranges(header, &abbreviations) else { continue };
            for range in ranges {
                cover(&mut self.coverage, range.start, range.end - range.start, unit);
            }
        }
        self.coverage.sort_unstable_by_key(|piece| (piece.start, piece.length));
        self.coverage.shrink_to_fit();
        self.units.shrink_to_fit();
    }

    /// The functions at an address, outermost first. The first may lack a name although its line is known.
    pub fn find(&mut self, file: &File, recently: &mut Recently, address: u64) -> Vec<Frame> {
        if self.spent > TIME_MAX {
            return Vec::new();
        }
        let started = cpu_time();
        let found = self.find_in_time(file, recently, address);
        self.spent += cpu_time().saturating_sub(started);
        found
    }

    fn find_in_time(&self, file: &File, recently: &mut Recently, address: u64) -> Vec<Frame> {
        let after = self.coverage.partition_point(|piece| piece.start <= address);
        let claims = self.coverage[..after].iter().rev().take(LOOK_BACK);
        let claims = claims.filter(|piece| address - piece.start < u64::from(piece.length));
        let claims: Vec<u64> = claims.take(CLAIMS_MAX).map(|piece| self.units[piece.unit as usize]).collect();
        let mut line = None;
        for offset in claims {
            let mut reader = Reader::new(file, self.number, self.parts, &mut recently.tables);
            let unit = recently.units.get(self.number, offset, || Unit::read(&mut reader, offset));
            let Some(unit) = &*unit else { continue };
            let (frames, place) = unit.find(address);
            if !frames.is_empty() {
                let mut function = |entry| self.function(file, recently, entry);
                return frames
                    .into_iter()
                    .map(|frame| Frame { function: function(frame.entry), place: frame.place })
                    .collect();
            }
            line = line.or(place);
        }
        line.map(|place| Frame { function: None, place }).into_iter().collect()
    }

    /// Size in memory in bytes, without the units.
    pub fn bytes(&self) -> usize {
        self.units.capacity() * size_of::<u64>() + self.coverage.capacity() * size_of::<Piece>()
    }

    fn function(&self, file: &File, recently: &mut Recently, entry: u64) -> Option<Function> {
        let key = (self.number, entry);
        if let Some(known) = recently.functions.get(&key) {
            return known.clone();
        }
        let function = self.name(file, &mut recently.tables, entry).map(|name| {
            let is_mangled = demangle::is_mangled(&name);
            Function { name: super::shown(name), is_mangled }
        });
        recently.functions.insert(key, function.clone());
        function
    }

    /// A function's name: the linkage name, which is complete, or else the source name.
    fn name(&self, file: &File, tables: &mut AbbreviationTables, entry: u64) -> Option<String> {
        let mut entry = entry;
        let mut name = None;
        for _ in 0..HOPS_MAX {
            let unit = self.units.partition_point(|offset| *offset <= entry).checked_sub(1)?;
            let mut reader = Reader::new(file, self.number, self.parts, tables);
            let header = reader.header(*self.units.get(unit)?)?;
            let abbreviations = reader.abbreviations(header.abbreviations)?;
            // Most names can be read without the unit's root entry.
            let text = |value| match value {
                AttributeValue::DebugStrOffsetsIndex(_) => {
                    reader.text(&reader.root(&header, &abbreviations)?, header.encoding.format, value)
                }
                _ => reader.text(&Root::default(), header.encoding.format, value),
            };
            let mut bytes = Vec::new();
            let mut next = None;
            for (attribute, value) in reader.entry(&header, entry, &abbreviations, &mut bytes)? {
                match (attribute, value) {
                    (gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name, value) => {
                        return text(value);
                    }
                    (gimli::DW_AT_name, value) if name.is_none() => {
                        name = text(value);
                    }
                    (gimli::DW_AT_abstract_origin | gimli::DW_AT_specification, AttributeValue::UnitRef(offset)) => {
                        next = header.offset.checked_add(offset.0 as u64);
                    }
                    (
                        gimli::DW_AT_abstract_origin | gimli::DW_AT_specification,
                        AttributeValue::DebugInfoRef(offset),
                    ) => next = Some(offset.0 as u64),
                    _ => {}
                }
            }
            match next {
                Some(next) => entry = next,
                None => break,
            }
        }
        name
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn cover(coverage: &mut Vec<Piece>, start: u64, length: u64, unit: usize) -> bool {
    let length = u32::try_from(length).ok().filter(|length| *length > 0 && start != 0);
    if let Some(length) = length
        && coverage.len() < COVERAGE_MAX
    {
        coverage.push(Piece { start, length, unit: unit as u32 });
        return true;
    }
    false
}
