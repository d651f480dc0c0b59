//! Reads the lines of `/proc/PID/maps`, up to a limit.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::machine::living_thread;

/// Mappings of any kind read per process and scan; a scan that reaches this is counted as truncated. The
/// kernel's own limit is 65,530 by default (`vm.max_map_count`).
pub const LINES_MAX: usize = 65_536;

/// Truncated scans not yet reported. Families scan from several threads.
static TRUNCATED: AtomicU64 = AtomicU64::new(0);

/// Number of truncated scans since the last call.
pub fn take_truncated() -> u64 {
    TRUNCATED.swap(0, Ordering::Relaxed)
}

/// A mapping of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    pub start: u64,
    pub end: u64,
    /// Such as `rw-p`.
    pub permissions: &'a str,
    /// Offset in the file.
    pub offset: u64,
    pub device: (u32, u32),
    /// 0 for anonymous memory.
    pub inode: u64,
    /// The path, the kernel's name of the mapping such as `[heap]`, or nothing.
    pub path: &'a str,
}

impl<'a> Line<'a> {
    pub fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
        let permissions = fields.next().filter(|text| text.len() == 4)?;
        let offset = hexadecimal(fields.next()?)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let inode = fields.next()?.parse().ok()?;
        let path = fields.next().unwrap_or_default().trim_start();
        Some(Self { start, end, permissions, offset, device, inode, path })
    }

    pub fn is_writable(&self) -> bool {
        self.permissions.as_bytes().get(1) == Some(&b'w')
    }

    /// Whether other processes may have it mapped too.
    pub fn is_shared(&self) -> bool {
        self.permissions.as_bytes().get(3) == Some(&b's')
    }

    /// Whether it is private data memory without a file or a name.
    pub fn is_plain(&self) -> bool {
        self.permissions == "rw-p" && self.inode == 0 && self.path.is_empty()
    }
}

/// How much of a process's mappings was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub lines: usize,
    /// There are more than [`LINES_MAX`], and `take` did not stop earlier.
    pub is_truncated: bool,
}

/// Passes the mappings of a process to `take` in order of address, at most [`LINES_MAX`], until it breaks.
pub fn each(pid: u32, take: impl FnMut(&Line<'_>) -> ControlFlow<()>) -> io::Result<Extent> {
    let file = File::open(format!("/proc/{}/maps", living_thread(pid)))?;
    let extent = parse(BufReader::with_capacity(64 << 10, file), LINES_MAX, take)?;
    if extent.is_truncated {
        TRUNCATED.fetch_add(1, Ordering::Relaxed);
    }
    Ok(extent)
}

pub fn parse(
    mut maps: impl BufRead,
    most: usize,
    mut take: impl FnMut(&Line<'_>) -> ControlFlow<()>,
) -> io::Result<Extent> {
    let (mut extent, mut line) = (Extent::default(), Vec::new());
    while maps.read_until(b'\n', &mut line)? > 0 {
        if extent.lines == most {
            extent.is_truncated = true;
            break;
        }
        extent.lines += 1;
        let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line));
        if let Some(of_line) = Line::parse(&text)
            && take(&of_line).is_break()
        {
            break;
        }
        line.clear();
    }
    Ok(extent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_procfs_says() {
        let own = procfs::process::Process::myself().unwrap().maps().unwrap();
        let mut seen = Vec::new();
        let take = |line: &Line<'_>| {
            seen.push((line.start, line.end, line.permissions.to_owned(), line.offset, line.device, line.inode));
            ControlFlow::Continue(())
        };
        let extent = each(std::process::id(), take).unwrap();
        assert!(!extent.is_truncated && extent.lines == seen.len() && seen.len() > 10);
        let has = |start: u64| seen.iter().find(|line| line.0 == start);
        let mut same = 0;
        for map in own {
            let device = (map.dev.0 as u32, map.dev.1 as u32);
            let line = (map.address.0, map.address.1, map.perms.as_str(), map.offset, device, map.inode);
            same += usize::from(has(line.0) == Some(&line));
        }
        // Other tests map memory at the same time.
        assert!(same * 10 >= seen.len() * 8, "{same} of {}", seen.len());
    }

    #[test]
    fn more_than_that_is_not_read_and_said_so() {
        let maps = |count: u64| {
            let line = |number: u64| format!("{:x}-{:x} rw-p 00000000 00:00 0 \n", number << 12, (number + 1) << 12);
            (1..=count).map(line).collect::<String>()
        };
        let read = |count, end: u64| {
            let mut seen = 0;
            let take = |line: &Line<'_>| {
                seen += 1;
                assert!(line.is_plain() && line.is_writable() && !line.is_shared());
                if line.start == end << 12 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let extent = parse(maps(count).as_bytes(), 1000, take).unwrap();
            assert_eq!(extent.lines, seen);
            (extent.lines, extent.is_truncated)
        };
        assert_eq!(read(999, 0), (999, false));
        assert_eq!(read(1000, 0), (1000, false));
        assert_eq!(read(1001, 0), (1000, true));
        assert_eq!(read(100_000, 0), (1000, true));
        assert_eq!(read(100_000, 500), (500, false), "who asked for an end has all");
        assert_eq!(parse(&b"nonsense\n\xff\xff\n"[..], 9, |_| panic!()).unwrap().lines, 2);
    }
}
