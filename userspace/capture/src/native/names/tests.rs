//! Tests of native names: this process's own functions, and handmade files.

use std::arch::asm;
use std::ffi::{CStr, CString, c_void};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::*;

fn source(path: &Path, file: File) -> Source {
    let metadata = file.metadata().unwrap();
    let id = FileId { device: (0, metadata.dev() as u32), inode: metadata.ino() };
    Source { id, file: Arc::new(file), path: path.to_owned(), root: PathBuf::from("/proc/self/root") }
}

fn open(path: &Path) -> Source {
    source(path, File::open(path).unwrap())
}

/// The object that contains an address, the address in it, and its symbol's address, by the dynamic linker.
fn place(address: *const c_void) -> (PathBuf, u64, *const c_void) {
    // SAFETY: all zeros are a valid value of this type.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` accepts any address and writes only to `info`.
    assert_ne!(unsafe { libc::dladdr(address, &raw mut info) }, 0);
    // SAFETY: a successful `dladdr` has set the name, which lives as long as the object.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_str().unwrap();
    (PathBuf::from(path), address as u64 - info.dli_fbase as u64, info.dli_saddr)
}

fn symbol(name: &str) -> *const c_void {
    let name = CString::new(name).unwrap();
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

fn functions(names: &[Name]) -> Vec<&str> {
    names.iter().map(|name| &*name.function).collect()
}

/// An address in this function, and its line.
#[inline(always)]
fn inlined() -> (u64, u32) {
    let after: u64;
    #[cfg(target_arch = "x86_64")]
    #[rustfmt::skip]
    // SAFETY: this only reads a register.
    let line = unsafe { asm!("lea {}, [rip]", out(reg) after); line!() };
    #[cfg(target_arch = "aarch64")]
    #[rustfmt::skip]
    // SAFETY: this only reads a register.
    let line = unsafe { asm!("adr {}, . + 4", out(reg) after); line!() };
    (after - 1, line)
}

#[inline(never)]
fn inlines() -> ((u64, u32), u32) {
    (inlined(), line!())
}

#[test]
fn own_functions_have_their_names_lines_and_inlined_calls() {
    let ((address, inner), outer) = inlines();
    let (_, address, _) = place(address as *const c_void);
    let source = open(&std::env::current_exe().unwrap());
    let found = Names::default().look_up(&source, &[address]).remove(0);
    let names = functions(&found);
    // The standard library reads the same debug information, if there is any.
    if std::backtrace::Backtrace::force_capture().to_string().contains("names/tests.rs:") {
        assert!(names.len() == 2 && names[0].ends_with("inlines") && names[1].ends_with("inlined"), "{names:?}");
        assert_eq!((found[0].line, found[1].line), (Some(outer), Some(inner)));
        assert!(
            found.iter().all(|name| name.file.as_deref().is_some_and(|file| file.ends_with("names/tests.rs"))),
            "{found:?}"
        );
    } else {
        assert!(names.len() == 1 && names[0].ends_with("inlines"), "{names:?}");
    }
}

#[test]
fn code_is_found_by_its_offset_in_the_file() {
    let inlines = inlines as *const c_void;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let offset = maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let [start, end, offset] = [start, end, words.nth(1)?].map(|word| u64::from_str_radix(word, 16).unwrap());
        (start..end).contains(&(inlines as u64)).then(|| inlines as u64 - start + offset)
    });
    let (_, address, _) = place(inlines);
    let source = open(&std::env::current_exe().unwrap());
    let mut names = Names::default();
    let by_offset = names.look_up_offsets(&source, &[offset.unwrap(), u64::MAX]);
    assert!(by_offset[0][0].function.ends_with("inlines"), "{by_offset:?}");
    assert_eq!((&by_offset[0], by_offset[1].len()), (&names.look_up(&source, &[address])[0], 0));
}

#[test]
fn functions_of_the_c_library_are_those_of_the_dynamic_linker() {
    let mut names = Names::default();
    for name in ["qsort", "getenv", "strtol", "fopen", "setlocale", "pthread_mutex_lock"] {
        let start = symbol(name);
        assert!(!start.is_null());
        let (path, address, exact) = place(start);
        assert_eq!(exact, start);
        let found = names.look_up(&open(&path), &[address, address + 1]);
        for found in found {
            // The function has other names at the same address.
            assert_eq!(symbol(&found[0].function), start, "{name} is {found:?}");
        }
    }
}

#[test]
fn a_file_that_was_deleted_still_has_its_names() {
    let path = std::env::temp_dir().join(format!("pyobs-names-deleted-{}", std::process::id()));
    std::fs::copy("/proc/self/exe", &path).unwrap();
    let source = open(&path);
    std::fs::remove_file(&path).unwrap();
    let (_, address, _) = place(inlines as *const c_void);
    let found = Names::default().look_up(&source, &[address]).remove(0);
    assert!(found[0].function.ends_with("inlines"), "{found:?}");
}

/// A section of a handmade ELF file.
struct Made {
    name: &'static str,
    kind: elf::SectionType,
    flags: u64,
    address: u64,
    link: u32,
    bytes: Vec<u8>,
}

fn data(name: &'static str, bytes: Vec<u8>) -> Made {
    Made { name, kind: elf::SHT_PROGBITS, flags: 0, address: 0, link: 0, bytes }
}

const CODE: u64 = 0x1000;

fn code() -> Made {
    let flags = elf::SHF_EXECINSTR.0;
    Made { kind: elf::SHT_NOBITS, flags, address: CODE, ..data(".text", vec![0; 0x2000]) }
}

/// Two sections: symbols given as (name, type, address, size), and their names. They come after `before`
/// other sections.
fn symbols(before: u32, list: &[(&str, elf::SymbolType, u64, u64)]) -> [Made; 2] {
    let mut names = vec![0];
    let mut bytes = vec![0; 24];
    for (name, kind, address, size) in list {
        bytes.extend((names.len() as u32).to_le_bytes());
        bytes.extend([elf::STB_GLOBAL.0 << 4 | kind.0, 0, 1, 0]);
        bytes.extend(address.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        names.extend(name.bytes().chain([0]));
    }
    let table = Made { kind: elf::SHT_SYMTAB, link: before + 2, ..data(".symtab", bytes) };
    [table, Made { kind: elf::SHT_STRTAB, ..data(".strtab", names) }]
}

fn build_id(id: u8) -> Made {
    let mut bytes = [4_u32, 20, 3].map(u32::to_le_bytes).concat();
    bytes.extend(b"GNU\0");
    bytes.extend([id; 20]);
    Made { kind: elf::SHT_NOTE, ..data(".note.gnu.build-id", bytes) }
}

fn file_of(sections: impl IntoIterator<Item = Made>) -> Vec<u8> {
    let mut sections: Vec<Made> = sections.into_iter().collect();
    sections.insert(0, Made { kind: elf::SHT_NULL, ..data("", Vec::new()) });
    let names: String = sections.iter().map(|section| format!("{}\0", section.name)).collect();
    sections.push(data("", names.into_bytes()));
    let table = 64;
    let mut bytes = vec![0; table + sections.len() * 64];
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    bytes[40..48].copy_from_slice(&(table as u64).to_le_bytes());
    let counts = [64, 0, 0, 64, sections.len() as u16, sections.len() as u16 - 1];
    bytes[52..64].copy_from_slice(&counts.map(u16::to_le_bytes).concat());
    let mut name = 0_u32;
    for (index, section) in sections.iter().enumerate() {
        let words = [section.flags, section.address, bytes.len() as u64, section.bytes.len() as u64];
        let mut header = [name.to_le_bytes(), section.kind.0.to_le_bytes()].concat();
        header.extend(words.map(u64::to_le_bytes).concat());
        header.extend(section.link.to_le_bytes());
        bytes[table + index * 64..][..header.len()].copy_from_slice(&header);
        name += section.name.len() as u32 + 1;
        if section.kind != elf::SHT_NOBITS {
            bytes.extend(&section.bytes);
        }
    }
    bytes
}

/// A file with these bytes, already unlinked.
fn file(bytes: &[u8]) -> Source {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("pyobs-names-{}-{count}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let mut source = open(&path);
    std::fs::remove_file(&path).unwrap();
    // File systems reuse the inode of an unlinked file.
    source.id.inode = count;
    source
}

fn first(names: &mut Names, source: &Source, address: u64) -> Option<String> {
    names.look_up(source, &[address]).remove(0).first().map(|name| name.function.to_string())
}

#[test]
fn a_symbol_reaches_as_far_as_it_says() {
    let list = [
        ("sized", elf::STT_FUNC, CODE, 0x10),
        ("outer", elf::STT_FUNC, CODE + 0x100, 0x100),
        ("inner", elf::STT_FUNC, CODE + 0x120, 0x10),
        ("label", elf::STT_NOTYPE, CODE + 0x140, 0),
        ("__twin", elf::STT_FUNC, CODE + 0x300, 0x10),
        ("twin", elf::STT_FUNC, CODE + 0x300, 0x10),
        ("unsized", elf::STT_NOTYPE, CODE + 0x400, 0),
        ("variable", elf::STT_OBJECT, CODE + 0x500, 0x10),
        ("outside", elf::STT_FUNC, 0x10, 0x10),
    ];
    let source = file(&file_of(std::iter::once(code()).chain(symbols(1, &list))));
    let mut names = Names::default();
    let mut at = |address| first(&mut names, &source, address);
    assert_eq!(at(CODE - 1), None);
    assert_eq!(at(CODE).as_deref(), Some("sized"));
    assert_eq!(at(CODE + 0xf).as_deref(), Some("sized"));
    assert_eq!(at(CODE + 0x10), None);
    assert_eq!(at(CODE + 0x12f).as_deref(), Some("inner"));
    assert_eq!(at(CODE + 0x130).as_deref(), Some("outer"));
    assert_eq!(at(CODE + 0x150).as_deref(), Some("outer"));
    assert_eq!(at(CODE + 0x200), None);
    assert_eq!(at(CODE + 0x300).as_deref(), Some("twin"));
    assert_eq!(at(CODE + 0x400).as_deref(), Some("unsized"));
    assert_eq!(at(CODE + 0x1fff).as_deref(), Some("unsized"));
    assert_eq!(at(CODE + 0x2000), None);
    assert_eq!(at(0x10), None);
    assert_eq!(at(u64::MAX), None);
}

#[test]
fn a_stub_is_called_after_the_function_that_it_leads_to() {
    let names = symbols(1, &[("one", elf::STT_FUNC, 0, 0), ("_ZN2at6nativeE", elf::STT_FUNC, 0, 0)]).map(|mut made| {
        (made.kind, made.name) = match made.kind {
            elf::SHT_SYMTAB => (elf::SHT_DYNSYM, ".dynsym"),
            kind => (kind, ".dynstr"),
        };
        made
    });
    let relocations = [2_u64, 1].iter().flat_map(|symbol| [0, symbol << 32 | 7, 0].map(u64::to_le_bytes).concat());
    let relocations = data(".rela.plt", relocations.collect());
    let plt = Made { name: ".plt", ..code() };
    let source = file(&file_of([plt].into_iter().chain(names).chain([relocations])));
    let mut names = Names::default();
    let mut at = |address| first(&mut names, &source, address);
    let start = CODE + if cfg!(target_arch = "aarch64") { 32 } else { 16 };
    assert_eq!(at(CODE), None);
    assert_eq!(at(start).as_deref(), Some("at::native@plt"));
    assert_eq!(at(start + 31).as_deref(), Some("one@plt"));
    assert_eq!(at(start + 32), None);
}

#[test]
fn a_name_is_demangled_and_cut() {
    let long = "x".repeat(5000);
    let list = [("_ZN2at6nativeE", elf::STT_FUNC, CODE, 8), (&*long, elf::STT_FUNC, CODE + 8, 8)];
    let source = file(&file_of(std::iter::once(code()).chain(symbols(1, &list))));
    let mut names = Names::default();
    assert_eq!(first(&mut names, &source, CODE).as_deref(), Some("at::native"));
    assert_eq!(first(&mut names, &source, CODE + 8).map(|name| name.len()), Some(NAME_MAX));
}

#[test]
fn debug_files_are_found_under_the_root_of_the_process() {
    let root = std::env::temp_dir().join(format!("pyobs-names-root-{}", std::process::id()));
    let folder = root.join("usr/lib/debug/.build-id/ab");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir_all(root.join("srv/.debug")).unwrap();
    let debug =
        |id, name| file_of([code(), build_id(id)].into_iter().chain(symbols(2, &[(name, elf::STT_FUNC, CODE, 8)])));
    let mut link = b"lib.debug\0\0\0".to_vec();
    link.extend([0; 4]);
    let bytes = file_of([code(), build_id(0xab), data(".gnu_debuglink", link)]);
    let inspect = || {
        let mut source = file(&bytes);
        source.path = PathBuf::from("/srv/lib.so");
        source.root.clone_from(&root);
        first(&mut Names::default(), &source, CODE)
    };
    assert_eq!(inspect(), None);
    std::fs::write(root.join("srv/.debug/lib.debug"), debug(0xab, "linked")).unwrap();
    assert_eq!(inspect().as_deref(), Some("linked"));
    // From another build.
    let by_id = folder.join(format!("{}.debug", "ab".repeat(19)));
    std::fs::write(&by_id, debug(0xcd, "other")).unwrap();
    assert_eq!(inspect().as_deref(), Some("linked"));
    std::fs::remove_file(&by_id).unwrap();
    std::fs::write(root.join("srv/by-id"), debug(0xab, "by id")).unwrap();
    std::os::unix::fs::symlink("/srv/by-id", &by_id).unwrap();
    assert_eq!(inspect().as_deref(), Some("by id"));
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_file_in_the_place_of_another_is_read_anew_and_tables_that_went_do_not_matter() {
    let one = |name| file(&file_of(std::iter::once(code()).chain(symbols(1, &[(name, elf::STT_FUNC, CODE, 8)]))));
    let mut names = Names::default();
    let before = one("before");
    let mut after = one("afterwards");
    after.id = before.id;
    assert_eq!(first(&mut names, &before, CODE).as_deref(), Some("before"));
    assert_eq!(first(&mut names, &after, CODE).as_deref(), Some("afterwards"));
    for _ in 0..FILES_MAX + 1 {
        assert_eq!(first(&mut names, &one("many"), CODE).as_deref(), Some("many"));
    }
    assert_eq!(names.files.len(), FILES_MAX);
    assert_eq!(first(&mut names, &before, CODE).as_deref(), Some("before"));
    assert_eq!(first(&mut names, &before, CODE + 7).as_deref(), Some("before"));
}

/// Debug information of one function with these entries in it. They may use abbreviation 3 (an inlined call
/// without attributes, with children) and 4 (one with a range list at offset 0).
fn debug_info(entries: &[u8], ranges: &[u8]) -> Vec<u8> {
    let abbreviations: [&[u8]; 4] = [
        &[1, 0x11, 1, 0x11, 0x01, 0x12, 0x07, 0x55, 0x17, 0, 0],
        &[2, 0x2e, 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0],
        &[3, 0x1d, 1, 0, 0],
        &[4, 0x1d, 0, 0x03, 0x08, 0x55, 0x17, 0, 0, 0],
    ];
    let mut info = vec![4, 0, 0, 0, 0, 0, 8, 1];
    info.extend([CODE, 0x100].map(u64::to_le_bytes).concat());
    info.extend(0_u32.to_le_bytes());
    info.extend(b"\x02victim\0");
    info.extend([CODE, 0x100].map(u64::to_le_bytes).concat());
    info.extend(entries);
    info.splice(0..0, (info.len() as u32).to_le_bytes());
    // Relative to the unit's start.
    let mut all = [0_u64, 0x100].map(u64::to_le_bytes).concat();
    all.extend(ranges);
    all.extend([0; 16]);
    file_of([
        code(),
        data(".debug_info", info),
        data(".debug_abbrev", abbreviations.concat()),
        data(".debug_ranges", all),
    ])
}

#[test]
fn debug_information_is_read_without_recursion_and_without_end() {
    let call = b"\x04call\0\0\0\0\0";
    let source = file(&debug_info(call, &[]));
    let found = Names::default().look_up(&source, &[CODE + 1, CODE + 0x100]);
    assert_eq!((functions(&found[0]), found[1].len()), (vec!["victim", "call"], 0));
    // Deeply nested calls, and a long range list shared by many calls.
    let ranges = [0_u64, 0x100].map(u64::to_le_bytes).concat().repeat(60_000);
    for hostile in [debug_info(&[3; 1 << 20], &[]), debug_info(&call.repeat(50_000), &ranges)] {
        let inspect = move || {
            let mut names = Names::default();
            let found = names.look_up(&file(&hostile), &[CODE + 1]).remove(0);
            assert_eq!(functions(&found).first(), Some(&"victim"));
            assert!(found.len() <= 65, "{} calls", found.len());
        };
        std::thread::Builder::new().stack_size(128 << 10).spawn(inspect).unwrap().join().unwrap();
    }
}

#[test]
fn garbage_has_no_names_and_does_no_harm() {
    let mut names = Names::default();
    for bytes in [&b""[..], b"\x7fELF", &[0; 64], &[0xff; 5000]] {
        assert_eq!(first(&mut names, &file(bytes), CODE), None);
    }
    let list = [("one", elf::STT_FUNC, CODE, 0x20), ("two", elf::STT_FUNC, CODE + 0x20, 0)];
    let mut sections = vec![code()];
    sections.extend(symbols(1, &list));
    for whole in [file_of(sections), debug_info(b"\x04call\0\0\0\0\0", &[])] {
        for at in 0..whole.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let _ = names.look_up(&file(&bytes), &[CODE + 1, CODE + 0x21]);
            }
        }
        for end in (0..whole.len()).step_by(61) {
            let _ = names.look_up(&file(&whole[..end]), &[CODE + 1]);
        }
    }
}

#[test]
fn only_the_own_file_of_a_process_is_its_map() {
    let path = format!("/tmp/perf-{}.map", std::process::id());
    let mut names = Names::default();
    let mut inspect = || names.look_up_jit(std::process::id(), &[0x1234, 0x1300]);
    assert_eq!(inspect(), [[], []]);
    std::fs::write(&path, b"1200 100 mine\n").unwrap();
    let mine = Name { function: Arc::from("mine"), file: None, line: None };
    assert_eq!(inspect(), [vec![mine], vec![]]);
    let other = format!("/tmp/pyobs-other-{}", std::process::id());
    std::fs::rename(&path, &other).unwrap();
    std::os::unix::fs::symlink(&other, &path).unwrap();
    assert_eq!(inspect(), [[], []]);
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&other).unwrap();
}
