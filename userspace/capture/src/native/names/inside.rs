//! Opens files as a process with another root sees them. A symbolic link in a container leads to a file in
//! the container, never to one of ours.

use std::fs::File;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags, ResolveFlags};

/// Opens a regular file by its path below `root`. The last component may be a symbolic link only if `through`
/// is set.
pub fn open(root: &Path, path: &Path, through: bool) -> Option<File> {
    let root = fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // Opening anything but a regular file could block or have side effects.
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    flags.set(OFlags::NOFOLLOW, !through);
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(fs::openat2(root, path, flags, Mode::empty(), resolve).ok()?);
    file.metadata().is_ok_and(|metadata| metadata.is_file()).then_some(file)
}
