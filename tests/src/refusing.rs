//! A kernel that lacks something: a library that pyobs is started with refuses in the kernel's place.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::{Folder, places, shared_library};

/// One thing that is refused, and the error that says so; tests/workloads/fault_kernel.c has the kinds.
pub fn rule(kind: &str, what: impl Display, error: libc::c_int) -> String {
    format!(";{kind} {what} {error}")
}

/// Variables for pyobs that have these rules hold. Needs the program `cc`.
#[track_caller]
pub fn refusing(rules: &str) -> [(&'static str, String); 2] {
    static LIBRARY: OnceLock<(Folder, PathBuf)> = OnceLock::new();
    let (_, library) = LIBRARY.get_or_init(|| {
        let folder = Folder::new();
        let library = shared_library(&places::workload("fault_kernel.c"), &folder);
        (folder, library)
    });
    [("LD_PRELOAD", library.display().to_string()), ("PYOBS_TEST_REFUSES", rules.to_owned())]
}
