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
    ends: OnceCell<HashMap<Stream, Vec<End>>>,
    locks: OnceCell<Vec<FileLock>>,
}

/// A pipe or a socket, by its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Pipe(u64),
    Socket(u64),
}

impl Stream {
    /// What a link such as `pipe:[1234]` leads to.
    pub fn of(link: &str) -> Option<Self> {
        let (kind, inode) = link.strip_suffix(']')?.split_once(":[")?;
        match (kind, inode.parse().ok()?) {
            ("pipe", inode) => Some(Self::Pipe(inode)),
            ("socket", inode) => Some(Self::Socket(inode)),
            _ => None,
        }
    }
}

/// An open end of a pipe or socket.
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
    /// The open ends of a pipe or socket.
    pub fn ends(&self, stream: Stream) -> &[End] {
        self.ends.get_or_init(ends).get(&stream).map_or(&[], Vec::as_slice)
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

/// Parses lines such as `1: -> FLOCK  ADVISORY  WRITE 4242 fd:01:1234 0 EOF`. The arrow marks a waiter.
fn file_locks(text: &str) -> Vec<FileLock> {
    let lock = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let mut words = rest.split_whitespace().peekable();
        let waits = words.next_if_eq(&"->").is_some();
        Some(FileLock { number: number.trim().parse().ok()?, waits, pid: words.nth(3)?.parse().ok()? })
    };
    text.lines().take(LOCKS_MAX).filter_map(lock).collect()
}

fn ends() -> HashMap<Stream, Vec<End>> {
    let mut ends: HashMap<Stream, Vec<End>> = HashMap::default();
    for pid in machine::processes().unwrap_or_default() {
        let folder = fs::read_dir(format!("/proc/{}/fd", machine::living_thread(pid))).into_iter().flatten().flatten();
        for entry in folder.take(DESCRIPTORS_MAX) {
            let link = fs::read_link(entry.path()).ok();
            let Some(stream) = link.and_then(|link| Stream::of(&link.to_string_lossy())) else { continue };
            // The link's permissions are those that the file was opened with.
            let mode = entry.metadata().map_or(0, |metadata| metadata.permissions().mode());
            ends.entry(stream).or_default().push(End { pid, reads: mode & 0o400 != 0, writes: mode & 0o200 != 0 });
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

/// For the fuzzer.
pub fn parse_all(text: &str) {
    let _ = (file_locks(text), Stream::of(text));
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
        assert_eq!(Stream::of("pipe:[77]"), Some(Stream::Pipe(77)));
        assert_eq!(Stream::of("socket:[78]"), Some(Stream::Socket(78)));
        assert_eq!(Stream::of("/tmp/pipe:[77]"), None);
    }
}
