//! Reads source lines from the files that watched programs name.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Access, Mode, OFlags, access, open};

use crate::blocking::{HeldUp, PATIENCE};
use crate::machine::{living_thread, utc};

/// Bytes searched per file; lines beyond this are not shown.
const SIZE_MAX: u64 = 4 << 20;

/// Files on file systems that do not respond, by the process that names them.
static HELD_UP: HeldUp<Option<u32>, String> = HeldUp::new();

/// A line of a file, counted from 1, if it is readable and certainly what ran: the file was not changed since
/// `before` (RFC 3339, UTC), and the process, if any, has the same view of the file system as this one.
///
/// A program can claim that its code comes from any file. So only files are read that the user who runs pyobs
/// may read, whatever pyobs itself may.
pub fn line(pid: Option<u32>, file: &str, line: u32, before: &str) -> Option<String> {
    let (way, before) = (file.to_owned(), before.to_owned());
    HELD_UP.run((pid, file.to_owned()), String::eq, PATIENCE, move || read(pid, &way, line, &before)).ok().flatten()
}

fn read(pid: Option<u32>, file: &str, line: u32, before: &str) -> Option<String> {
    if !file.starts_with('/') || pid.is_some_and(|pid| !has_our_files(pid)) {
        return None;
    }
    // Opening a device could block or have side effects; this only finds the file.
    let found: OwnedFd = open(file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let way = format!("/proc/self/fd/{}", found.as_raw_fd());
    let status = fs::metadata(&way).ok()?;
    if !status.is_file() || utc(status.modified().ok()?).as_str() > before {
        return None;
    }
    // Uses the real user's permissions, not the effective ones: access(2).
    access(&way, Access::READ_OK).ok()?;
    let mut lines = BufReader::new(File::open(&way).ok()?.take(SIZE_MAX)).split(b'\n');
    let found = lines.nth(usize::try_from(line).ok()?.checked_sub(1)?)?.ok()?;
    Some(String::from_utf8_lossy(&found).trim().to_owned())
}

/// Whether the process has the same mount namespace and root folder.
fn has_our_files(pid: u32) -> bool {
    let mounts = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
    let root = |of: &str| fs::metadata(format!("/proc/{of}/root/")).ok().map(|status| (status.dev(), status.ino()));
    let of = living_thread(pid).to_string();
    let is_same = mounts(&of).is_some_and(|theirs| mounts("self") == Some(theirs));
    is_same && root(&of).is_some_and(|theirs| root("self") == Some(theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("pyobs-source-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    const LATER: &str = "9999-01-01T00:00:00.000Z";

    #[test]
    fn lines_are_counted_from_one_on() {
        let folder = folder("lines");
        let path = folder.join("a.py");
        fs::write(&path, "import sys\n\n    x = 1  \nlast").unwrap();
        let path = path.to_str().unwrap();
        let read = |number| line(Some(std::process::id()), path, number, LATER);
        assert_eq!(read(1).as_deref(), Some("import sys"));
        assert_eq!(read(2).as_deref(), Some(""));
        assert_eq!(read(3).as_deref(), Some("x = 1"));
        assert_eq!(read(4).as_deref(), Some("last"));
        assert_eq!((read(0), read(5)), (None, None));
        assert_eq!(line(None, path, 1, "2020-01-01T00:00:00.000Z"), None, "it has been changed since");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
        let folder = folder("fifo");
        let path = folder.join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        if made.is_ok_and(|status| status.success()) {
            assert_eq!(line(None, path.to_str().unwrap(), 1, LATER), None);
        }
        fs::remove_dir_all(folder).unwrap();
        for path in ["/", "/proc/self/fd", "/dev/zero", "relative.py", "<string>", "/no/such/file"] {
            assert_eq!(line(None, path, 1, LATER), None, "{path}");
        }
        assert_eq!(line(Some(u32::MAX), "/proc/version", 1, LATER), None, "no such process");
    }
}
