//! An ELF file's symbols by name, and its bytes and relocations by address.
//!
//! Answers come from the program headers and the dynamic segment, as in the loader, so they work without
//! section headers; only [`Elf::symbols`] and [`Elf::section`] need sections. The file is hostile input: no
//! index is unchecked, no loop unbounded and no size trusted.

use object::elf::{FileHeader64, ProgramHeader64, Rela64, SectionHeader64, Sym64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{LittleEndian as LE, elf, pod};

/// Why a file cannot be parsed as ELF.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    #[error("not an ELF file")]
    NotElf,
    #[error("the ELF file is cut off or malformed: {0}")]
    Malformed(String),
    #[error("an ELF file for another machine than x86-64 (class {class}, machine {machine})")]
    OtherMachine { class: u8, machine: u16 },
}

/// A symbol that the file defines. The address of a thread-local symbol is the offset in the module's TLS
/// block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub address: u64,
    pub size: u64,
    pub kind: elf::SymbolType,
}

/// A relocation of the dynamic linker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    pub address: u64,
    /// `R_X86_64_…`.
    pub kind: u32,
    pub symbol: u32,
    pub addend: i64,
}

/// An x86-64 ELF file.
pub struct Elf<'data> {
    data: &'data [u8],
    header: &'data FileHeader64<LE>,
    segments: &'data [ProgramHeader64<LE>],
    dynamic: Dynamic,
}

#[derive(Default)]
struct Dynamic {
    symbols: u64,
    strings: u64,
    string_size: u64,
    gnu_hash: u64,
    sysv_hash: u64,
    relocations: [(u64, u64); 2],
    soname: Option<u64>,
    needed: Vec<u64>,
    search_path: Option<u64>,
}

/// Entries followed in a hash bucket's chain; real ones have a handful.
const MAX_CHAIN: usize = 4096;
/// Relocations read; Chromium has about 700,000.
const MAX_RELOCATIONS: u64 = 1 << 22;
/// Libraries read per file. Real files name about twenty.
const NEEDED_MAX: usize = 256;
const SYMBOL_SIZE: u64 = size_of::<Sym64<LE>>() as u64;

impl<'data> Elf<'data> {
    pub fn parse(data: &'data [u8]) -> Result<Self, ElfError> {
        let malformed = |error: object::Error| ElfError::Malformed(error.to_string());
        if !data.starts_with(&elf::ELFMAG) {
            return Err(ElfError::NotElf);
        }
        // Class, byte order and machine are at the same offset in every kind of file.
        let class = data.get(4).copied().unwrap_or(0);
        let machine = data.get(18..20).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
        if class != elf::ELFCLASS64.0 || data.get(5) != Some(&elf::ELFDATA2LSB.0) || machine != elf::EM_X86_64.0 {
            return Err(ElfError::OtherMachine { class, machine });
        }
        let header = FileHeader64::<LE>::parse(data).map_err(malformed)?;
        let segments = header.program_headers(LE, data).map_err(malformed)?;
        let mut file = Self { data, header, segments, dynamic: Dynamic::default() };
        file.dynamic = file.read_dynamic();
        Ok(file)
    }

    fn read_dynamic(&self) -> Dynamic {
        let mut found = Dynamic::default();
        let entries =
            self.segments.iter().find_map(|segment| segment.dynamic(LE, self.data).ok().flatten()).unwrap_or_default();
        for entry in entries {
            let value = entry.d_val.get(LE);
            match entry.d_tag.get(LE) {
                elf::DT_NULL => break,
                elf::DT_SYMTAB => found.symbols = value,
                elf::DT_STRTAB => found.strings = value,
                elf::DT_STRSZ => found.string_size = value,
                elf::DT_GNU_HASH => found.gnu_hash = value,
                elf::DT_HASH => found.sysv_hash = value,
                elf::DT_RELA => found.relocations[0].0 = value,
                elf::DT_RELASZ => found.relocations[0].1 = value,
                elf::DT_JMPREL => found.relocations[1].0 = value,
                elf::DT_PLTRELSZ => found.relocations[1].1 = value,
                elf::DT_SONAME => found.soname = Some(value),
                elf::DT_NEEDED if found.needed.len() < NEEDED_MAX => found.needed.push(value),
                // The loader ignores the older DT_RPATH if there is a DT_RUNPATH.
                elf::DT_RUNPATH => found.search_path = Some(value),
                elf::DT_RPATH => found.search_path = found.search_path.or(Some(value)),
                _ => {}
            }
        }
        found
    }

    pub fn data(&self) -> &'data [u8] {
        self.data
    }

    /// The file's own name for itself, if it has one.
    pub fn soname(&self) -> Option<&'data [u8]> {
        self.dynamic_string(self.dynamic.soname?)
    }

    /// The names of the libraries that the dynamic loader loads for this file.
    pub fn needed(&self) -> impl Iterator<Item = &'data [u8]> {
        self.dynamic.needed.iter().filter_map(|name| self.dynamic_string(*name))
    }

    /// The folders, separated by colons, that the loader searches first.
    pub fn search_path(&self) -> Option<&'data [u8]> {
        self.dynamic_string(self.dynamic.search_path?)
    }

    /// True for a program (position-independent or not), false for a shared library.
    pub fn is_program(&self) -> bool {
        self.header.e_type.get(LE) == elf::ET_EXEC
            || self.segments.iter().any(|segment| segment.p_type(LE) == elf::PT_INTERP)
    }

    /// The file's bytes from an address to the end of the segment's contents in the file.
    pub fn from(&self, address: u64) -> Option<&'data [u8]> {
        self.segments.iter().filter(|segment| segment.p_type(LE) == elf::PT_LOAD).find_map(|segment| {
            let skip = address.checked_sub(segment.p_vaddr(LE))?;
            let bytes = segment.data(LE, self.data).ok()?;
            bytes.get(usize::try_from(skip).ok()?..).filter(|rest| !rest.is_empty())
        })
    }

    pub fn bytes(&self, address: u64, length: u64) -> Option<&'data [u8]> {
        self.from(address)?.get(..usize::try_from(length).ok()?)
    }

    pub fn u32(&self, address: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(address, 4)?.try_into().ok()?))
    }

    pub fn u64(&self, address: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(address, 8)?.try_into().ok()?))
    }

    /// The NUL-terminated string at an address, if it ends within `limit` bytes.
    pub fn string(&self, address: u64, limit: usize) -> Option<&'data [u8]> {
        let rest = self.from(address)?;
        let rest = rest.get(..limit.min(rest.len()))?;
        rest.get(..rest.iter().position(|byte| *byte == 0)?)
    }

    /// Link-time address minus file offset of the first executable segment. With a mapping of it, this gives
    /// the load bias.
    pub fn code_delta(&self) -> Option<u64> {
        let code = self
            .segments
            .iter()
            .find(|segment| segment.p_type(LE) == elf::PT_LOAD && segment.p_flags(LE).0 & elf::PF_X.0 != 0)?;
        Some(code.p_vaddr(LE).wrapping_sub(code.p_offset(LE)))
    }

    /// Link-time address of the file's first byte, if it is loaded.
    pub fn header(&self) -> Option<u64> {
        let first =
            self.segments.iter().find(|segment| segment.p_type(LE) == elf::PT_LOAD && segment.p_offset(LE) == 0)?;
        Some(first.p_vaddr(LE))
    }

    pub fn is_code(&self, address: u64) -> bool {
        self.in_segment(address, elf::PF_X)
    }

    pub fn is_writable(&self, address: u64) -> bool {
        self.in_segment(address, elf::PF_W)
    }

    fn in_segment(&self, address: u64, flag: elf::ProgramFlags) -> bool {
        self.segments.iter().any(|segment| {
            segment.p_type(LE) == elf::PT_LOAD
                && segment.p_flags(LE).0 & flag.0 != 0
                && address.checked_sub(segment.p_vaddr(LE)).is_some_and(|skip| skip < segment.p_memsz(LE))
        })
    }

    /// Address, size in memory and alignment of the thread-local block.
    pub fn tls(&self) -> Option<(u64, u64, u64)> {
        let tls = self.segments.iter().find(|segment| segment.p_type(LE) == elf::PT_TLS)?;
        Some((tls.p_vaddr(LE), tls.p_memsz(LE), tls.p_align(LE).max(1)))
    }

    fn dynamic_string(&self, offset: u64) -> Option<&'data [u8]> {
        if offset >= self.dynamic.string_size {
            return None;
        }
        self.string(self.dynamic.strings.checked_add(offset)?, 4096)
    }

    fn dynamic_entry(&self, index: u32) -> Option<&'data Sym64<LE>> {
        let address = self.dynamic.symbols.checked_add(u64::from(index) * SYMBOL_SIZE)?;
        Some(pod::from_bytes(self.bytes(address, SYMBOL_SIZE)?).ok()?.0)
    }

    /// The exported symbol of this name, from the file's own hash table: a few cache lines, however large the
    /// file is.
    pub fn exported(&self, name: &str) -> Option<Symbol> {
        if self.dynamic.symbols == 0 {
            None
        } else if self.dynamic.gnu_hash != 0 {
            self.by_gnu_hash(name)
        } else {
            self.by_sysv_hash(name)
        }
    }

    fn matching(&self, index: u32, name: &str) -> Option<Symbol> {
        let entry = self.dynamic_entry(index)?;
        let symbol = defined(entry)?;
        (self.dynamic_string(entry.st_name(LE).into())? == name.as_bytes()).then_some(symbol)
    }

    fn by_gnu_hash(&self, name: &str) -> Option<Symbol> {
        let hash = elf::gnu_hash(name.as_bytes());
        let table = self.from(self.dynamic.gnu_hash)?;
        let word = |index: usize| {
            let at = index.checked_mul(4)?;
            Some(u32::from_le_bytes(table.get(at..at.checked_add(4)?)?.try_into().ok()?))
        };
        // Number of buckets, first hashed symbol, words of the bloom filter (64 bits each), its shift; then
        // the filter, the buckets, the chains. The filter is skipped: it only saves work for names that are
        // missing.
        let (buckets, first, bloom) = (word(0)?, word(1)?, word(2)?);
        let start = usize::try_from(bloom).ok()?.checked_mul(2)?.checked_add(4)?;
        let index = word(start.checked_add(usize::try_from(hash.checked_rem(buckets)?).ok()?)?)?;
        let chains = start.checked_add(usize::try_from(buckets).ok()?)?;
        for index in (index.max(1)..u32::MAX).take(MAX_CHAIN) {
            let value = word(chains.checked_add(usize::try_from(index.checked_sub(first)?).ok()?)?)?;
            if value | 1 == hash | 1
                && let Some(symbol) = self.matching(index, name)
            {
                return Some(symbol);
            }
            if value & 1 == 1 {
                break;
            }
        }
        None
    }

    fn by_sysv_hash(&self, name: &str) -> Option<Symbol> {
        let table = self.from(self.dynamic.sysv_hash)?;
        let word = |index: u32| {
            let at = usize::try_from(index).ok()?.checked_mul(4)?;
            Some(u32::from_le_bytes(table.get(at..at.checked_add(4)?)?.try_into().ok()?))
        };
        let buckets = word(0)?;
        let mut index = word(elf::hash(name.as_bytes()).checked_rem(buckets)?.checked_add(2)?)?;
        for _ in 0..MAX_CHAIN {
            if index == 0 {
                break;
            }
            if let Some(symbol) = self.matching(index, name) {
                return Some(symbol);
            }
            index = word(buckets.checked_add(2)?.checked_add(index)?)?;
        }
        None
    }

    fn sections(&self) -> &'data [SectionHeader64<LE>] {
        self.header.section_headers(LE, self.data).unwrap_or_default()
    }

    pub fn has_section(&self, name: &[u8]) -> bool {
        self.section(name).is_some()
    }

    /// Address and contents of a section.
    pub fn section(&self, name: &[u8]) -> Option<(u64, &'data [u8])> {
        let table = self.header.sections(LE, self.data).ok()?;
        let (_, header) = table.section_by_name(LE, name)?;
        Some((header.sh_addr(LE), header.data(LE, self.data).ok()?))
    }

    /// Every defined symbol of `.symtab`, including local ones; none in a stripped file. Scans the whole
    /// table.
    pub fn symbols(&self) -> impl Iterator<Item = (&'data [u8], Symbol)> + use<'data> {
        self.table(elf::SHT_SYMTAB)
    }

    /// Every defined symbol of `.dynsym`, in the same way.
    pub fn exported_symbols(&self) -> impl Iterator<Item = (&'data [u8], Symbol)> + use<'data> {
        self.table(elf::SHT_DYNSYM)
    }

    fn table(&self, kind: elf::SectionType) -> impl Iterator<Item = (&'data [u8], Symbol)> + use<'data> {
        let data = self.data;
        let sections = self.sections();
        let table = sections.iter().find(|section| section.sh_type(LE) == kind);
        let entries = table.and_then(|table| table.data_as_array::<Sym64<LE>, _>(LE, data).ok()).unwrap_or_default();
        let strings = table
            .and_then(|table| sections.get(usize::try_from(table.sh_link(LE)).ok()?))
            .and_then(|strings| strings.data(LE, data).ok())
            .unwrap_or_default();
        entries.iter().filter_map(move |entry| {
            let symbol = defined(entry)?;
            let name = strings.get(usize::try_from(entry.st_name(LE)).ok()?..)?;
            Some((name.get(..name.iter().take(4096).position(|byte| *byte == 0)?)?, symbol))
        })
    }

    /// All relocations that the dynamic linker applies.
    pub fn relocations(&self) -> impl Iterator<Item = Relocation> + use<'_, 'data> {
        self.dynamic.relocations.iter().flat_map(|(address, size)| {
            let entry = size_of::<Rela64<LE>>() as u64;
            let count = (size / entry).min(MAX_RELOCATIONS);
            let bytes = self.bytes(*address, count * entry).unwrap_or_default();
            let count = usize::try_from(count).unwrap_or(0);
            let entries = pod::slice_from_bytes::<Rela64<LE>>(bytes, count).map_or(&[][..], |(entries, _)| entries);
            entries.iter().map(|entry| Relocation {
                address: entry.r_offset.get(LE),
                kind: (entry.r_info.get(LE) & 0xffff_ffff) as u32,
                symbol: (entry.r_info.get(LE) >> 32) as u32,
                addend: entry.r_addend.get(LE),
            })
        })
    }

    pub fn relocation_at(&self, address: u64) -> Option<Relocation> {
        self.relocations().find(|relocation| relocation.address == address)
    }

    /// The file's own definition of a relocation's symbol.
    pub fn relocation_symbol(&self, relocation: &Relocation) -> Option<Symbol> {
        defined(self.dynamic_entry(relocation.symbol)?)
    }

    /// The word at this address once the file is loaded, as a link-time address, if the file alone determines
    /// it.
    pub fn loaded_word(&self, address: u64) -> Option<u64> {
        let Some(relocation) = self.relocation_at(address) else { return self.u64(address) };
        let addend = relocation.addend.cast_unsigned();
        match elf::RelocationType(relocation.kind) {
            elf::R_X86_64_RELATIVE => Some(addend),
            elf::R_X86_64_GLOB_DAT | elf::R_X86_64_64 | elf::R_X86_64_JUMP_SLOT => {
                Some(self.relocation_symbol(&relocation)?.address.wrapping_add(addend))
            }
            _ => None,
        }
    }
}

fn defined(entry: &Sym64<LE>) -> Option<Symbol> {
    let kind = entry.st_type();
    let address = entry.st_value(LE);
    let here = !entry.is_undefined(LE) && (address != 0 || kind == elf::STT_TLS);
    here.then(|| Symbol { address, size: entry.st_size(LE), kind })
}
