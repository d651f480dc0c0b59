//! Fuzz targets for all code that parses untrusted input: it must not panic, run for long or use much memory.
//!
//! `cargo xtask fuzz` looks for inputs that break a target; `tests/fuzz.rs` runs the targets on inputs that
//! once did.

mod image;

use std::fs::File;
use std::io::{BufReader, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use self::image::image;
use crate::cpython::asyncio_debug::AsyncioOffsets;
use crate::cpython::debug_offsets;
use crate::cpython::entries;
use crate::cpython::find::inspect;
use crate::cpython::lines::{Format, LineTable};
use crate::cpython::long_table::LongTable;
use crate::cpython::names::{LongTables, read_code};
use crate::cpython::offsets::{Layout, layout_for};
use crate::cpython::operands;
use crate::cpython::version::Version;
use crate::dump::fuzz as dump;
use crate::elf::Elf;
use crate::families::shm::resident;
use crate::files::FileId;
use crate::libc_layout::inspect_libc;
use crate::machine;
use crate::memory::Memory;
use crate::native::names::{Names, Source, demangle, perf_map};
use crate::native::table;
use crate::pipeline::decode::Record;
use crate::prefetch::{fill_loaded, prefetch};
use crate::process_maps::{Mappings, lines};
use crate::registry;

/// A target's name, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 13] = [
    ("records", records),
    ("elf", elf),
    ("unwind", unwind),
    ("dwarf", dwarf),
    ("perf-maps", perf_maps),
    ("proc", proc),
    ("line-tables", line_tables),
    ("code-objects", code_objects),
    ("debug-offsets", debug_offsets_),
    ("asyncio-debug", asyncio_debug),
    ("frames", frames),
    ("bytecode", bytecode),
    ("symbols", symbols),
];

/// The versions with known structures, and one of each that describes its own.
fn version(number: u8) -> Version {
    Version::new(3, 6 + number % 9, 0)
}

fn layout(number: u8) -> Option<&'static Layout> {
    layout_for(&version(number), false)
}

/// Memory in which every address contains one of the input's bytes, so that every pointer is valid.
struct Everywhere<'a>(&'a [u8]);

impl Memory for Everywhere<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> std::io::Result<()> {
        if self.0.is_empty() {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        let start = (address % self.0.len() as u64) as usize;
        let bytes = self.0.iter().cycle().skip(start);
        into.iter_mut().zip(bytes).for_each(|(into, byte)| *into = *byte);
        Ok(())
    }
}

/// Records in the ring buffer. The kernel side writes them, with data copied from watched processes.
fn records(input: &[u8]) {
    let Some(record) = Record::parse(input, registry::kind) else { return };
    let Record::Code(copy) = &record else {
        record.stack();
        return;
    };
    for layout in (0..9).filter_map(layout) {
        let _ = copy.name(layout, None);
    }
}

/// The inspection of a mapped file.
fn elf(input: &[u8]) {
    let _ = inspect(input);
    let _ = inspect_libc(input);
    if let Ok(elf) = Elf::parse(input) {
        elf.soname();
        elf.search_path();
        elf.needed().count();
        elf.symbols().chain(elf.exported_symbols()).take(1000).for_each(drop);
        elf.exported("Py_Version");
        for relocation in elf.relocations().take(1000) {
            elf.relocation_symbol(&relocation);
        }
        let _ = (elf.code_delta(), elf.header(), elf.tls(), elf.section(b".PyRuntime"));
        for minor in [8, 12, 13] {
            entries::find(&elf, Version::new(3, minor, 0));
        }
    }
    if let Some(file) = file(input) {
        let prefetched = prefetch(&file, input.len() as u64);
        prefetched.and_then(|prefetched| fill_loaded(&file, prefetched));
    }
}

/// An ELF file's call frame information, or the contents of its `.eh_frame`.
fn unwind(input: &[u8]) {
    let _ = table::of_memory(input);
    let _ = table::of_memory(&image(&[(".eh_frame", input)]));
}

/// The sections from which functions get their names and lines.
fn dwarf(input: &[u8]) {
    const SECTIONS: [&str; 6] =
        [".debug_abbrev", ".debug_line", ".debug_str", ".debug_rnglists", ".symtab", ".debug_info"];
    let mut rest = input;
    let parts = SECTIONS.map(|name| {
        // The last section gets the rest of the input.
        let is_last = Some(&name) == SECTIONS.last();
        let length = rest.split_first_chunk::<2>().filter(|_| !is_last).map_or(rest.len(), |(length, behind)| {
            rest = behind;
            usize::from(u16::from_le_bytes(*length)).min(behind.len())
        });
        let (part, behind) = rest.split_at(length);
        rest = behind;
        (name, part)
    });
    let Some(file) = file(&image(&parts)) else { return };
    let nowhere = PathBuf::from("/proc/self/fd/none");
    let id = FileId { device: (0, 0), inode: 1 };
    let source = Source { id, file: Arc::new(file), path: nowhere.clone(), root: nowhere };
    let addresses: Vec<u64> = (0..64).map(|number| image::CODE + number * number).collect();
    Names::default().look_up(&source, &addresses);
}

fn perf_maps(input: &[u8]) {
    if let Some(file) = file(input) {
        perf_map::in_file(file, &[0, 1, 0x1000, 0x7f00_0000_1000, u64::MAX]);
    }
}

/// `maps`, `smaps` and `status` of a process.
fn proc(input: &[u8]) {
    let _ = lines::parse(BufReader::new(input), 1 << 10, |line| {
        let _ = (line.is_writable(), line.is_shared(), line.is_plain());
        ControlFlow::Continue(())
    });
    if let Ok(mappings) = Mappings::parse(BufReader::new(input)) {
        mappings.find(0x1000);
        mappings.is_same(&mappings);
    }
    let text = String::from_utf8_lossy(input);
    for line in text.lines() {
        resident::head(line);
    }
    machine::of_status(&text);
}

/// A table gives the same lines whether it is kept or read in pieces.
fn line_tables(input: &[u8]) {
    let Some(([minor, first, step], table)) = input.split_first_chunk::<3>().filter(|(_, table)| !table.is_empty())
    else {
        // An empty table is never read in pieces.
        return;
    };
    let (format, first_line) = (Format::of(6 + minor % 9), u32::from(*first));
    let short = LineTable { format, first_line, bytes: table.into() };
    let memory = Everywhere(table);
    let long = LongTable::read(&memory, 0, table.len() as u64, format, first_line);
    for address in (0..64).map(|number| number * (1 + u32::from(*step))) {
        let line = short.line(address);
        if let Ok(Ok(of_long)) = long.as_ref().map(|long| long.line(&memory, address)) {
            assert_eq!(line, of_long, "{format:?} at {address}");
        }
    }
}

fn code_objects(input: &[u8]) {
    let Some(([number, address], bytes)) = input.split_first_chunk::<2>() else { return };
    if let Some(layout) = layout(*number) {
        code_object(bytes, layout, (*address).into());
    }
}

fn code_object(bytes: &[u8], layout: &Layout, address: u64) {
    let memory = Everywhere(bytes);
    for long_tables in [LongTables::Read, LongTables::LeaveOut] {
        if let Ok(code) = read_code(&memory, address, 0, layout, None, long_tables) {
            for offset in [-1, 0, 2, 100] {
                let _ = code.line(offset, &memory);
            }
        }
    }
}

/// A process's `_Py_DebugOffsets`, and a code object with the layout that it describes.
fn debug_offsets_(input: &[u8]) {
    let Some((minor, bytes)) = input.split_first() else { return };
    let version = Version::new(3, 13 + minor % 3, 0);
    let hex = u64::from_be_bytes([0, 0, 0, 0, version.major, version.minor, version.micro, 0xf0]);
    let bytes: Vec<u8> = debug_offsets::COOKIE.iter().chain(&hex.to_le_bytes()).chain(bytes).copied().collect();
    if let Ok(layout) = debug_offsets::read(&Everywhere(&bytes), 0, version) {
        code_object(&bytes, &layout, 8);
    }
}

/// `_asyncio`'s table of offsets.
fn asyncio_debug(input: &[u8]) {
    let _ = AsyncioOffsets::read(&Everywhere(input), 0);
}

/// The frames of a thread, and the files that a dump reads beside them.
fn frames(input: &[u8]) {
    let Some(([number, state], bytes)) = input.split_first_chunk::<2>() else { return };
    if let Some(layout) = layout(*number) {
        dump::frames_of(&Everywhere(bytes), layout, (*state).into());
    }
    dump::files_of(&String::from_utf8_lossy(bytes));
}

fn bytecode(input: &[u8]) {
    let Some(([number, at], bytes)) = input.split_first_chunk::<2>() else { return };
    operands::at(version(*number), bytes, usize::from(*at) * 2);
    if let Some(layout) = layout(*number) {
        operands::locate(&Everywhere(bytes), version(*number), layout, (*at).into(), 2 * u32::from(*at));
    }
}

/// Names of native functions.
fn symbols(input: &[u8]) {
    let name = String::from_utf8_lossy(input);
    demangle::demangle(&name);
    for name in ["_Z", "_R", "_ZN"].map(|prefix| format!("{prefix}{name}")) {
        demangle::demangle(&name);
    }
}

/// A file in memory with these contents.
fn file(content: &[u8]) -> Option<File> {
    let memory = rustix::fs::memfd_create(c"pyobs-fuzz", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    let mut file = File::from(memory);
    file.write_all(content).ok()?;
    Some(file)
}
