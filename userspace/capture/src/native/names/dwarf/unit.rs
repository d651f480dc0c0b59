//! A unit's functions, the calls inlined into them, and its lines.

use std::ops::Range;

use gimli::{AttributeValue, EntriesRaw, LittleEndian, UnitOffset};

use super::lines::{Lines, Place};
use super::reader::{Header, Reader, Root, Slice, Span};

/// Larger units are not read.
const UNIT_MAX: u64 = 16 << 20;
/// Functions and inlined calls kept per unit, and their ranges.
const SCOPES_MAX: usize = 1 << 17;
/// Inlined calls shown at one address.
const INLINED_MAX: usize = 64;

/// A range of a function's code.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    length: u32,
    scope: u32,
}

impl Piece {
    fn has(&self, address: u64) -> bool {
        address.checked_sub(self.start).is_some_and(|offset| offset < u64::from(self.length))
    }
}

/// A function, or an inlined call of one.
#[derive(Clone, Debug)]
struct Scope {
    /// Offset in `.debug_info` of the entry with the function's name; 0 if there is none.
    entry: u64,
    call_file: u32,
    call_line: u32,
    /// For a function: the ranges of its inlined calls.
    inlined: Range<u32>,
}

#[derive(Debug)]
pub struct Unit {
    /// By address.
    functions: Vec<Piece>,
    scopes: Vec<Scope>,
    /// In file order: an inlined call comes before those inlined into it.
    inlined: Vec<Piece>,
    lines: Lines,
}

/// A function at an address.
#[derive(Debug)]
pub struct Frame {
    pub entry: u64,
    pub place: Place,
}

impl Unit {
    pub fn read(reader: &mut Reader<'_>, offset: u64) -> Option<Self> {
        let header = reader.header(offset)?;
        if header.length > UNIT_MAX {
            return None;
        }
        let abbreviations = reader.abbreviations(header.abbreviations)?;
        let root = reader.root(&header, &abbreviations)?;
        let length = usize::try_from(header.length).ok()?;
        let bytes = reader.parts.info.read(reader.file, offset, length)?;
        let first = usize::try_from(header.entries).ok()?;
        let entries = EntriesRaw::new(
            Slice::new(bytes.get(first..)?, LittleEndian),
            header.encoding,
            &abbreviations,
            UnitOffset(first),
        );
        let mut unit = Self { functions: Vec::new(), scopes: Vec::new(), inlined: Vec::new(), lines: Lines::default() };
        // On a malformed entry, what was read before it is kept.
        let _ = unit.read_entries(reader, &root, &header, entries);
        drop(bytes);
        unit.functions.sort_by_key(|piece| piece.start);
        unit.functions.shrink_to_fit();
        unit.scopes.shrink_to_fit();
        unit.inlined.shrink_to_fit();
        let called = unit.scopes.iter().map(|scope| scope.call_file);
        unit.lines = Lines::read(reader, &root, &header, called).unwrap_or_default();
        Some(unit)
    }

    fn read_entries(
        &mut self,
        reader: &mut Reader<'_>,
        root: &Root,
        header: &Header,
        mut entries: EntriesRaw<'_, Slice<'_>>,
    ) -> gimli::Result<()> {
        let mut ranges = Vec::new();
        // Functions that contain the entry, with their depths.
        let mut inside: Vec<(isize, usize)> = Vec::new();
        while !entries.is_empty() && self.scopes.len().max(self.inlined.len()).max(self.functions.len()) < SCOPES_MAX {
            let depth = entries.next_depth();
            let offset = header.offset + entries.next_offset().0 as u64;
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            while let Some((_, scope)) = inside.pop_if(|(outer, _)| *outer >= depth) {
                self.close(scope);
            }
            let tag = abbreviation.tag();
            if tag != gimli::DW_TAG_subprogram && (tag != gimli::DW_TAG_inlined_subroutine || inside.is_empty()) {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut span = Span::default();
            let mut scope = Scope { entry: offset, call_file: 0, call_line: 0, inlined: 0..0 };
            for specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(*specification)?;
                match (attribute.name(), attribute.value()) {
                    // Only the function's name is needed later, and the origin has it.
                    (gimli::DW_AT_abstract_origin, AttributeValue::UnitRef(origin)) => {
                        scope.entry = header.offset + origin.0 as u64;
                    }
                    (gimli::DW_AT_abstract_origin, AttributeValue::DebugInfoRef(origin)) => {
                        scope.entry = origin.0 as u64;
                    }
                    (gimli::DW_AT_call_file, AttributeValue::FileIndex(file)) => scope.call_file = file as u32,
                    (gimli::DW_AT_call_line, line) => scope.call_line = line.udata_value().unwrap_or(0) as u32,
                    (name, value) => span.take(name, value),
                }
            }
            if span.is_empty() {
                continue;
            }
            ranges.clear();
            reader.ranges(root, header.encoding, span, &mut ranges);
            if ranges.is_empty() {
                continue;
            }
            let number = self.scopes.len();
            let pieces = if tag == gimli::DW_TAG_subprogram {
                scope.inlined.start = self.inlined.len() as u32;
                inside.push((depth, number));
                &mut self.functions
            } else {
                &mut self.inlined
            };
            pieces.extend(ranges.iter().take(SCOPES_MAX).map(|range| Piece {
                start: range.start,
                length: (range.end - range.start) as u32,
                scope: number as u32,
            }));
            self.scopes.push(scope);
        }
        for (_, scope) in inside {
            self.close(scope);
        }
        Ok(())
    }

    fn close(&mut self, scope: usize) {
        if let Some(scope) = self.scopes.get_mut(scope) {
            scope.inlined.end = self.inlined.len() as u32;
        }
    }

    /// The functions at an address, outermost first, each with the line in it. Without a function, only the
    /// line, if known.
    pub fn find(&self, address: u64) -> (Vec<Frame>, Option<Place>) {
        let place = self.lines.find(address);
        let after = self.functions.partition_point(|piece| piece.start <= address);
        // Functions are adjacent or nested.
        let function = self.functions[..after].iter().rev().take(8).find(|piece| piece.has(address));
        let Some(function) = function.and_then(|piece| self.scopes.get(piece.scope as usize)) else {
            return (Vec::new(), place);
        };
        let inlined = self.inlined.get(function.inlined.start as usize..function.inlined.end as usize);
        let calls = inlined.unwrap_or_default().iter().filter(|piece| piece.has(address));
        let calls: Vec<&Scope> =
            calls.filter_map(|piece| self.scopes.get(piece.scope as usize)).take(INLINED_MAX).collect();
        let within = calls.iter().map(|call| self.lines.place(call.call_file, call.call_line));
        let places = within.chain([place.clone().unwrap_or_default()]);
        let scopes = std::iter::once(function).chain(calls.iter().copied());
        let frames = scopes.zip(places).map(|(scope, place)| Frame { entry: scope.entry, place }).collect();
        (frames, place)
    }

    /// Approximate size in memory in bytes.
    pub fn bytes(&self) -> usize {
        (self.functions.len() + self.inlined.len()) * size_of::<Piece>()
            + self.scopes.len() * size_of::<Scope>()
            + self.lines.bytes()
            + size_of::<Self>()
    }
}
