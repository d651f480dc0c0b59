//! Who else has the files that a thread waits for: locks, pipes and sockets.

use std::cell::OnceCell;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use foldhash::HashMap;

use crate::machine;

/// Bounds the open files of a process that are looked at.
const DESCRIPTORS_MAX: usize = 65_536;
/// Bounds what is read of `/proc/locks`.
const LOCKS_MAX: usize = 100_000;

/// What all processes have open, read when it is first asked for.
#[derive(Default)]
pub struct Everyone {
    ends: OnceCell<HashMap<u64, Vec<End>>>,
    locks: OnceCell<Vec<FileLock>>,
}

/// An open end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub pid: u32,
    pub reads: bool,
    pub writes: bool,
}

/// A line of `/proc/locks`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileLock {
    /// The number of the lock that it is, or waits for.
    number: u64,
    waits: bool,
    /// -1 for a lock of an open file description.
    pid: i64,
}

impl Everyone {
    /// The open ends of a pipe, by its inode.
    pub fn ends(&self, pipe: u64) -> &[End] {
        self.ends.get_or_init(ends).get(&pipe).map_or(&[], Vec::as_slice)
    }

    /// The processes that have the file lock for which a process waits.
    pub fn lock_holders(&self, pid: u32) -> Vec<u32> {
        let locks = self.locks.get_or_init(|| file_locks(&fs::read_to_string("/proc/locks").unwrap_or_default()));
        let waiting = locks.iter().find(|lock| lock.waits && lock.pid == i64::from(pid));
        let Some(waiting) = waiting else { return Vec::new() };
        let holders = locks.iter().filter(|lock| !lock.waits && lock.number == waiting.number);
        holders.filter_map(|lock| lock.pid.try_into().ok()).collect()
    }
}

/// `1: -> FLOCK  ADVISORY  WRITE 4242 fd:01:1234 0 EOF`; without an arrow for a lock that is held.
fn file_locks(text: &str) -> Vec<FileLock> {
    let lock = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let mut words = rest.split_whitespace().peekable();
        let waits = words.next_if_eq(&"->").is_some();
        Some(FileLock { number: number.trim().parse().ok()?, waits, pid: words.nth(3)?.parse().ok()? })
    };
    text.lines().take(LOCKS_MAX).filter_map(lock).collect()
}

fn ends() -> HashMap<u64, Vec<End>> {
    let mut ends: HashMap<u64, Vec<End>> = HashMap::default();
    for pid in machine::processes().unwrap_or_default() {
        let folder = fs::read_dir(format!("/proc/{}/fd", machine::living_thread(pid))).into_iter().flatten().flatten();
        for entry in folder.take(DESCRIPTORS_MAX) {
            let Some(pipe) = fs::read_link(entry.path()).ok().and_then(|link| inode(&link.to_string_lossy(), "pipe"))
            else {
                continue;
            };
            // The link's permissions are those that the file was opened with.
            let mode = entry.metadata().map_or(0, |metadata| metadata.permissions().mode());
            ends.entry(pipe).or_default().push(End { pid, reads: mode & 0o400 != 0, writes: mode & 0o200 != 0 });
        }
    }
    ends
}

/// The file behind a descriptor, as its link names it.
pub fn link(pid: u32, descriptor: u64) -> Option<String> {
    let descriptor = u32::try_from(descriptor).ok()?;
    let link = fs::read_link(format!("/proc/{}/fd/{descriptor}", machine::living_thread(pid))).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// The inode of `pipe:[1234]` and the like.
pub fn inode(link: &str, kind: &str) -> Option<u64> {
    link.strip_prefix(kind)?.strip_prefix(":[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_follow_the_lock_that_they_wait_for() {
        let text = "1: FLOCK  ADVISORY  WRITE 40 fd:01:12345 0 EOF\n\
                    1: -> FLOCK  ADVISORY  WRITE 41 fd:01:12345 0 EOF\n\
                    2: OFDLCK ADVISORY  READ -1 00:06:1028 0 EOF\n";
        let locks = file_locks(text);
        let lock = |number, waits, pid| FileLock { number, waits, pid };
        assert_eq!(locks, [lock(1, false, 40), lock(1, true, 41), lock(2, false, -1)]);
    }

    #[test]
    fn a_link_holds_an_inode() {
        assert_eq!(inode("pipe:[77]", "pipe"), Some(77));
        assert_eq!(inode("socket:[77]", "pipe"), None);
        assert_eq!(inode("/tmp/pipe:[77]", "pipe"), None);
    }
}
