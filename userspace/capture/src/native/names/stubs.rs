//! The stubs (PLT entries) through which a file calls functions of other files. They have no symbols of their
//! own.

use std::fs::File;

use object::elf;

use super::demangle;
use super::sections::{Extent, Sections};

const STUB_SIZE: u64 = 16;
/// The code at the start of `.plt` that resolves functions.
const HEAD: u64 = if cfg!(target_arch = "aarch64") { 32 } else { 16 };
const RELOCATION_SIZE: u64 = 24;
const SYMBOL_SIZE: u64 = 24;

#[derive(Clone, Debug, Default)]
pub struct Stubs {
    /// Address ranges of stubs, in the order of the relocations.
    tables: Vec<(u64, u64)>,
    relocations: Extent,
    symbols: Extent,
    names: Extent,
}

impl Stubs {
    pub fn of(sections: &Sections) -> Self {
        let table = |name: &str, head| {
            let section = sections.iter().find(|section| &*section.name == name.as_bytes())?;
            section.code.map(|(start, end)| (start.saturating_add(head), end))
        };
        let symbols = sections.iter().find(|section| section.kind == elf::SHT_DYNSYM);
        let names = symbols.and_then(|symbols| sections.get(symbols.link));
        Self {
            tables: [table(".plt", HEAD), table(".plt.sec", 0)].into_iter().flatten().collect(),
            relocations: sections.named(".rela.plt"),
            symbols: symbols.map_or_else(Extent::default, |symbols| symbols.extent),
            names: names.map_or_else(Extent::default, |names| names.extent),
        }
    }

    /// The name of the function that the stub at an address calls, marked as a stub.
    pub fn find(&self, file: &File, address: u64) -> Option<String> {
        let (start, _) = self.tables.iter().find(|(start, end)| (*start..*end).contains(&address))?;
        let relocation = (address - start) / STUB_SIZE * RELOCATION_SIZE;
        let [_, _, _, _, symbol @ ..] = self.relocations.array::<8>(file, relocation.checked_add(8)?)?;
        let symbol = u64::from(u32::from_le_bytes(symbol));
        let name = u32::from_le_bytes(self.symbols.array(file, symbol.checked_mul(SYMBOL_SIZE)?)?);
        let name = self.names.text(file, name.into()).filter(|name| !name.is_empty())?;
        Some(format!("{}@plt", demangle::demangle(&name).unwrap_or(name)))
    }
}
