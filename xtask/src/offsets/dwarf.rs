//! The structures of a C program as DWARF describes them.

use anyhow::{Result, ensure};
use gimli::{
    AttributeValue, DebuggingInformationEntry, EndianSlice, LittleEndian, UnitOffset, UnitRef, constants as dw,
};
use std::collections::HashMap;

pub(super) type Slice<'data> = EndianSlice<'data, LittleEndian>;

#[derive(Debug)]
pub(super) struct Member {
    /// The offset from the start of the structure.
    pub(super) bits: u64,
    /// In bytes; for an array, the size of an element.
    pub(super) size: u64,
    structure: Option<TypeKey>,
}

#[derive(Debug, Default)]
pub(super) struct Structure {
    pub(super) size: u64,
    members: HashMap<String, Member>,
}

type TypeKey = (usize, usize);

/// The requested structures, and those nested in them.
pub(super) struct Types {
    pub(super) structures: HashMap<String, Structure>,
    nested: HashMap<TypeKey, Structure>,
}

impl Types {
    /// Reads compilation units until every structure with these names was found complete. Also returns the compiler's
    /// name.
    pub(super) fn read(dwarf: &gimli::Dwarf<Slice<'_>>, wanted: &[&str]) -> Result<(Self, String)> {
        let mut types = Self { structures: HashMap::new(), nested: HashMap::new() };
        let (mut producer, mut headers) = (String::new(), Vec::new());
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            let unit = dwarf.unit(header)?;
            let name = unit.name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            // These files include nearly everything; the others are read only if something is still missing.
            let order =
                ["pystate.c", "ceval.c", "frame.c", "unicodeobject.c"].iter().position(|file| name.ends_with(file));
            headers.push((order.unwrap_or(usize::MAX), headers.len(), unit));
        }
        ensure!(!headers.is_empty(), "it has no debug information");
        headers.sort_by_key(|(order, index, _)| (*order, *index));
        for (_, index, unit) in &headers {
            if wanted.iter().all(|name| types.structures.contains_key(*name)) {
                break;
            }
            let unit = unit.unit_ref(dwarf);
            if producer.is_empty() {
                producer = compiler(unit)?;
            }
            types.read_unit(*index, unit, wanted)?;
        }
        Ok((types, producer))
    }

    fn read_unit(&mut self, index: usize, unit: UnitRef<'_, Slice<'_>>, wanted: &[&str]) -> Result<()> {
        let mut tree = unit.entries_tree(None)?;
        let mut children = tree.root()?.children();
        let mut found = Vec::new();
        while let Some(child) = children.next()? {
            let entry = child.entry();
            if !matches!(entry.tag(), dw::DW_TAG_typedef | dw::DW_TAG_structure_type) {
                continue;
            }
            let name = name(unit, entry)?;
            if wanted.contains(&name.as_str()) && !self.structures.contains_key(&name) {
                found.push((name, entry.offset()));
            }
        }
        for (name, offset) in found {
            if let Some(offset) = structure_behind(unit, offset)?
                && !self.structures.contains_key(&name)
            {
                let structure = self.read_structure(index, unit, offset, 0)?;
                self.structures.insert(name, structure);
            }
        }
        Ok(())
    }

    fn read_structure(
        &mut self,
        index: usize,
        unit: UnitRef<'_, Slice<'_>>,
        at: UnitOffset,
        depth: usize,
    ) -> Result<Structure> {
        let mut tree = unit.entries_tree(Some(at))?;
        let root = tree.root()?;
        let mut structure =
            Structure { size: number(root.entry(), dw::DW_AT_byte_size).unwrap_or(0), ..Structure::default() };
        let mut children = root.children();
        while let Some(child) = children.next()? {
            let entry = child.entry();
            if entry.tag() != dw::DW_TAG_member {
                continue;
            }
            let Some(AttributeValue::UnitRef(type_)) = entry.attr_value(dw::DW_AT_type) else { continue };
            let start = number(entry, dw::DW_AT_data_member_location).unwrap_or(0) * 8;
            let bits = match (number(entry, dw::DW_AT_data_bit_offset), number(entry, dw::DW_AT_bit_offset)) {
                (Some(bits), _) => bits,
                // Until DWARF 3, this counts from the other end of the storage unit.
                (None, Some(from_top)) => {
                    let storage = number(entry, dw::DW_AT_byte_size).unwrap_or(4) * 8;
                    let width = number(entry, dw::DW_AT_bit_size).unwrap_or(0);
                    start + storage.saturating_sub(from_top + width)
                }
                (None, None) => start,
            };
            let nested = structure_behind(unit, type_)?;
            let key = nested.map(|offset| (index, offset.0));
            if let (Some(offset), Some(key)) = (nested, key)
                && depth < 2
                && !self.nested.contains_key(&key)
            {
                let nested = self.read_structure(index, unit, offset, depth + 1)?;
                self.nested.insert(key, nested);
            }
            let member = Member { bits, size: size_of_type(unit, type_)?, structure: key };
            structure.members.insert(name(unit, entry)?, member);
        }
        Ok(structure)
    }

    /// A member by its path through nested structures, such as `gilstate.autoTSSkey`.
    pub(super) fn member(&self, of: &Structure, path: &str) -> Option<Member> {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let member = of.members.get(first)?;
        let Some(rest) = rest else {
            return Some(Member { bits: member.bits, size: member.size, structure: member.structure });
        };
        let inner = self.member(self.nested.get(&member.structure?)?, rest)?;
        Some(Member { bits: member.bits + inner.bits, ..inner })
    }
}

fn name<'data>(unit: UnitRef<'_, Slice<'data>>, entry: &DebuggingInformationEntry<Slice<'data>>) -> Result<String> {
    let Some(value) = entry.attr_value(dw::DW_AT_name) else { return Ok(String::new()) };
    Ok(unit.attr_string(value)?.to_string_lossy().into_owned())
}

fn number(entry: &DebuggingInformationEntry<Slice<'_>>, attribute: gimli::DwAt) -> Option<u64> {
    entry.attr_value(attribute)?.udata_value()
}

/// The complete structure at the end of a chain of typedefs and qualifiers.
fn structure_behind(unit: UnitRef<'_, Slice<'_>>, mut at: UnitOffset) -> Result<Option<UnitOffset>> {
    for _ in 0..16 {
        let entry = unit.entry(at)?;
        match entry.tag() {
            dw::DW_TAG_structure_type if entry.attr(dw::DW_AT_declaration).is_none() => return Ok(Some(at)),
            dw::DW_TAG_typedef | dw::DW_TAG_volatile_type | dw::DW_TAG_const_type => {
                let Some(AttributeValue::UnitRef(next)) = entry.attr_value(dw::DW_AT_type) else { return Ok(None) };
                at = next;
            }
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn size_of_type(unit: UnitRef<'_, Slice<'_>>, mut at: UnitOffset) -> Result<u64> {
    for _ in 0..16 {
        let entry = unit.entry(at)?;
        if let Some(size) = number(&entry, dw::DW_AT_byte_size) {
            return Ok(size);
        }
        let Some(AttributeValue::UnitRef(next)) = entry.attr_value(dw::DW_AT_type) else { break };
        at = next;
    }
    Ok(0)
}

fn compiler(unit: UnitRef<'_, Slice<'_>>) -> Result<String> {
    let entry = unit.entry(unit.header.root_offset())?;
    let Some(value) = entry.attr_value(dw::DW_AT_producer) else { return Ok(String::new()) };
    let producer = unit.attr_string(value)?.to_string_lossy().into_owned();
    // Options that name a folder of the build machine are left out.
    Ok(producer.split_whitespace().filter(|word| !word.contains('/')).collect::<Vec<_>>().join(" "))
}
