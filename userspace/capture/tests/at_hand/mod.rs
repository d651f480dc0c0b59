//! The CPythons that tests of this crate run against. Those that are absent are named, and skipped.

use std::path::PathBuf;
use std::process::Command;

pub(crate) struct Interpreter {
    pub(crate) path: PathBuf,
    pub(crate) minor: u8,
}

impl Interpreter {
    pub(crate) fn name(&self) -> String {
        format!("3.{:02} {}", self.minor, self.path.display())
    }
}

fn pyenv_root() -> Option<PathBuf> {
    if let Some(root) = std::env::var_os("PYENV_ROOT") {
        return Some(root.into());
    }
    let root = Command::new("pyenv").arg("root").output().ok().filter(|output| output.status.success());
    match root {
        Some(output) => Some(String::from_utf8_lossy(&output.stdout).trim().into()),
        None => Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")),
    }
}

/// One of each minor version from pyenv, and Debian's own: static and stripped.
pub(crate) fn interpreters() -> Vec<Interpreter> {
    let versions = pyenv_root().map(|root| root.join("versions"));
    let folders: Vec<_> = versions.and_then(|path| path.read_dir().ok()).into_iter().flatten().flatten().collect();
    let mut found = Vec::new();
    for minor in 6..=15 {
        let prefix = format!("3.{minor}.");
        let matching = folders.iter().filter(|folder| folder.file_name().to_string_lossy().starts_with(&prefix));
        match matching.map(|folder| folder.path().join("bin/python")).find(|path| path.exists()) {
            Some(path) => found.push(Interpreter { path, minor }),
            None => println!("skipped: no CPython 3.{minor} in pyenv"),
        }
    }
    let debian = PathBuf::from("/usr/bin/python3.11");
    if debian.exists() {
        found.push(Interpreter { path: debian, minor: 11 });
    } else {
        println!("skipped: no {}", debian.display());
    }
    found
}
