//! The checkout and its target folder.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The top folder of the checkout.
pub(crate) fn root() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The absolute path of the target folder.
pub(crate) fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from))
}

/// The folder of the tools that the set-up builds.
pub(crate) fn tools() -> PathBuf {
    target().join("tools")
}

/// The release binary.
pub(crate) fn pyobs() -> PathBuf {
    target().join("release/pyobs")
}
