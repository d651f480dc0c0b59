//! Source lines of a process's files, read with that process's own permissions.
//!
//! The name of a file comes from a watched process and may be anything, such as that of a file which only root may
//! read. So a file is opened below the process's own root, without following links out of it, and shown only if the
//! user of the process may read it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use foldhash::HashMap;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};

use crate::blocking;
use crate::machine::{self, living_thread};

/// Size limits per file, and for all files of a process together.
const FILE_MAX: u64 = 4 << 20;
const ALL_MAX: usize = 32 << 20;
/// The most files opened per process.
const FILES_MAX: usize = 4096;
/// The most path components.
const DEPTH_MAX: usize = 64;
/// The most characters kept of a line.
const LINE_MAX: usize = 200;

/// The source files of a process.
pub struct Sources {
    pid: u32,
    texts: HashMap<Arc<str>, Option<Box<[u8]>>>,
    bytes: usize,
}

impl Sources {
    pub fn new(pid: u32) -> Self {
        Self { pid, texts: HashMap::default(), bytes: 0 }
    }

    /// Returns a line without surrounding whitespace, or `None` if it is unreadable or blank.
    pub fn line(&mut self, file: &Arc<str>, line: u32) -> Option<String> {
        if !self.texts.contains_key(file) {
            let has_room = self.texts.len() < FILES_MAX && self.bytes < ALL_MAX;
            let text = has_room.then(|| self.read(file)).flatten();
            self.bytes += text.as_ref().map_or(0, |text| text.len());
            self.texts.insert(Arc::clone(file), text);
        }
        let text = self.texts.get(file)?.as_ref()?;
        let line = text.split(|byte| *byte == b'\n').nth(line.checked_sub(1)? as usize)?;
        let line: String = String::from_utf8_lossy(line).trim().chars().take(LINE_MAX).collect();
        (!line.is_empty()).then_some(line)
    }

    fn read(&self, file: &str) -> Option<Box<[u8]>> {
        if file.starts_with('<') {
            return None;
        }
        let (pid, path) = (self.pid, PathBuf::from(file));
        blocking::run(move || read(pid, &path)).ok().flatten()
    }
}

fn read(pid: u32, path: &Path) -> Option<Box<[u8]>> {
    let (user, group) = machine::user(pid)?;
    let user = User { user, group };
    let thread = living_thread(pid);
    let folder = if path.is_absolute() { "root" } else { "cwd" };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = openat(CWD, format!("/proc/{thread}/{folder}"), flags, Mode::empty()).ok()?;
    let parts: Vec<_> = path.components().filter(|part| !matches!(part, Component::RootDir)).collect();
    if parts.len() > DEPTH_MAX {
        return None;
    }
    let mut above = PathBuf::new();
    for part in parts.split_last()?.1 {
        above.push(part);
        let folder = open(&top, &above, flags)?;
        user.may(SEARCH, &fstat(&folder).ok()?).then_some(())?;
    }
    above.push(parts.last()?);
    let file = open(&top, &above, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC)?;
    let status = fstat(&file).ok()?;
    let is_regular = rustix::fs::FileType::from_raw_mode(status.st_mode).is_file();
    if !is_regular || !user.may(READ, &status) || status.st_size as u64 > FILE_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    File::from(file).take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes.into())
}

/// Opens a path below `top`. Symbolic links cannot lead out of it.
fn open(top: &OwnedFd, path: &Path, flags: OFlags) -> Option<OwnedFd> {
    openat2(top, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS).ok()
}

const READ: u32 = 4;
const SEARCH: u32 = 1;

/// A process's filesystem uid and gid. Supplementary groups are ignored, so it may see less than the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    user: u32,
    group: u32,
}

impl User {
    fn may(self, what: u32, status: &Stat) -> bool {
        let shift = if self.user == status.st_uid {
            6
        } else if self.group == status.st_gid {
            3
        } else {
            0
        };
        self.user == 0 || status.st_mode >> shift & what != 0
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_line_is_shown_if_the_process_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.py");
        fs::write(&file, "first\n\n  third é\n").unwrap();
        symlink(&file, folder.path().join("link.py")).unwrap();
        let mut sources = Sources::new(std::process::id());
        let mut line = |name: &str, line| sources.line(&Arc::from(folder.path().join(name).to_str().unwrap()), line);
        assert_eq!(line("a.py", 3).as_deref(), Some("third é"));
        assert_eq!(line("link.py", 1).as_deref(), Some("first"));
        assert_eq!(
            [line("a.py", 0), line("a.py", 2), line("a.py", 9), line("gone.py", 1), line(".", 1)],
            [const { None }; 5]
        );
    }

    #[test]
    fn the_rights_are_those_of_the_processs_user() {
        let folder = tempfile::tempdir().unwrap();
        let status = |mode: u32| {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            fstat(File::open(folder.path()).unwrap()).unwrap()
        };
        let own = fs::metadata(folder.path()).unwrap();
        let owner = User { user: own.uid() + 1, group: own.gid() };
        let other = User { user: own.uid() + 1, group: own.gid() + 1 };
        let all = status(0o754);
        assert!(owner.may(READ, &all) && owner.may(SEARCH, &all) && other.may(READ, &all) && !other.may(SEARCH, &all));
        let none = status(0o700);
        assert!(!owner.may(READ, &none) && !other.may(READ, &none));
        assert!(User { user: 0, group: 0 }.may(READ, &none));
    }
}
