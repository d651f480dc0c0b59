//! Opens files as a process with another root sees them. A link in a container leads to a file of the container, never
//! to one of ours.

use std::fs::File;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags, ResolveFlags};

/// Opens a regular file below `root`, by its path from there; the last part of which may be a link only if `through`.
pub fn open(root: &Path, path: &Path, through: bool) -> Option<File> {
    let root = fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // What is no regular file may block or act when it is opened.
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    flags.set(OFlags::NOFOLLOW, !through);
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(fs::openat2(root, path, flags, Mode::empty(), resolve).ok()?);
    file.metadata().is_ok_and(|metadata| metadata.is_file()).then_some(file)
}
