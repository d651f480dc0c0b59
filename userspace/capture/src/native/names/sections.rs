//! The sections of an ELF file, read piece by piece. The file is not mapped, because truncation by its owner
//! would kill us with SIGBUS. Nor is it read into memory as a whole: debug information is most of a file, and
//! little of it is ever needed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::pod;

/// More sections than any linked file has.
const SECTIONS_MAX: usize = 4096;
const SECTION_NAMES_MAX: usize = 1 << 20;
/// More segments than any linked file has.
const SEGMENTS_MAX: usize = 256;
/// The longest string read: mangled names of templates may have thousands of bytes.
const TEXT_MAX: usize = 8192;
/// Nearly all strings are shorter.
const TEXT_USUAL: usize = 160;

/// Where a section's bytes are in the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    start: u64,
    length: u64,
}

impl Extent {
    pub fn length(self) -> u64 {
        self.length
    }

    pub fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Reads `length` bytes from `offset`, or fewer at the section's end. `length` is the caller's limit,
    /// because the section's own size may be wrong.
    pub fn read(self, file: &File, offset: u64, length: usize) -> Option<Vec<u8>> {
        let left = self.length.checked_sub(offset)?;
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(length);
        let at = self.start.checked_add(offset)?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    pub fn array<const N: usize>(self, file: &File, offset: u64) -> Option<[u8; N]> {
        offset.checked_add(N as u64).filter(|end| *end <= self.length)?;
        let mut bytes = [0; N];
        file.read_exact_at(&mut bytes, self.start.checked_add(offset)?).ok()?;
        Some(bytes)
    }

    /// The NUL-terminated string at `offset`.
    pub fn text(self, file: &File, offset: u64) -> Option<String> {
        let left = usize::try_from(self.length.checked_sub(offset)?).unwrap_or(usize::MAX);
        let mut buffer = [0; TEXT_MAX];
        let mut read = 0;
        for part in [TEXT_USUAL, TEXT_MAX] {
            let part = &mut buffer[read..part.min(left).max(read)];
            file.read_exact_at(part, self.start.checked_add(offset)?.checked_add(read as u64)?).ok()?;
            if let Some(end) = part.iter().position(|byte| *byte == 0) {
                return Some(String::from_utf8_lossy(&buffer[..read + end]).into_owned());
            }
            read += part.len();
        }
        None
    }
}

/// A section of a linked file.
#[derive(Clone, Debug)]
pub struct Section {
    pub name: Box<[u8]>,
    /// Empty if the file does not contain its bytes, or only compressed.
    pub extent: Extent,
    pub kind: elf::SectionType,
    pub link: usize,
    /// Range of addresses, if the section contains code.
    pub code: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
pub struct Sections(Vec<Section>);

impl Sections {
    /// `None` unless it is a little-endian 64-bit ELF file with sections.
    pub fn of(file: &File) -> Option<Self> {
        let (whole, header) = header(file)?;
        let count = usize::from(header.e_shnum.get(LE));
        if count > SECTIONS_MAX || usize::from(header.e_shentsize.get(LE)) != size_of::<SectionHeader64<LE>>() {
            return None;
        }
        let table = whole.read(file, header.e_shoff.get(LE), count * size_of::<SectionHeader64<LE>>())?;
        let (table, _) = pod::slice_from_bytes::<SectionHeader64<LE>>(&table, count).ok()?;
        let names = table.get(usize::from(header.e_shstrndx.get(LE).0))?;
        let names = Extent { start: names.sh_offset.get(LE), length: names.sh_size.get(LE) };
        let names = names.read(file, 0, SECTION_NAMES_MAX)?;
        Some(Self(table.iter().map(|header| section(header, &names)).collect()))
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Section> {
        self.0.iter()
    }

    pub fn get(&self, index: usize) -> Option<&Section> {
        self.0.get(index)
    }

    /// The bytes of a section; empty if there is none.
    pub fn named(&self, name: &str) -> Extent {
        let found = self.0.iter().find(|section| &*section.name == name.as_bytes());
        found.map_or_else(Extent::default, |section| section.extent)
    }

    /// The build id, which distinguishes this build of a file from all others.
    pub fn build_id(&self, file: &File) -> Option<Vec<u8>> {
        let note = self.named(".note.gnu.build-id");
        // Length of the owner's name, length of the description, type; the owner's name; the description.
        let head = note.array::<16>(file, 0)?;
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if !head.ends_with(b"GNU\0") || !(4..=64).contains(&length) {
            return None;
        }
        note.read(file, 16, length).filter(|id| id.len() == length)
    }
}

/// Where a file's code is in memory.
#[derive(Clone, Debug, Default)]
pub struct Segments(Vec<(Extent, u64)>);

impl Segments {
    pub fn of(file: &File) -> Option<Self> {
        let (whole, header) = header(file)?;
        let count = usize::from(header.e_phnum.get(LE)).min(SEGMENTS_MAX);
        let table = whole.read(file, header.e_phoff.get(LE), count * size_of::<ProgramHeader64<LE>>())?;
        let (table, _) = pod::slice_from_bytes::<ProgramHeader64<LE>>(&table, count).ok()?;
        let code = table
            .iter()
            .filter(|segment| segment.p_type.get(LE) == elf::PT_LOAD && segment.p_flags.get(LE).0 & elf::PF_X.0 != 0);
        let segments = code.map(|segment| {
            let extent = Extent { start: segment.p_offset.get(LE), length: segment.p_filesz.get(LE) };
            (extent, segment.p_vaddr.get(LE))
        });
        Some(Self(segments.collect()))
    }

    /// The link-time address of an offset in the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        self.0.iter().find_map(|(extent, address)| {
            let skip = offset.checked_sub(extent.start).filter(|skip| *skip < extent.length)?;
            address.checked_add(skip)
        })
    }
}

/// The whole file, and its ELF header.
fn header(file: &File) -> Option<(Extent, FileHeader64<LE>)> {
    let whole = Extent { start: 0, length: file.metadata().ok()?.len() };
    let header = whole.array::<{ size_of::<FileHeader64<LE>>() }>(file, 0)?;
    let (header, _) = pod::from_bytes::<FileHeader64<LE>>(&header).ok()?;
    let ident = &header.e_ident;
    let is_elf = ident.magic == elf::ELFMAG && ident.class == elf::ELFCLASS64 && ident.data == elf::ELFDATA2LSB;
    is_elf.then_some((whole, *header))
}

fn section(header: &SectionHeader64<LE>, names: &[u8]) -> Section {
    let name = names.get(header.sh_name.get(LE) as usize..).unwrap_or_default();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let flags = header.sh_flags.get(LE).0;
    let kind = header.sh_type.get(LE);
    let is_here = kind != elf::SHT_NOBITS && flags & elf::SHF_COMPRESSED.0 == 0;
    let size = header.sh_size.get(LE);
    let address = header.sh_addr.get(LE);
    Section {
        name: name.iter().copied().take(64).collect(),
        extent: Extent { start: header.sh_offset.get(LE), length: if is_here { size } else { 0 } },
        kind,
        link: header.sh_link.get(LE) as usize,
        code: (flags & elf::SHF_EXECINSTR.0 != 0).then(|| (address, address.saturating_add(size))),
    }
}
