//! Which memory of other processes can be read.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::process;

use super::{ALL, Area, Check, Status, plain, rights};
use crate::memory::{Memory, ProcessMemory};

const ROOT: &str = "run it as root: `sudo pyobs doctor`";

pub(super) fn examine(checks: &mut Vec<Check>) {
    let mut area = Area::new("processes", checks);
    hidden(&mut area);
    let others = strangers();
    if others.is_empty() {
        for name in ["memory of others", "files of others", "mapped files of others"] {
            area.lacks(name, ALL, Status::Degraded, "no other process is visible, so this was not tried", ROOT);
        }
        return;
    }
    memory(&mut area, &others);
    let (root, other) = first_success(&others, |pid| {
        fs::read_link(format!("/proc/{pid}/root")).and_then(|_| fs::read_dir(format!("/proc/{pid}/root/")))
    });
    area.tried("files of others", ALL, root, &format!("the root folder of process {other} was opened"), ROOT);
    let (mapped, other) = first_success(&others, mapped_file);
    let todo = "nothing: files are found by their names, and those that were deleted or replaced are not";
    area.preferred("mapped files of others", ALL, mapped, &format!("one of process {other} was opened"), todo);
}

/// The first of `pids` for which the attempt succeeds; else the error of the first.
fn first_success<T>(pids: &[u32], attempt: impl Fn(u32) -> io::Result<T>) -> (io::Result<T>, u32) {
    let mut refused = None;
    for pid in pids {
        match attempt(*pid) {
            Ok(done) => return (Ok(done), *pid),
            Err(error) => _ = refused.get_or_insert((error, *pid)),
        }
    }
    let (error, pid) = refused.unwrap_or((io::ErrorKind::NotFound.into(), 0));
    (Err(error), pid)
}

fn hidden(area: &mut Area<'_>) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match hidepid(&mounts) {
        Some(value) if !rights::is_privileged() => area.lacks(
            "process list",
            ALL,
            Status::Degraded,
            format!("/proc is mounted with hidepid={value}: others' processes are not seen"),
            ROOT,
        ),
        Some(value) => area.works("process list", ALL, format!("hidepid={value}, which does not bind this user")),
        None => area.works("process list", ALL, "/proc shows every process"),
    }
}

/// The value of hidepid on the last mount over /proc, if it hides something.
fn hidepid(mountinfo: &str) -> Option<&str> {
    let line = mountinfo.lines().rfind(|line| line.split(' ').nth(4) == Some("/proc"))?;
    let value = line.split([' ', ',']).find_map(|option| option.strip_prefix("hidepid="))?;
    (!matches!(value, "0" | "off")).then_some(value)
}

/// Processes to try, never this one: those of other users first, and pid 1 last, because many machines
/// protect it more than others.
fn strangers() -> Vec<u32> {
    const ENOUGH: usize = 8;
    const INIT: u32 = 1;
    let own = rustix::process::getuid().as_raw();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let is_own = entry.metadata().ok()?.uid() == own;
            (pid != process::id() && !is_kernel_thread(pid)).then_some((pid == INIT, is_own, pid))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().take(ENOUGH).map(|(.., pid)| pid).collect()
}

/// Kernel threads have an empty command line, and so do processes that are about to exit.
fn is_kernel_thread(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty())
}

fn memory(area: &mut Area<'_>, others: &[u32]) {
    let (tried, other) = first_success(others, |pid| {
        let (start, _) = first_mapping(pid)?;
        let mut bytes = [0; 8];
        ProcessMemory::new(pid).read(start, &mut bytes)
    });
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let scope = scope.trim();
    match tried {
        Ok(()) => area.works("memory of others", ALL, format!("eight bytes of process {other} were read")),
        Err(error) if scope == "3" => area.lacks(
            "memory of others",
            ALL,
            Status::Missing,
            format!("process {other}: {}; kernel.yama.ptrace_scope is 3", plain(&error)),
            "start the machine with kernel.yama.ptrace_scope=2 or less: 3 cannot be lowered at run time",
        ),
        Err(error) => area.lacks(
            "memory of others",
            ALL,
            Status::Missing,
            format!("process {other}: {}", plain(&error)),
            "allow process_vm_readv() in the container's seccomp profile",
        ),
    }
}

/// The addresses of the first readable file mapping.
fn first_mapping(pid: u32) -> io::Result<(u64, u64)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    parse_first_mapping(&maps).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it maps no file"))
}

fn parse_first_mapping(maps: &str) -> Option<(u64, u64)> {
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let readable = words.next()?.starts_with('r');
        let inode = words.nth(2)?;
        let range = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        (readable && inode != "0").then_some(range)
    })
}

fn mapped_file(pid: u32) -> io::Result<fs::File> {
    let (start, end) = first_mapping(pid)?;
    fs::File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidepid_of_the_topmost_mount_counts() {
        let lower = "20 1 0:19 / /proc rw,relatime - proc proc rw,hidepid=invisible\n";
        let upper = "21 1 0:20 / /proc rw,relatime - proc proc rw\n";
        assert_eq!(hidepid(lower), Some("invisible"));
        assert_eq!(hidepid(&format!("{lower}{upper}")), None);
        assert_eq!(hidepid("20 1 0:19 / /proc rw - proc proc rw,hidepid=0\n"), None);
    }

    #[test]
    fn the_first_mapping_of_a_file_is_taken() {
        let maps = "1000-2000 rw-p 00000000 00:00 0 \n2000-3000 ---p 0 fe:00 7 /a\n3000-4000 r--p 0 fe:00 7 /a\n";
        assert_eq!(parse_first_mapping(maps), Some((0x3000, 0x4000)));
    }
}
