//! Predicts which files a command will map: its program, and the libraries that the dynamic loader will find
//! for it (ld.so(8)).
//!
//! Reading an interpreter's 30 MB file takes longer than a short command lives, so the files are read before
//! the command runs. A file that is missed here is read once it is mapped, as for any other process.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::elf::Elf;
use crate::prefetch::prefetch;

/// The loader's default folders. The cache of ld.so has more, which seldom contain interpreters.
const FOLDERS: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
const FILES_MAX: usize = 64;
/// Levels of scripts whose interpreter is a script.
const SCRIPTS_MAX: usize = 4;
/// The kernel reads this much of a script's first line (`BINPRM_BUF_SIZE` in
/// <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/binfmts.h>).
const LINE_MAX: u64 = 256;
/// Larger files are not inspected, as in [`crate::files`].
const SIZE_MAX: u64 = 1 << 30;

/// The files of a command, the program first; empty if there is no such program.
pub fn files_of(program: &OsStr) -> Vec<PathBuf> {
    let Some(program) = program_of(program) else { return Vec::new() };
    let (mut files, mut done) = (vec![program], 0);
    while done < files.len() && files.len() < FILES_MAX {
        for library in libraries_of(&files[done]) {
            if !files.contains(&library) {
                files.push(library);
            }
        }
        done += 1;
    }
    files
}

/// The ELF file that runs: for a script, the interpreter in its first line.
fn program_of(name: &OsStr) -> Option<PathBuf> {
    let mut program = find(name)?;
    for _ in 0..SCRIPTS_MAX {
        let mut line = Vec::new();
        File::open(&program).ok()?.take(LINE_MAX).read_to_end(&mut line).ok()?;
        let Some(line) = line.strip_prefix(b"#!") else { return Some(program) };
        let mut words =
            line.split(|byte| *byte == b'\n').next()?.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let interpreter = Path::new(OsStr::from_bytes(words.next()?));
        program = match words.next() {
            Some(name) if interpreter.ends_with("env") => find(OsStr::from_bytes(name))?,
            _ => interpreter.to_owned(),
        };
    }
    None
}

/// Finds a program as execvp(3) does.
fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// The libraries that a file names, where the loader finds them.
fn libraries_of(path: &Path) -> Vec<PathBuf> {
    let Some(bytes) = File::open(path).ok().and_then(|file| {
        let metadata = file.metadata().ok().filter(|metadata| metadata.is_file() && metadata.len() <= SIZE_MAX)?;
        prefetch(&file, metadata.len())
    }) else {
        return Vec::new();
    };
    let Ok(elf) = Elf::parse(&bytes) else { return Vec::new() };
    let own = elf.search_path().map(|folders| with_origin(folders, path)).unwrap_or_default();
    let asked = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        env::split_paths(&own).chain(env::split_paths(&asked)).chain(FOLDERS.map(PathBuf::from)).collect();
    let library = |name: &[u8]| {
        let name = OsStr::from_bytes(name);
        folders.iter().map(|folder| folder.join(name)).find(|library| library.is_file())
    };
    elf.needed().filter_map(library).collect()
}

/// Replaces `$ORIGIN` by the file's own folder.
fn with_origin(folders: &[u8], path: &Path) -> OsString {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let origin = path.parent().unwrap_or(Path::new("/")).as_os_str().as_bytes();
    let mut rest = folders;
    let mut with = Vec::new();
    while !rest.is_empty() {
        match [&b"$ORIGIN"[..], b"${ORIGIN}"].iter().find(|word| rest.starts_with(word)) {
            Some(word) => {
                with.extend_from_slice(origin);
                rest = &rest[word.len()..];
            }
            None => {
                with.push(rest[0]);
                rest = &rest[1..];
            }
        }
    }
    OsString::from_vec(with)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    /// Compares with what ldd(1) reports.
    #[test]
    fn the_libraries_of_a_program_are_those_that_the_loader_finds() {
        let program = env::current_exe().unwrap();
        let listed = Command::new("ldd").arg(&program).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let listed: BTreeSet<PathBuf> = listed
            .lines()
            .filter_map(|line| line.split("=> ").nth(1)?.split(' ').next())
            .map(|path| fs::canonicalize(path).unwrap())
            .collect();
        assert!(!listed.is_empty());
        let found: BTreeSet<PathBuf> =
            files_of(program.as_os_str()).iter().map(|path| fs::canonicalize(path).unwrap()).collect();
        assert!(listed.is_subset(&found), "{listed:?} of {found:?}");
    }

    #[test]
    fn of_a_script_the_interpreter_counts() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        for line in ["#!/bin/sh", "#! /usr/bin/env sh", "#!/usr/bin/env sh -e"] {
            fs::write(&script, format!("{line}\ntrue\n")).unwrap();
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
            let shell = fs::canonicalize(&files_of(script.as_os_str())[0]).unwrap();
            assert_eq!(shell, fs::canonicalize("/bin/sh").unwrap(), "{line}");
        }
        fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert!(files_of(script.as_os_str()).is_empty(), "a script that is its own interpreter");
        assert!(files_of(OsStr::new("/no/such/program")).is_empty());
    }

    #[test]
    fn the_origin_is_the_folder_of_the_file() {
        let path = Path::new("/no/such/bin/program");
        assert_eq!(with_origin(b"$ORIGIN/../lib:/x:${ORIGIN}", path), "/no/such/bin/../lib:/x:/no/such/bin");
        assert_eq!(with_origin(b"$ORIG", path), "$ORIG");
    }
}
