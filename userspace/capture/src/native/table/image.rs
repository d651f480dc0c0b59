//! The parts of an ELF file that its unwind table is made from, read one by one, because the file may have
//! gigabytes and may be truncated during the read.

use std::fs::File;
use std::os::unix::fs::FileExt;

use gimli::BaseAddresses;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::read::elf::{ProgramHeader, SectionHeader};
use object::{LittleEndian as LE, pod};

use super::{Code, Segment, TableError};

/// Bytes read per section. LLVM's `.eh_frame` has 8 MB, libtorch's about 20.
const SECTION_MAX: u64 = 64 << 20;
/// Section names take a few hundred bytes; the many sections of `-ffunction-sections` do not survive linking.
const NAMES_MAX: u64 = 1 << 20;
/// Executable segments read. Linkers create one, sometimes two.
const SEGMENTS_MAX: usize = 64;
/// Bytes read of `.eh_frame_hdr`: version, encodings and the pointer to `.eh_frame`.
const EH_FRAME_HDR: u64 = 64;

/// Where the bytes of an ELF file come from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    File(&'a File, u64),
    Memory(&'a [u8]),
}

impl Source<'_> {
    fn size(&self) -> u64 {
        match self {
            Self::File(_, size) => *size,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    fn fill(&self, offset: u64, into: &mut [u8]) -> Result<(), TableError> {
        match self {
            Self::File(file, _) => file.read_exact_at(into, offset).map_err(TableError::Read),
            Self::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let end = start.saturating_add(into.len());
                into.copy_from_slice(bytes.get(start..end).ok_or(TableError::Malformed("the image is cut off"))?);
                Ok(())
            }
        }
    }

    /// Checked before allocating, so that sizes beyond the file's end cost nothing.
    fn check(&self, offset: u64, length: u64) -> Result<usize, TableError> {
        if offset.checked_add(length).is_none_or(|end| end > self.size()) {
            return Err(TableError::Malformed("a part of the file lies beyond its end"));
        }
        usize::try_from(length).map_err(|_| TableError::Malformed("a part of the file is larger than memory"))
    }

    pub fn bytes(&self, offset: u64, length: u64) -> Result<Vec<u8>, TableError> {
        let mut bytes = vec![0; self.check(offset, length)?];
        self.fill(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// `count` structures of a file, none of which needs more than a word's alignment.
    fn array<T: pod::Pod>(&self, offset: u64, count: u16) -> Result<Vec<T>, TableError> {
        let length = u64::from(count) * size_of::<T>() as u64;
        let mut words = vec![0_u64; self.check(offset, length)?.div_ceil(8)];
        let bytes = pod::bytes_of_slice_mut(&mut words);
        let (bytes, _) = bytes.split_at_mut(usize::from(count) * size_of::<T>());
        self.fill(offset, bytes)?;
        let (array, _) = pod::slice_from_bytes::<T>(bytes, count.into())
            .map_err(|()| TableError::Malformed("a table of headers cannot be read"))?;
        Ok(array.to_vec())
    }
}

/// Bytes with the link-time address of the first.
pub struct Section {
    pub address: u64,
    pub bytes: Vec<u8>,
    /// Whether only a terminator marks the end of the contents.
    pub open: bool,
}

pub struct Image<'a> {
    source: Source<'a>,
    segments: Vec<ProgramHeader64<LE>>,
    sections: Vec<SectionHeader64<LE>>,
    names: Vec<u8>,
}

impl<'a> Image<'a> {
    pub fn parse(source: Source<'a>) -> Result<Self, TableError> {
        let ident = source.bytes(0, 20).map_err(|_| TableError::NotElf)?;
        if !ident.starts_with(&elf::ELFMAG) {
            return Err(TableError::NotElf);
        }
        let (class, machine) = (ident[4], u16::from_le_bytes([ident[18], ident[19]]));
        if class != elf::ELFCLASS64.0 || ident[5] != elf::ELFDATA2LSB.0 || machine != elf::EM_X86_64.0 {
            return Err(TableError::OtherMachine { class, machine });
        }
        let [header] = source.array::<FileHeader64<LE>>(0, 1)?[..] else { return Err(TableError::NotElf) };
        if usize::from(header.e_phentsize.get(LE)) != size_of::<ProgramHeader64<LE>>() {
            return Err(TableError::Malformed("program headers of another size"));
        }
        let segments = source.array(header.e_phoff.get(LE), header.e_phnum.get(LE))?;
        // The loader needs no sections, so a stripped or packed file may have none, or wrong ones.
        let (sections, names) = Self::sections(&source, &header).unwrap_or_default();
        Ok(Self { source, segments, sections, names })
    }

    fn sections(
        source: &Source<'_>,
        header: &FileHeader64<LE>,
    ) -> Result<(Vec<SectionHeader64<LE>>, Vec<u8>), TableError> {
        let sections = source.array::<SectionHeader64<LE>>(header.e_shoff.get(LE), header.e_shnum.get(LE))?;
        let names = sections.get(usize::from(header.e_shstrndx.get(LE).0));
        let names = names.ok_or(TableError::Malformed("no names of sections"))?;
        let names = source.bytes(names.sh_offset(LE), names.sh_size(LE).min(NAMES_MAX))?;
        Ok((sections, names))
    }

    /// The executable segments, as far as the file contains them.
    pub fn code(&self) -> Code {
        let code = self.loaded().filter(|segment| segment.p_flags(LE).0 & elf::PF_X.0 != 0).filter_map(|segment| {
            let offset = segment.p_offset(LE);
            let size = segment.p_filesz(LE).min(self.source.size().saturating_sub(offset));
            segment.p_vaddr(LE).checked_add(size)?;
            (size > 0).then_some(Segment { vaddr: segment.p_vaddr(LE), offset, size })
        });
        Code { segments: code.take(SEGMENTS_MAX).collect() }
    }

    fn loaded(&self) -> impl Iterator<Item = &ProgramHeader64<LE>> {
        self.segments.iter().filter(|segment| segment.p_type(LE) == elf::PT_LOAD)
    }

    pub fn header(&self, name: &[u8]) -> Option<&SectionHeader64<LE>> {
        self.sections.iter().find(|section| {
            let own = usize::try_from(section.sh_name(LE)).ok().and_then(|start| self.names.get(start..));
            own.and_then(|own| own.strip_prefix(name)).is_some_and(|rest| rest.first() == Some(&0))
        })
    }

    /// The addresses that call frame information may be relative to, other than its own.
    pub fn bases(&self) -> BaseAddresses {
        let address = |name| self.header(name).map(|section| section.sh_addr(LE));
        let mut bases = BaseAddresses::default();
        if let Some(text) = address(b".text") {
            bases = bases.set_text(text);
        }
        if let Some(got) = address(b".got") {
            bases = bases.set_got(got);
        }
        bases
    }

    /// `.eh_frame_hdr`, in which functions are found by their addresses.
    pub fn eh_frame_hdr(&self) -> Result<Option<Section>, TableError> {
        let Some(segment) = self.segments.iter().find(|segment| segment.p_type(LE) == elf::PT_GNU_EH_FRAME) else {
            return Ok(None);
        };
        let bytes = self.source.bytes(segment.p_offset(LE), segment.p_filesz(LE).min(SECTION_MAX))?;
        Ok(Some(Section { address: segment.p_vaddr(LE), bytes, open: false }))
    }

    /// A section's contents; `None` if it is missing, empty or without contents in the file.
    pub fn section(&self, name: &'static str) -> Result<Option<Section>, TableError> {
        let Some(header) = self.header(name.as_bytes()) else { return Ok(None) };
        let (address, size) = (header.sh_addr(LE), header.sh_size(LE));
        if header.sh_type(LE) == elf::SHT_NOBITS || size == 0 {
            return Ok(None);
        }
        if header.sh_flags(LE).0 & elf::SHF_COMPRESSED.0 != 0 {
            return Err(TableError::Compressed(name));
        }
        if size > SECTION_MAX {
            return Err(TableError::TooLarge { what: name, size, limit: SECTION_MAX });
        }
        Ok(Some(Section { address, bytes: self.source.bytes(header.sh_offset(LE), size)?, open: false }))
    }

    /// The first bytes of the section with this header.
    pub fn head(&self, header: &SectionHeader64<LE>, length: u64) -> Result<Vec<u8>, TableError> {
        self.source.bytes(header.sh_offset(LE), header.sh_size(LE).min(length))
    }

    /// `.eh_frame`, from its section or, as the C++ runtime does, through the segment `PT_GNU_EH_FRAME`.
    pub fn eh_frame(&self) -> Result<Option<Section>, TableError> {
        if let Some(section) = self.section(".eh_frame")? {
            return Ok(Some(section));
        }
        let Some(segment) = self.segments.iter().find(|segment| segment.p_type(LE) == elf::PT_GNU_EH_FRAME) else {
            return Ok(None);
        };
        let header = self.source.bytes(segment.p_offset(LE), segment.p_filesz(LE).min(EH_FRAME_HDR))?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(segment.p_vaddr(LE));
        let header = gimli::EhFrameHdr::new(&header, gimli::LittleEndian)
            .parse(&bases, 8)
            .map_err(|_| TableError::Malformed(".eh_frame_hdr"))?;
        let gimli::Pointer::Direct(address) = header.eh_frame_ptr() else {
            return Err(TableError::Malformed(".eh_frame_hdr"));
        };
        for segment in self.loaded() {
            let Some(skip) = address.checked_sub(segment.p_vaddr(LE)) else { continue };
            let length = segment.p_filesz(LE).saturating_sub(skip).min(SECTION_MAX);
            if length > 0 {
                let bytes = self.source.bytes(segment.p_offset(LE).saturating_add(skip), length)?;
                return Ok(Some(Section { address, bytes, open: true }));
            }
        }
        Ok(None)
    }
}
