//! A temporary folder that lives as long as its case.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::places;

/// An empty folder below `target/tmp`. It is removed when its case ends, but kept as evidence when the case fails.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent().join(format!("{}{number}", prefix()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

fn parent() -> PathBuf {
    places::target().join("tmp")
}

fn prefix() -> String {
    format!("pyobs-tests-{}-", std::process::id())
}

/// Removes the folders that are left: those shared between cases live in statics, which are never dropped.
pub(crate) fn remove_all() {
    for entry in fs::read_dir(parent()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the files of the failed case are in {}", self.0.display());
        } else {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
