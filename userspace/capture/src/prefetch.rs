//! Reads only those parts of a file that a first inspection needs: headers, the dynamic segment, the dynamic
//! symbols. A machine maps gigabytes of libraries, and nearly none of them is an interpreter.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};

/// Bytes per read; the dynamic symbols of the largest libraries have about 20 MB.
const PIECE_MAX: u64 = 64 << 20;
/// The ELF header and the program headers after it.
const HEAD: u64 = 4096;
const DYNAMIC_MAX: usize = 4096;

/// The file in memory, with zeros where it was not read: untouched pages cost nothing.
struct Sparse<'a> {
    file: &'a File,
    bytes: Vec<u8>,
}

impl Sparse<'_> {
    fn fill(&mut self, range: Range<u64>) -> Option<()> {
        let end = range.end.min(self.bytes.len() as u64);
        let length = end.checked_sub(range.start)?.min(PIECE_MAX);
        let start = usize::try_from(range.start).ok()?;
        let into = self.bytes.get_mut(start..start.checked_add(usize::try_from(length).ok()?)?)?;
        self.file.read_exact_at(into, range.start).ok()
    }
}

/// A buffer of the file's size in which its exported symbols and section names are filled in. `None` if it is
/// not a well-formed ELF file.
pub fn prefetch(file: &File, size: u64) -> Option<Vec<u8>> {
    let mut sparse = Sparse { file, bytes: vec![0; usize::try_from(size).ok()?] };
    sparse.fill(0..HEAD)?;
    let header = *FileHeader64::<LE>::parse(&*sparse.bytes).ok()?;
    let segments = header.program_headers(LE, &*sparse.bytes).ok()?.to_vec();
    let range = |segment: &elf::ProgramHeader64<LE>| {
        let start = segment.p_offset(LE);
        start..start.saturating_add(segment.p_filesz(LE))
    };
    if let Some(dynamic) = segments.iter().find(|segment| segment.p_type(LE) == elf::PT_DYNAMIC) {
        sparse.fill(range(dynamic))?;
        let entries = dynamic.dynamic(LE, &*sparse.bytes).ok().flatten().unwrap_or_default();
        let mut tables: Option<Range<u64>> = None;
        for entry in entries.iter().take(DYNAMIC_MAX) {
            let at = match entry.d_tag(LE) {
                elf::DT_SYMTAB | elf::DT_STRTAB | elf::DT_HASH | elf::DT_GNU_HASH => entry.d_val(LE),
                _ => continue,
            };
            let tables = tables.get_or_insert(at..at);
            *tables = tables.start.min(at)..tables.end.max(at);
        }
        let strings = entries.iter().find(|entry| entry.d_tag(LE) == elf::DT_STRSZ).map_or(0, |entry| entry.d_val(LE));
        if let Some(tables) = tables {
            // The tables are adjacent in one segment, with the strings last except for small ones. No entry
            // gives a table's end, so 1 MiB more is read.
            let end = tables.end.saturating_add(strings).saturating_add(1 << 20);
            let segment = segments.iter().find(|segment| {
                segment.p_type(LE) == elf::PT_LOAD
                    && tables.start.checked_sub(segment.p_vaddr(LE)).is_some_and(|skip| skip < segment.p_filesz(LE))
            })?;
            let to_file = |address: u64| address.wrapping_sub(segment.p_vaddr(LE)).saturating_add(segment.p_offset(LE));
            sparse.fill(to_file(tables.start)..to_file(end).min(range(segment).end))?;
        }
    }
    sections(&mut sparse, &header);
    Some(sparse.bytes)
}

/// Adds everything that is loaded, and the symbols that are not, to the result of [`prefetch`]. That leaves
/// out the debug information, which is most of an interpreter's file.
pub fn fill_loaded(file: &File, prefetched: Vec<u8>) -> Option<Vec<u8>> {
    let mut sparse = Sparse { file, bytes: prefetched };
    let header = *FileHeader64::<LE>::parse(&*sparse.bytes).ok()?;
    let segments = header.program_headers(LE, &*sparse.bytes).ok()?.to_vec();
    for segment in segments.iter().filter(|segment| segment.p_type(LE) == elf::PT_LOAD) {
        sparse.fill(segment.p_offset(LE)..segment.p_offset(LE).saturating_add(segment.p_filesz(LE)))?;
    }
    let sections = header.section_headers(LE, &*sparse.bytes).map(<[_]>::to_vec).unwrap_or_default();
    for symbols in sections.iter().filter(|section| section.sh_type(LE) == elf::SHT_SYMTAB) {
        let strings = sections.get(symbols.sh_link(LE) as usize);
        for section in std::iter::once(symbols).chain(strings) {
            sparse.fill(section.sh_offset(LE)..section.sh_offset(LE).saturating_add(section.sh_size(LE)))?;
        }
    }
    Some(sparse.bytes)
}

/// Like [`fill_loaded`], for a file not read before.
pub fn read_loaded(file: &File, size: u64) -> Option<Vec<u8>> {
    fill_loaded(file, prefetch(file, size)?)
}

/// The section table and its names; a stripped or truncated file may have none.
fn sections(sparse: &mut Sparse<'_>, header: &FileHeader64<LE>) -> Option<()> {
    let count = header.e_shnum.get(LE);
    let start = header.e_shoff(LE);
    sparse.fill(start..start.saturating_add(u64::from(count) * size_of::<elf::SectionHeader64<LE>>() as u64))?;
    let sections = header.section_headers(LE, &*sparse.bytes).ok()?;
    let names = sections.get(usize::from(header.e_shstrndx.get(LE).0))?;
    let (start, length) = (names.sh_offset(LE), names.sh_size(LE));
    sparse.fill(start..start.saturating_add(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Elf;

    /// The libraries mapped by this test itself, and programs of the system.
    fn files() -> impl Iterator<Item = std::path::PathBuf> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mapped: std::collections::BTreeSet<String> =
            maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5)).map(str::to_owned).collect();
        let programs = ["/usr/bin/env", "/usr/bin/python3"].map(str::to_owned);
        mapped.into_iter().chain(programs).filter(|path| path.starts_with('/')).map(Into::into)
    }

    #[test]
    fn what_was_skimmed_says_the_same_of_exports_and_sections_as_the_whole_file() {
        let mut compared = 0;
        for path in files() {
            let Ok(whole) = std::fs::read(&path) else { continue };
            let Ok(elf) = Elf::parse(&whole) else { continue };
            let prefetched = prefetch(&File::open(&path).unwrap(), whole.len() as u64).unwrap();
            let part = Elf::parse(&prefetched).unwrap();
            for name in ["pthread_getspecific", "_PyRuntime", "malloc", "_thread_db_pthread_specific", "no_such_thing"]
            {
                assert_eq!(part.exported(name), elf.exported(name), "{name} in {}", path.display());
            }
            for name in [&b".PyRuntime"[..], b".text", b".dynsym"] {
                assert_eq!(part.has_section(name), elf.has_section(name), "section in {}", path.display());
            }
            compared += 1;
        }
        assert!(compared >= 2, "{compared} files");
    }

    #[test]
    fn garbage_is_none() {
        let path = std::env::temp_dir().join(format!("pyobs-skim-{}", std::process::id()));
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        for end in [0, 10, 63, 64, 100, 4095, 5000] {
            std::fs::write(&path, &bytes[..end]).unwrap();
            let _ = prefetch(&File::open(&path).unwrap(), end as u64);
        }
        for at in (16..1024).step_by(3) {
            bytes[at] ^= 0xff;
            std::fs::write(&path, &bytes[..200_000.min(bytes.len())]).unwrap();
            let _ = prefetch(&File::open(&path).unwrap(), 1 << 20);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
