//! The functions of a file by its symbol tables.

use std::fs::File;

use object::LittleEndian as LE;
use object::elf::{self, Sym64};
use object::pod;

use super::sections::{Extent, Section, Sections};

/// Functions kept per file; further ones are not found.
const FUNCTIONS_MAX: usize = 1 << 19;
/// Symbols per read.
const PIECE: usize = 4096;
const SYMBOL_SIZE: usize = size_of::<Sym64<LE>>();
/// Symbols before an address that are checked for one that extends to it: parts and aliases of a function.
const LOOK_BACK: usize = 64;
/// Marks a name in the table of dynamic symbols.
const DYNAMIC: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
struct Function {
    address: u64,
    /// 0 if the file does not give it.
    size: u32,
    name: u32,
}

/// A file's functions and their names.
#[derive(Debug, Default)]
pub struct Symbols {
    functions: Vec<Function>,
    /// The sections of code, by address.
    code: Vec<(u64, u64)>,
    names: Extent,
    dynamic_names: Extent,
}

impl Symbols {
    pub fn of(file: &File, sections: &Sections) -> Self {
        let mut symbols = Self {
            code: sections.iter().filter_map(|section| section.code).take(FUNCTIONS_MAX).collect(),
            ..Self::default()
        };
        symbols.code.sort_unstable();
        for (kind, mark) in [(elf::SHT_SYMTAB, 0), (elf::SHT_DYNSYM, DYNAMIC)] {
            let Some(table) = sections.iter().find(|section| section.kind == kind) else { continue };
            let names = sections.get(table.link).map_or_else(Extent::default, |names| names.extent);
            if mark == 0 {
                symbols.names = names;
            } else {
                symbols.dynamic_names = names;
            }
            symbols.add(file, table, mark);
        }
        // The mark sorts entries of the dynamic table after equal ones of the full table.
        symbols.functions.sort_unstable_by_key(|function| (function.address, function.name));
        symbols.functions.dedup_by(|later, first| {
            let both = later.name & DYNAMIC != 0 && first.name & DYNAMIC == 0;
            both && (later.address, later.size) == (first.address, first.size)
        });
        symbols.functions.shrink_to_fit();
        symbols
    }

    fn add(&mut self, file: &File, table: &Section, mark: u32) {
        let count = table.extent.length() / SYMBOL_SIZE as u64;
        let mut done = 0;
        while done < count && self.functions.len() < FUNCTIONS_MAX {
            let Some(bytes) = table.extent.read(file, done * SYMBOL_SIZE as u64, PIECE * SYMBOL_SIZE) else { return };
            let Ok((piece, _)) = pod::slice_from_bytes::<Sym64<LE>>(&bytes, bytes.len() / SYMBOL_SIZE) else { return };
            self.functions.extend(piece.iter().filter_map(|symbol| function(&self.code, symbol, mark)));
            done += PIECE as u64;
        }
    }

    /// The name of the function that contains an address. Of several names, the one with the fewest leading
    /// underscores, which is the public one.
    pub fn find(&self, file: &File, address: u64) -> Option<String> {
        let after = self.functions.partition_point(|function| function.address <= address);
        let before = self.functions[..after].iter().rev().take(LOOK_BACK);
        let mut open_end: Option<&Function> = None;
        let mut is_past = false;
        let mut found = None;
        for function in before.clone() {
            if function.size == 0 {
                // A symbol without a size ends at the next function or the end of its section. The dynamic
                // table may lack the next function.
                let reaches = function.name & DYNAMIC == 0 || function.address == address;
                let same = section_end(&self.code, function.address) == section_end(&self.code, address);
                if !is_past && open_end.is_none() && reaches && same {
                    open_end = Some(function);
                }
            } else if address - function.address < u64::from(function.size) {
                found = Some(function);
                break;
            } else {
                is_past = true;
                // A label in a function ends with the function.
                open_end = open_end.filter(|label| label.address - function.address >= u64::from(function.size));
            }
        }
        let found = found.or(open_end)?;
        let names = before
            .filter(|function| function.address == found.address && (function.size == 0) == (found.size == 0))
            .filter(|function| function.size == 0 || address - function.address < u64::from(function.size))
            .filter_map(|function| self.name(file, function));
        names.min_by(|one, other| rank(one).cmp(&rank(other)))
    }

    fn name(&self, file: &File, function: &Function) -> Option<String> {
        let names = if function.name & DYNAMIC == 0 { self.names } else { self.dynamic_names };
        let mut name = names.text(file, u64::from(function.name & !DYNAMIC))?;
        // An exported symbol's version may follow the name.
        name.truncate(name.find('@').unwrap_or(name.len()));
        (!name.is_empty()).then_some(name)
    }

    /// Size in memory in bytes.
    pub fn bytes(&self) -> usize {
        self.functions.capacity() * size_of::<Function>()
    }
}

/// The end of the section of code that contains an address.
fn section_end(code: &[(u64, u64)], address: u64) -> Option<u64> {
    let after = code.partition_point(|(start, _)| *start <= address);
    code[..after].last().map(|(_, end)| *end).filter(|end| address < *end)
}

fn function(code: &[(u64, u64)], symbol: &Sym64<LE>, mark: u32) -> Option<Function> {
    let address = symbol.st_value.get(LE);
    let is_function = match symbol.st_type() {
        elf::STT_FUNC | elf::STT_GNU_IFUNC => true,
        // Code written in assembler may lack a type; local symbols without one are labels in functions.
        elf::STT_NOTYPE => mark == 0 && symbol.st_bind() != elf::STB_LOCAL,
        _ => false,
    };
    let name = symbol.st_name.get(LE);
    if !is_function || name == 0 || name & DYNAMIC != 0 || symbol.st_shndx.get(LE) == elf::SHN_UNDEF {
        return None;
    }
    section_end(code, address)?;
    let size = u32::try_from(symbol.st_size.get(LE)).unwrap_or(u32::MAX);
    Some(Function { address, size, name: name | mark })
}

fn rank(name: &str) -> (usize, usize, &str) {
    (name.len() - name.trim_start_matches('_').len(), name.len(), name)
}
