//! Tests what is found in the installed interpreters, and that nothing is found in other files.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pyobs_capture::cpython::find::{InspectError, Interpreter, LayoutSource, inspect};
use pyobs_capture::cpython::thread_local::TlsAccess;
use pyobs_capture::cpython::version::Version;
use pyobs_capture::elf::Elf;
use pyobs_capture::libc_layout::inspect_libc;
use pyobs_tests::{Case, case};

use crate::generator;

pub fn cases() -> Vec<Case> {
    let one = one();
    vec![
        case("interpreters/every_interpreter_is_recognised_with_all_its_versions_parts", recognised).needs(one.clone()),
        case("interpreters/disassembly_agrees_with_the_symbols_of_unstripped_files", symbols).needs(unstripped()),
        case("interpreters/nothing_is_found_in_other_files_and_quickly", nothing_else),
        case("interpreters/an_interpreter_that_is_too_old_is_reported", too_old).needs(cpython_2_7()),
        case("interpreters/truncated_or_overwritten_files_never_panic", broken).needs(one),
    ]
}

/// The variables with the thread's state, its key and the list of interpreters.
const VARIABLES: [&[u8]; 3] = [THREAD_STATE, KEY, INTERPRETERS];
const THREAD_STATE: &[u8] = b"_Py_tss_tstate";
const KEY: &[u8] = b"autoTLSkey";
const INTERPRETERS: &[u8] = b"interp_head";

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// All interpreter files on this machine, launchers and other versions included, and those in PYOBS_TEST_INTERPRETERS
/// (paths, separated by colons).
fn files() -> Vec<PathBuf> {
    let mut files = generator::find_interpreters();
    files.extend(std::env::var_os("PYOBS_TEST_INTERPRETERS").iter().flat_map(std::env::split_paths));
    files
}

fn interpreters() -> Vec<(PathBuf, Interpreter)> {
    files()
        .into_iter()
        .filter_map(|path| {
            let found = match inspect(&read(&path)) {
                Ok(found) => found?,
                Err(error) => panic!("{}: {error}", path.display()),
            };
            Some((path, found))
        })
        .collect()
}

fn one() -> Result<(), String> {
    // An unreadable interpreter must fail a case rather than skip it.
    let is_one = |path: &PathBuf| !matches!(inspect(&read(path)), Ok(None));
    if files().iter().any(is_one) { Ok(()) } else { Err("there is no CPython here".to_owned()) }
}

/// An interpreter with symbols for what is otherwise found by disassembly.
fn unstripped() -> Result<(), String> {
    let is_one = |path: &PathBuf| {
        let data = read(path);
        Elf::parse(&data).is_ok_and(|elf| elf.symbols().any(|(name, _)| VARIABLES.contains(&name)))
    };
    if files().iter().any(is_one) { Ok(()) } else { Err("there is no CPython here with its symbols".to_owned()) }
}

fn cpython_2_7() -> Result<PathBuf, String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let version = home.join(".pyenv/versions/2.7.18");
    let files = [version.join("lib/libpython2.7.so.1.0"), version.join("bin/python2.7")];
    files.into_iter().find(|path| path.exists()).ok_or_else(|| "there is no CPython 2.7.18 in ~/.pyenv".to_owned())
}

/// The minor version by the file's name, such as `libpython3.8.so.1.0`, `python3.11` or `python3.12d`. pyobs itself
/// must never rely on the name.
pub fn minor_of_name(path: &Path) -> Option<u8> {
    let (_, version) = path.file_name()?.to_str()?.split_once("3.")?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn recognised() {
    let found = interpreters();
    assert!(!found.is_empty());
    for (file, interpreter) in found {
        let version = interpreter.version;
        let path = format!("{}: {interpreter:x?}", file.display());
        assert_eq!((version.major, version.minor), (3, minor_of_name(&file).unwrap_or(version.minor)), "{path}");
        if let Some((_, of_folder)) = file.to_str().unwrap().split_once("/.pyenv/versions/") {
            assert_eq!(version.to_string(), of_folder.split('/').next().unwrap(), "{path}");
        }
        assert_eq!(interpreter.runtime.is_some(), version.since(7), "{path}");
        assert_eq!(interpreter.current.is_some(), !version.since(12), "{path}");
        assert_eq!(interpreter.thread_state.key.is_some(), !version.since(15), "{path}");
        assert_eq!(interpreter.thread_state.tls.is_some(), version.since(12), "{path}");
        assert!(interpreter.interpreters_head.is_some(), "{path}");
        for type_ in [interpreter.code_type, interpreter.unicode_type, interpreter.bytes_type, interpreter.none] {
            assert!(type_.is_some(), "{path}");
        }
        assert_eq!(matches!(interpreter.layout, LayoutSource::DebugOffsets), version.since(13), "{path}");
        // The loop is tens of kilobytes in any build; less would be only a part of it.
        let code: u64 = interpreter.loops.iter().map(|range| range.end - range.start).sum();
        assert!((10_000..1 << 20).contains(&code), "{path}: {code} bytes in {:x?}", interpreter.loops);
        if let (LayoutSource::Table(layout), Some(runtime)) = (interpreter.layout, &interpreter.runtime) {
            let key = interpreter.thread_state.key.unwrap();
            assert_eq!(
                key.initialized,
                Some(runtime.start + u64::from(layout.runtime.auto_tss_key.unwrap())),
                "{path}"
            );
            assert_eq!(key.key, key.initialized.unwrap() + 4, "{path}");
            let current = layout.runtime.tstate_current.map(|offset| runtime.start + u64::from(offset));
            assert_eq!(interpreter.current, current, "{path}");
            let head = layout.runtime.interpreters_head.map(|offset| runtime.start + u64::from(offset));
            assert_eq!(interpreter.interpreters_head, head, "{path}");
        }
    }
}

fn symbols() {
    for (path, interpreter) in interpreters() {
        let data = read(&path);
        let elf = Elf::parse(&data).unwrap();
        let named = |name: &[u8]| elf.symbols().find(|(other, _)| *other == name).map(|(_, symbol)| symbol);
        let path = path.display();
        // Only the access by module and offset shows the variable's address.
        if let Some(variable) = named(THREAD_STATE)
            && let TlsAccess::Dynamic { offset, .. } = interpreter.thread_state.tls.unwrap()
        {
            assert_eq!(offset, variable.address, "{path}");
        }
        if let Some(key) = named(KEY) {
            assert_eq!(interpreter.thread_state.key.unwrap().key, key.address, "{path}");
        }
        if let Some(head) = named(INTERPRETERS) {
            assert_eq!(interpreter.interpreters_head, Some(head.address), "{path}");
        }
    }
}

fn nothing_else() {
    let mut paths: Vec<PathBuf> =
        ["/bin/ls", "/bin/sh", "/usr/bin/gdb", "/usr/bin/gcc"].into_iter().map(PathBuf::from).collect();
    paths.extend(std::fs::read_dir("/lib/x86_64-linux-gnu").into_iter().flatten().flatten().map(|entry| entry.path()));
    paths.extend(files().into_iter().filter(|path| path.to_str().unwrap().contains("/.pyenv/versions/")));
    let (mut asked, mut spent) = (0, Duration::ZERO);
    for path in paths.iter().filter(|path| path.is_file()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        // Debian's gdb has an interpreter in a shared libpython.
        if name.starts_with("libpython3.") && !name.starts_with("libpython3.so") {
            continue;
        }
        let data = read(path);
        let start = Instant::now();
        match inspect(&data) {
            Ok(found) => assert_eq!(found, None, "{}", path.display()),
            Err(error) => assert!(matches!(error, InspectError::Elf(_)), "{}: {error}", path.display()),
        }
        (asked, spent) = (asked + 1, spent + start.elapsed());
        if let Some(layout) = inspect_libc(&data).ok().flatten() {
            assert!(
                name.starts_with("libc.so") || name.starts_with("libc-2") || name.starts_with("libpthread"),
                "{name}"
            );
            // glibc has always had 1,024 keys in blocks of 32.
            assert_eq!((layout.level1_size, layout.level2_size, layout.element_size), (32, 32, 16), "{layout:?}");
        }
    }
    assert!(asked > 0);
    // It takes a hundredth of a second in total; the bound allows for a busy machine.
    assert!(spent < Duration::from_secs(10), "asked {asked} files in {spent:?}");
}

fn too_old() {
    let path = cpython_2_7().unwrap();
    match inspect(&read(&path)) {
        Err(InspectError::TooOld(version)) => assert_eq!(version, Version::new(2, 7, 18)),
        other => panic!("{other:?}"),
    }
}

fn broken() {
    for (path, interpreter) in interpreters() {
        let data = read(&path);
        for cut in [0, 1, 4, 16, 20, 63, 64, 65, 200, 1000, 4096, 65_536, data.len() / 2, data.len() - 1] {
            let _ = inspect(&data[..cut.min(data.len())]);
            let _ = inspect_libc(&data[..cut.min(data.len())]);
        }
        // Noise in the headers, around the dynamic section, and in the code that is followed.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % below as u64).unwrap()
        };
        for round in 0..60 {
            let mut broken = data.clone();
            let (start, length) = if round % 2 == 0 { (16, 1000) } else { (0, data.len() / 8) };
            for _ in 0..if round % 2 == 0 { 12 } else { 20_000 } {
                broken[start + random(length)] = random(256) as u8;
            }
            if let Ok(Some(found)) = inspect(&broken) {
                assert_eq!(found.version.major, interpreter.version.major);
            }
        }
    }
}
