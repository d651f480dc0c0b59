//! Reads entries of the debug information. Their attributes refer to other sections, which are read piece by
//! piece.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use gimli::Reader as _;
use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugRanges, DebugRngLists, Encoding, EndianSlice,
    EntriesRaw, Format, LittleEndian, RangeLists, RangeListsOffset, RawRngListEntry, UnitOffset,
};

use super::super::sections::{Extent, Sections};

pub type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub type Value<'a> = AttributeValue<Slice<'a>>;

/// Abbreviation tables are read with these sizes until the whole table fits.
const ABBREVIATIONS: [usize; 3] = [16 << 10, 64 << 10, 512 << 10];
/// Cached abbreviation tables of all files, not counting huge ones. Each unit of CPython has its own.
const ABBREVIATIONS_KEPT: usize = 64;
/// Sizes of the cached window of the range lists: the usual one, and one for longer lists. A unit's lists are
/// close together.
const WINDOWS: [usize; 2] = [32 << 10, 256 << 10];
/// Ranges read per entry.
const RANGES_MAX: usize = 65_536;
/// Size of an entry: nearly always, and at most.
const ENTRY: [usize; 2] = [256, 16 << 10];

/// The sections that are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    pub info: Extent,
    pub aranges: Extent,
    pub line: Extent,
    abbreviations: Extent,
    line_text: Extent,
    text: Extent,
    text_offsets: Extent,
    addresses: Extent,
    ranges: Extent,
    range_lists: Extent,
}

impl Parts {
    pub fn of(sections: &Sections) -> Self {
        Self {
            info: sections.named(".debug_info"),
            aranges: sections.named(".debug_aranges"),
            line: sections.named(".debug_line"),
            abbreviations: sections.named(".debug_abbrev"),
            line_text: sections.named(".debug_line_str"),
            text: sections.named(".debug_str"),
            text_offsets: sections.named(".debug_str_offsets"),
            addresses: sections.named(".debug_addr"),
            ranges: sections.named(".debug_ranges"),
            range_lists: sections.named(".debug_rnglists"),
        }
    }
}

/// Abbreviation tables by file and offset, the most recently used first.
#[derive(Debug, Default)]
pub struct AbbreviationTables(Vec<((u64, u64), Arc<Abbreviations>)>);

/// A unit's header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Offset of the header in `.debug_info`.
    pub offset: u64,
    pub length: u64,
    /// Start of the entries, relative to `offset`.
    pub entries: u64,
    pub encoding: Encoding,
    pub abbreviations: u64,
    /// Whether it describes code, not just a type.
    pub has_code: bool,
}

/// Attributes of a unit that its entries refer to.
#[derive(Clone, Debug, Default)]
pub struct Root {
    pub low: u64,
    pub line_program: Option<u64>,
    pub directory: Option<String>,
    addresses: u64,
    text_offsets: u64,
    range_lists: u64,
}

/// The attributes that define an entry's code.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span<'a> {
    low: Option<Value<'a>>,
    high: Option<Value<'a>>,
    ranges: Option<Value<'a>>,
}

impl<'a> Span<'a> {
    pub fn take(&mut self, name: gimli::DwAt, value: Value<'a>) {
        match name {
            gimli::DW_AT_low_pc => self.low = Some(value),
            gimli::DW_AT_high_pc => self.high = Some(value),
            gimli::DW_AT_ranges => self.ranges = Some(value),
            _ => {}
        }
    }

    pub fn is_empty(&self) -> bool {
        self.low.is_none() && self.ranges.is_none()
    }
}

pub struct Reader<'f> {
    pub file: &'f File,
    /// Identifies the file.
    number: u64,
    pub parts: Parts,
    tables: &'f mut AbbreviationTables,
    window: Vec<u8>,
    window_start: u64,
    /// Ranges that may still be read. In a hostile file every entry may refer to the same long list.
    pub ranges_left: usize,
}

impl<'f> Reader<'f> {
    pub fn new(file: &'f File, number: u64, parts: Parts, tables: &'f mut AbbreviationTables) -> Self {
        Self { file, number, parts, tables, window: Vec::new(), window_start: 0, ranges_left: 1 << 20 }
    }

    pub fn header(&self, offset: u64) -> Option<Header> {
        // Enough for a header in either format and of any kind.
        let bytes = self.parts.info.read(self.file, offset, 40)?;
        let mut left = Slice::new(&bytes, LittleEndian);
        let (length, format) = left.read_initial_length().ok()?;
        let length = (length as u64).checked_add(u64::from(format.initial_length_size()))?;
        offset.checked_add(length).filter(|end| *end <= self.parts.info.length())?;
        let version = left.read_u16().ok()?;
        let mut kind = gimli::DW_UT_compile;
        let address_size;
        let abbreviations;
        match version {
            2..=4 => {
                abbreviations = left.read_word(format).ok()?;
                address_size = left.read_u8().ok()?;
            }
            5 => {
                kind = gimli::DwUt(left.read_u8().ok()?);
                address_size = left.read_u8().ok()?;
                abbreviations = left.read_word(format).ok()?;
            }
            _ => return None,
        }
        let identifier = match kind {
            gimli::DW_UT_skeleton | gimli::DW_UT_split_compile => 8,
            gimli::DW_UT_type | gimli::DW_UT_split_type => 8 + u64::from(format.word_size()),
            _ => 0,
        };
        Some(Header {
            offset,
            length,
            entries: (bytes.len() - left.len()) as u64 + identifier,
            encoding: Encoding { address_size, format, version },
            abbreviations: abbreviations as u64,
            has_code: !matches!(kind, gimli::DW_UT_type | gimli::DW_UT_split_type | gimli::DW_UT_partial)
                && address_size == 8,
        })
    }

    pub fn abbreviations(&mut self, offset: u64) -> Option<Arc<Abbreviations>> {
        let key = (self.number, offset);
        if let Some(index) = self.tables.0.iter().position(|(known, _)| *known == key) {
            self.tables.0[..=index].rotate_right(1);
            return Some(Arc::clone(&self.tables.0[0].1));
        }
        for size in ABBREVIATIONS {
            let bytes = self.parts.abbreviations.read(self.file, offset, size)?;
            match DebugAbbrev::new(&bytes, LittleEndian).abbreviations(DebugAbbrevOffset(0)) {
                Ok(table) => {
                    let table = Arc::new(table);
                    if size < ABBREVIATIONS[2] {
                        self.tables.0.truncate(ABBREVIATIONS_KEPT - 1);
                        self.tables.0.insert(0, (key, Arc::clone(&table)));
                    }
                    return Some(table);
                }
                Err(gimli::Error::UnexpectedEof(_)) if bytes.len() == size => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// The attributes of one entry, whose bytes are read into `into`. Works without those of its unit.
    pub fn entry<'b>(
        &self,
        header: &Header,
        offset: u64,
        abbreviations: &Abbreviations,
        into: &'b mut Vec<u8>,
    ) -> Option<Vec<(gimli::DwAt, Value<'b>)>> {
        let left = usize::try_from(header.length.checked_sub(offset.checked_sub(header.offset)?)?).ok()?;
        for size in ENTRY {
            *into = self.parts.info.read(self.file, offset, size.min(left))?;
            if attributes(header, abbreviations, into).is_some() {
                break;
            }
        }
        attributes(header, abbreviations, into)
    }

    pub fn root(&self, header: &Header, abbreviations: &Abbreviations) -> Option<Root> {
        let mut bytes = Vec::new();
        let attributes = self.entry(header, header.offset.checked_add(header.entries)?, abbreviations, &mut bytes)?;
        let mut root = Root::default();
        for (name, value) in &attributes {
            match (*name, *value) {
                (gimli::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset)) => {
                    root.line_program = Some(offset.0 as u64);
                }
                (gimli::DW_AT_addr_base, AttributeValue::DebugAddrBase(base)) => root.addresses = base.0 as u64,
                (gimli::DW_AT_str_offsets_base, AttributeValue::DebugStrOffsetsBase(base)) => {
                    root.text_offsets = base.0 as u64;
                }
                (gimli::DW_AT_rnglists_base, AttributeValue::DebugRngListsBase(base)) => {
                    root.range_lists = base.0 as u64;
                }
                _ => {}
            }
        }
        // These attributes may depend on bases that come after them, so they are read in a second pass.
        for (name, value) in attributes {
            match name {
                gimli::DW_AT_low_pc => root.low = self.address(&root, value).unwrap_or(0),
                gimli::DW_AT_comp_dir => root.directory = self.text(&root, header.encoding.format, value),
                _ => {}
            }
        }
        Some(root)
    }

    /// The code that a unit describes.
    pub fn unit_ranges(&mut self, header: &Header, abbreviations: &Abbreviations) -> Option<Vec<Range<u64>>> {
        let root = self.root(header, abbreviations)?;
        let mut bytes = Vec::new();
        let mut span = Span::default();
        for (name, value) in self.entry(header, header.offset + header.entries, abbreviations, &mut bytes)? {
            span.take(name, value);
        }
        let mut ranges = Vec::new();
        self.ranges(&root, header.encoding, span, &mut ranges);
        Some(ranges)
    }

    fn address(&self, root: &Root, value: Value<'_>) -> Option<u64> {
        match value {
            AttributeValue::Addr(address) => Some(address),
            AttributeValue::DebugAddrIndex(index) => self.indexed_address(root, index.0),
            _ => None,
        }
    }

    fn indexed_address(&self, root: &Root, index: usize) -> Option<u64> {
        let offset = (index as u64).checked_mul(8)?.checked_add(root.addresses)?;
        self.parts.addresses.array(self.file, offset).map(u64::from_le_bytes)
    }

    fn word(&self, section: Extent, format: Format, base: u64, index: usize) -> Option<u64> {
        let offset = (index as u64).checked_mul(u64::from(format.word_size()))?.checked_add(base)?;
        match format {
            Format::Dwarf32 => section.array(self.file, offset).map(|word| u64::from(u32::from_le_bytes(word))),
            Format::Dwarf64 => section.array(self.file, offset).map(u64::from_le_bytes),
        }
    }

    pub fn text(&self, root: &Root, format: Format, value: Value<'_>) -> Option<String> {
        match value {
            AttributeValue::String(text) => Some(text.to_string_lossy().into_owned()),
            AttributeValue::DebugStrRef(offset) => self.parts.text.text(self.file, offset.0 as u64),
            AttributeValue::DebugLineStrRef(offset) => self.parts.line_text.text(self.file, offset.0 as u64),
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let offset = self.word(self.parts.text_offsets, format, root.text_offsets, index.0)?;
                self.parts.text.text(self.file, offset)
            }
            _ => None,
        }
    }

    /// Appends the address ranges that an entry describes.
    pub fn ranges(&mut self, root: &Root, encoding: Encoding, span: Span<'_>, into: &mut Vec<Range<u64>>) {
        if let Some(lists) = span.ranges {
            let _ = self.listed_ranges(root, encoding, lists, into);
        } else if let Some(low) = span.low.and_then(|low| self.address(root, low)) {
            let end = match span.high {
                Some(high @ (AttributeValue::Addr(_) | AttributeValue::DebugAddrIndex(_))) => self.address(root, high),
                Some(high) => high.udata_value().and_then(|length| low.checked_add(length)),
                None => None,
            };
            add(low, end, into);
        }
    }

    fn listed_ranges(
        &mut self,
        root: &Root,
        encoding: Encoding,
        lists: Value<'_>,
        into: &mut Vec<Range<u64>>,
    ) -> Option<()> {
        let section = if encoding.version <= 4 { self.parts.ranges } else { self.parts.range_lists };
        let offset = match lists {
            AttributeValue::RangeListsRef(offset) => offset.0 as u64,
            AttributeValue::DebugRngListsIndex(index) => {
                self.word(section, encoding.format, root.range_lists, index.0)?.checked_add(root.range_lists)?
            }
            _ => return None,
        };
        let before = into.len();
        self.slide(section, offset, WINDOWS[0])?;
        if self.list(root, encoding, offset, into).is_some() {
            return Some(());
        }
        // The list may extend beyond the window.
        into.truncate(before);
        self.window.clear();
        self.slide(section, offset, WINDOWS[1])?;
        self.list(root, encoding, offset, into)
    }

    /// The list at an offset in the window. `None` if it does not end there.
    fn list(&mut self, root: &Root, encoding: Encoding, offset: u64, into: &mut Vec<Range<u64>>) -> Option<()> {
        let bytes = Slice::new(self.window.get(usize::try_from(offset - self.window_start).ok()?..)?, LittleEndian);
        let mut list = RangeLists::new(DebugRanges::from(bytes), DebugRngLists::from(bytes))
            .raw_ranges(RangeListsOffset(0), encoding)
            .ok()?;
        let mut base = root.low;
        for _ in 0..RANGES_MAX {
            self.ranges_left = self.ranges_left.checked_sub(1)?;
            let Some(entry) = list.next().ok()? else { return Some(()) };
            let (low, end) = match entry {
                RawRngListEntry::BaseAddress { addr } => {
                    base = addr;
                    continue;
                }
                RawRngListEntry::BaseAddressx { addr } => {
                    base = self.indexed_address(root, addr.0)?;
                    continue;
                }
                RawRngListEntry::AddressOrOffsetPair { begin, end } | RawRngListEntry::OffsetPair { begin, end } => {
                    (base.wrapping_add(begin), Some(base.wrapping_add(end)))
                }
                RawRngListEntry::StartEnd { begin, end } => (begin, Some(end)),
                RawRngListEntry::StartLength { begin, length } => (begin, begin.checked_add(length)),
                RawRngListEntry::StartxEndx { begin, end } => {
                    (self.indexed_address(root, begin.0)?, self.indexed_address(root, end.0))
                }
                RawRngListEntry::StartxLength { begin, length } => {
                    let begin = self.indexed_address(root, begin.0)?;
                    (begin, begin.checked_add(length))
                }
            };
            add(low, end, into);
        }
        Some(())
    }

    /// Moves the window so that it contains a list of usual length at `offset`.
    fn slide(&mut self, section: Extent, offset: u64, size: usize) -> Option<()> {
        let end = offset.saturating_add(size as u64 / 4).min(section.length());
        let has = self.window_start..self.window_start + self.window.len() as u64;
        if offset < has.start || end > has.end || self.window.is_empty() {
            self.window = section.read(self.file, offset, size)?;
            self.window_start = offset;
        }
        Some(())
    }
}

fn attributes<'b>(
    header: &Header,
    abbreviations: &Abbreviations,
    bytes: &'b [u8],
) -> Option<Vec<(gimli::DwAt, Value<'b>)>> {
    let bytes = Slice::new(bytes, LittleEndian);
    let mut entries = EntriesRaw::new(bytes, header.encoding, abbreviations, UnitOffset(0));
    let specifications = entries.read_abbreviation().ok()??.attributes();
    let mut read = |specification| entries.read_attribute(specification).ok();
    specifications.iter().map(|one| read(*one).map(|attribute| (attribute.name(), attribute.value()))).collect()
}

/// Code removed by the linker has address 0.
fn add(low: u64, end: Option<u64>, into: &mut Vec<Range<u64>>) {
    if let Some(end) = end
        && low != 0
        && low < end
        && end - low <= u64::from(u32::MAX)
    {
        into.push(low..end);
    }
}
