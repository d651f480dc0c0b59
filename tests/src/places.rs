//! Where files are. `cargo xtask test` sets them in the environment; a plain `cargo test` uses the defaults.

use std::env;
use std::path::{Path, PathBuf};

/// The `pyobs` under test.
pub fn pyobs() -> PathBuf {
    let path = env::var_os("PYOBS_BIN").map_or_else(|| repository().join("target/release/pyobs"), PathBuf::from);
    assert!(path.exists(), "there is no {}; build it with `cargo xtask build`, or set PYOBS_BIN", path.display());
    path
}

/// A program of `tests/workloads`.
#[track_caller]
pub fn workload(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads").join(name);
    assert!(path.exists(), "there is no workload {}", path.display());
    path
}

pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), |target| repository().join(target))
}

fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_path_buf()
}
