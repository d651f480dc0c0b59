//! What `/proc` and `uname` say about the machine and its processes.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::SystemTime;

use procfs::process::Process as ProcProcess;
use pyobs_abi::record::COMM_LEN;
use pyobs_model::{Nanos, Resident};
use rustix::time::{ClockId, clock_getres, clock_gettime};
use time::OffsetDateTime;

use crate::blocking;

/// `CLOCK_MONOTONIC`, the clock of the kernel's records.
pub fn monotonic() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Length of a kernel tick (a jiffy), the resolution of its coarse clocks.
pub fn tick() -> Nanos {
    let resolution = clock_getres(ClockId::MonotonicCoarse);
    Nanos(resolution.tv_sec as u64 * 1_000_000_000 + resolution.tv_nsec as u64)
}

/// Returns large blocks to the system as soon as they are freed. Otherwise, when the first one is freed (a
/// library read for inspection), glibc raises its threshold and keeps such blocks, and tens of megabytes stay
/// resident for good.
pub fn return_large_blocks_eagerly() {
    const LARGE: libc::c_int = 256 << 10;
    // SAFETY: sets a parameter of the allocator; no memory is passed.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
}

/// The pids of all processes except our own. Kernel threads are included.
pub fn processes() -> io::Result<Vec<u32>> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    Ok(pids.filter(|pid| *pid != own).collect())
}

/// Why a number given by the user cannot be watched as a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTarget {
    #[error("there is no process {0}; `ps -e` lists those that there are")]
    Absent(u32),
    /// Its parent has not collected its exit status yet.
    #[error("process {0} has ended; `ps -e` shows it as defunct until its parent asks for its status")]
    Ended(u32),
    #[error("{thread} is a thread of process {process}; watch that with --pid {process}")]
    Thread { thread: u32, process: u32 },
}

/// Whether a process with this pid exists.
pub fn is_alive(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(true)
}

pub fn check_target(pid: u32) -> Result<(), NoTarget> {
    let id = i32::try_from(pid).map_err(|_| NoTarget::Absent(pid))?;
    let status = ProcProcess::new(id).and_then(|process| process.status()).map_err(|_| NoTarget::Absent(pid))?;
    if status.tgid != id {
        return Err(NoTarget::Thread { thread: pid, process: status.tgid.try_into().unwrap_or(0) });
    }
    if is_over(living_thread(pid)) { Err(NoTarget::Ended(pid)) } else { Ok(()) }
}

/// The thread through which `/proc` and `process_vm_readv` show a process: its main thread, or another one if
/// the main thread has ended first. The kernel keeps such a main thread as a zombie without memory, files or
/// names.
pub fn living_thread(pid: u32) -> u32 {
    if !is_over(pid) {
        return pid;
    }
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut tids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    tids.find(|tid| !is_over(*tid)).unwrap_or(pid)
}

/// Whether a thread has ended and is a zombie. `/proc/TID` works for any thread (`proc_pid_lookup` in
/// <https://github.com/torvalds/linux/blob/v6.1/fs/proc/base.c>).
fn is_over(tid: u32) -> bool {
    // Without memory there is no program. Reading `stat` costs five times as much, because the kernel sums up
    // all threads.
    let program = fs::read_link(format!("/proc/{tid}/exe"));
    if program.map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true) {
        return false;
    }
    let stat = fs::read(format!("/proc/{tid}/stat")).unwrap_or_default();
    // The name before it, in parentheses, may contain anything.
    let state = stat.rsplit(|byte| *byte == b')').next().and_then(|rest| rest.get(1));
    matches!(state, Some(b'Z' | b'X'))
}

/// Threads of a process with their names (`comm`).
pub fn threads(pid: u32) -> impl Iterator<Item = (u32, [u8; COMM_LEN])> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| {
        let tid = task.file_name().to_str()?.parse().ok()?;
        let name = fs::read(task.path().join("comm")).ok()?;
        let name = name.strip_suffix(b"\n").unwrap_or(&name);
        let length = name.len().min(COMM_LEN - 1);
        let mut comm = [0; COMM_LEN];
        comm[..length].copy_from_slice(&name[..length]);
        Some((tid, comm))
    })
}

/// Returns a process's name (`comm`), or an empty string if it has exited.
pub fn name(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned()
}

/// Returns the resident memory of a process as the kernel counts it; `None` if the process has ended.
pub fn resident(pid: u32) -> Option<Resident> {
    of_status(&fs::read_to_string(format!("/proc/{}/status", living_thread(pid))).ok()?)
}

/// Parses `/proc/PID/status`; a process that has ended has no memory lines.
pub fn of_status(status: &str) -> Option<Resident> {
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().split(' ').next()?.parse::<u64>().ok()? << 10)
    };
    Some(Resident {
        total: kib("VmRSS:")?,
        anonymous: kib("RssAnon:")?,
        files: kib("RssFile:")?,
        shared: kib("RssShmem:")?,
        segments: 0,
        share: 0,
    })
}

/// Returns a process's filesystem uid and gid.
pub fn user(pid: u32) -> Option<(u32, u32)> {
    let status = ProcProcess::new(pid.try_into().ok()?).and_then(|process| process.status()).ok()?;
    Some((status.fuid, status.fgid))
}

/// Returns a process's pid in its own pid namespace.
pub fn inner_pid(pid: u32) -> Option<u32> {
    let status = ProcProcess::new(pid.try_into().ok()?).and_then(|process| process.status()).ok()?;
    status.nspid.and_then(|pids| pids.last().copied()).and_then(|pid| pid.try_into().ok()).or(Some(pid))
}

/// The children of a process; empty if the kernel does not list them (`CONFIG_PROC_CHILDREN`).
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).collect()
}

/// `pids` and all their living descendants.
pub fn descendants(pids: &[u32]) -> io::Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in processes()? {
        if let Some(facts) = Facts::of(pid) {
            children.entry(facts.ppid).or_default().push(pid);
        }
    }
    let (mut found, mut next) = (Vec::new(), pids.to_vec());
    while let Some(pid) = next.pop() {
        if !found.contains(&pid) {
            found.push(pid);
            next.extend(children.get(&pid).into_iter().flatten());
        }
    }
    Ok(found)
}

/// Bytes kept of a command line.
const COMMAND_MAX: usize = 4096;

/// What `/proc/PID` says about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub ppid: u32,
    pub command: String,
    /// On `CLOCK_BOOTTIME`, in clock ticks.
    pub start_ticks: u64,
}

impl Facts {
    /// When it started, if that was after `start` (on `CLOCK_MONOTONIC`).
    pub fn started(&self, start: Nanos) -> Option<Nanos> {
        let boot = clock_gettime(ClockId::Boottime);
        let asleep = (boot.tv_sec as u64 * 1_000_000_000 + boot.tv_nsec as u64).saturating_sub(monotonic().0);
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        // The kernel rounds down to a tick.
        let at = Nanos((self.start_ticks * tick).saturating_sub(asleep));
        (at.0 + tick > start.0).then(|| at.saturating_sub(start))
    }

    pub fn of(pid: u32) -> Option<Self> {
        let process = ProcProcess::new(pid.try_into().ok()?).ok()?;
        let stat = process.stat().ok()?;
        // The kernel reads this from the process's memory, which can block.
        let words = blocking::run(move || fs::read(format!("/proc/{}/cmdline", living_thread(pid))));
        let words = words.and_then(std::convert::identity).unwrap_or_default();
        // A program that renames itself, as setproctitle does, leaves blanks up to where its arguments ended.
        let words = &words[..words.iter().rposition(|byte| !matches!(byte, 0 | b' ')).map_or(0, |last| last + 1)];
        let words = &words[..words.len().min(COMMAND_MAX)];
        let command = String::from_utf8_lossy(words).replace('\0', " ");
        let command = if command.is_empty() { stat.comm.clone() } else { command };
        Some(Self { ppid: stat.ppid.try_into().unwrap_or(0), command, start_ticks: stat.starttime })
    }
}

/// RFC 3339 in UTC, to the millisecond.
pub fn utc(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
    let (hour, minute, second, milli) = (time.hour(), time.minute(), time.second(), time.millisecond());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc() {
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(951_782_400_007);
        assert_eq!(utc(time), "2000-02-29T00:00:00.007Z");
    }

    #[test]
    fn this_process_is_its_parents_descendant() {
        let parent = std::os::unix::process::parent_id();
        let found = descendants(&[parent]).unwrap();
        assert!(found.contains(&parent));
        let facts = Facts::of(std::process::id()).unwrap();
        assert_eq!(facts.ppid, parent);
        assert!(facts.start_ticks > 0);
    }

    #[test]
    fn a_status_without_memory_is_that_of_a_process_that_has_ended() {
        let status = "Name:\ta\nVmRSS:\t     100 kB\nRssAnon:\t 60 kB\nRssFile:\t 30 kB\nRssShmem:\t 10 kB\n";
        let resident = of_status(status).unwrap();
        assert_eq!((resident.total, resident.anonymous, resident.shared), (100 << 10, 60 << 10, 10 << 10));
        assert_eq!(of_status("Name:\ta\nState:\tZ (zombie)\n"), None);
    }
}
