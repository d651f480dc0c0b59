//! Finds the CPython interpreters of this machine, for the tests and the bench.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::{
    process::{find, is_executable, output, path_folders},
    repo,
};

/// One line of `target/pythons.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Python {
    /// "3.12.1"; free-threaded builds end in "t".
    pub(crate) version: String,
    /// A path inside `root`, if there is one.
    pub(crate) executable: PathBuf,
    /// The interpreter of its virtual environment with the tests' packages.
    pub(crate) venv: Option<PathBuf>,
    /// The root folder that it lives in, if that is not ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<PathBuf>,
}

/// Something that was left out, and why.
pub(crate) struct Skipped {
    pub(crate) what: String,
    pub(crate) why: String,
}

#[derive(Default)]
pub(crate) struct Found {
    pub(crate) pythons: Vec<Python>,
    pub(crate) skipped: Vec<Skipped>,
}

const OLDEST: (u32, u32) = (3, 6);
/// Must also run on Python 2, so that the output names that interpreter instead of showing a syntax error.
const IDENTITY: &str = "import sys, platform; flags = getattr(sys, 'abiflags', ''); \
    print('%s %d.%d.%d%s' % ((platform.python_implementation(),) + sys.version_info[:3] + ('t' if 't' in flags else '',)))";

impl Found {
    pub(crate) fn skip(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.skipped.push(Skipped { what: what.into(), why: why.into() });
    }
}

/// Every interpreter that pyenv or the PATH has, oldest first.
pub(crate) fn find_all() -> Found {
    let mut found = Found::default();
    let mut seen = BTreeSet::new();
    for candidate in candidates() {
        let Ok(executable) = candidate.canonicalize() else { continue };
        if is_elf(&executable) && seen.insert(executable.clone()) {
            examine(executable, &mut found);
        }
    }
    found.pythons.sort_by_key(|python| number(&python.version));
    found
}

/// The first interpreter of a version such as "3.12".
pub(crate) fn of_version<'a>(found: &'a Found, minor: &str) -> Option<&'a Python> {
    let start = format!("{minor}.");
    found.pythons.iter().find(|python| python.root.is_none() && python.version.starts_with(&start))
}

/// Writes the list for the tests, which read its path from `PYOBS_PYTHONS`.
pub(crate) fn write_list(pythons: &[Python]) -> Result<PathBuf> {
    let path = repo::target().join("pythons.json");
    let text = serde_json::to_string_pretty(pythons)?;
    fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn candidates() -> Vec<PathBuf> {
    let pyenv = pyenv_versions().into_iter().map(|version| version.join("bin/python"));
    let path = path_folders().flat_map(|folder| entries(&folder)).filter(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| is_python_name(name) && is_executable(path))
    });
    pyenv.chain(path).collect()
}

fn pyenv_versions() -> Vec<PathBuf> {
    let set = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let asked =
        || find("pyenv").and_then(|pyenv| output(Command::new(pyenv).arg("root")).ok()).map(|root| root.trim().into());
    let usual = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv"));
    let root = set.or_else(asked).or_else(usual);
    root.map(|root| entries(&root.join("versions"))).unwrap_or_default()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Matches `python3`, `python3.12` and `python3.14t`, but not `python3-config`.
fn is_python_name(name: &str) -> bool {
    let Some(version) = name.strip_prefix("python3") else { return false };
    let version = version.strip_suffix('t').unwrap_or(version);
    version.is_empty() || version.strip_prefix('.').is_some_and(|minor| minor.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Excludes pyenv's shims, which are shell scripts.
fn is_elf(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"\x7fELF"
}

fn examine(executable: PathBuf, found: &mut Found) {
    let name = executable.display().to_string();
    let identity = match output(Command::new(&executable).args(["-c", IDENTITY])) {
        Ok(identity) => identity,
        Err(error) => return found.skip(name, format!("{error:#}")),
    };
    let Some((implementation, version)) = identity.trim().split_once(' ') else {
        return found.skip(name, format!("it calls itself {:?}", identity.trim()));
    };
    if implementation != "CPython" {
        return found.skip(name, format!("it is {implementation} {version}, not CPython"));
    }
    let parts = number(version);
    if (parts[0], parts[1]) < OLDEST {
        return found.skip(name, format!("CPython {version} is older than 3.6, the oldest that pyobs reads"));
    }
    found.pythons.push(Python { version: version.to_owned(), executable, venv: None, root: None });
}

fn number(version: &str) -> [u32; 3] {
    let mut parts = version.trim_end_matches('t').split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_interpreters_names_are_candidates() {
        for name in ["python3", "python3.8", "python3.12", "python3.14t"] {
            assert!(is_python_name(name), "{name}");
        }
        for name in ["python", "python3-config", "python3.11-config", "python3.12-gdb.py", "python2.7"] {
            assert!(!is_python_name(name), "{name}");
        }
    }

    #[test]
    fn versions_sort_by_number() {
        assert!(number("3.9.18") < number("3.10.1"));
        assert_eq!(number("3.14.0t"), [3, 14, 0]);
    }
}
