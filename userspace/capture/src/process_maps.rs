//! `/proc/PID/maps`: the executable mappings of a process.

pub mod lines;

use std::collections::HashMap;
use std::io::BufRead;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyobs_abi::unwind::PROCESS_MAPPINGS_MAX;
use pyobs_model::package;

use self::lines::Line;
use crate::files::FileId;
use crate::machine::living_thread;

/// Mappings kept per process, which is what the kernel side searches.
const KEPT_MAX: usize = PROCESS_MAPPINGS_MAX as usize;

/// The kernel's suffix to the path of a deleted file.
const DELETED: &str = " (deleted)";

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// `None` for anonymous memory.
    pub file: Option<FileId>,
    /// The file's base name, or the kernel's name of the mapping such as `[vdso]`.
    pub name: Arc<str>,
    path: Arc<Path>,
}

impl Mapping {
    pub fn has(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The file's path as the process sees it; empty without a file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file was unlinked or replaced.
    pub fn is_deleted(&self) -> bool {
        self.path.as_os_str().as_encoded_bytes().ends_with(DELETED.as_bytes())
    }

    /// Paths to open the mapped file, best first: the mapping itself, which is right even if the file was
    /// deleted or is in another mount namespace; then the path as the process sees it.
    pub fn ways(&self, pid: u32) -> [PathBuf; 2] {
        let inside = self.path.strip_prefix("/").unwrap_or(&self.path);
        let pid = living_thread(pid);
        [
            PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end)),
            PathBuf::from(format!("/proc/{pid}/root")).join(inside),
        ]
    }
}

/// The file that native code lies in, as frames name it.
#[derive(Clone, Debug)]
pub struct Module {
    pub name: Arc<str>,
    pub package: Option<Arc<str>>,
}

impl Module {
    /// The module of code outside all mappings.
    pub fn unknown() -> Self {
        Self { name: Arc::from("[unknown]"), package: None }
    }

    pub fn of(mapping: &Mapping) -> Self {
        let path = mapping.path().to_string_lossy();
        let package = package::of_file(path.strip_suffix(DELETED).unwrap_or(&path));
        Self { name: Arc::clone(&mapping.name), package }
    }
}

/// The executable mappings of a process, by address. With more than [`KEPT_MAX`], those of the files with the
/// fewest mappings: an interpreter and its libraries are mapped once or twice each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    kept: Vec<Mapping>,
    /// Number of mappings beyond those kept.
    left_out: u64,
    /// Mappings of any kind, which determine the cost of reading them.
    lines: usize,
    /// The code of the extension module `greenlet._greenlet`.
    greenlet: Option<(u64, u64)>,
}

/// Prefix of the file name of greenlet's extension module.
const GREENLET: &str = "_greenlet.";

impl Mappings {
    pub fn of(pid: u32) -> std::io::Result<Self> {
        let file = std::fs::File::open(format!("/proc/{}/maps", living_thread(pid)))?;
        Self::parse(std::io::BufReader::with_capacity(64 << 10, file))
    }

    pub fn parse(mut maps: impl BufRead) -> std::io::Result<Self> {
        let (mut seen, mut lines) = (Seen::default(), 0);
        let mut line = Vec::new();
        while maps.read_until(b'\n', &mut line)? > 0 {
            lines += 1;
            seen.take(line.strip_suffix(b"\n").unwrap_or(&line));
            line.clear();
        }
        let (kept, left_out) = seen.into_kept(KEPT_MAX);
        let greenlet = kept.iter().find(|mapping| mapping.name.starts_with(GREENLET));
        let greenlet = greenlet.map(|mapping| (mapping.start, mapping.end));
        Ok(Self { kept, left_out, lines, greenlet })
    }

    /// Number of executable mappings not kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Number of mappings of any kind.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// Whether the executable mappings are unchanged.
    pub fn is_same(&self, other: &Self) -> bool {
        self.kept == other.kept && self.left_out == other.left_out
    }

    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let after = self.kept.partition_point(|mapping| mapping.start <= address);
        self.kept[..after].last().filter(|mapping| mapping.has(address))
    }

    /// The addresses of greenlet's code, if the process has loaded it.
    pub fn greenlet(&self) -> Option<Range<u64>> {
        self.greenlet.map(|(start, end)| start..end)
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Mapping> {
        self.kept.iter()
    }
}

/// Executable mappings while they are read.
#[derive(Default)]
struct Seen {
    mappings: Vec<(usize, Mapping)>,
    /// Number of mappings of each file, indexed by the number stored with a mapping.
    counts: Vec<usize>,
    numbers: HashMap<(Option<FileId>, Arc<str>), usize>,
    left_out: u64,
}

impl Seen {
    fn take(&mut self, line: &[u8]) {
        let Some(mut mapping) = executable(line) else { return };
        let next = self.counts.len();
        let number = *self.numbers.entry((mapping.file, Arc::clone(&mapping.name))).or_insert(next);
        if number == next {
            self.counts.push(0);
        }
        self.counts[number] += 1;
        if self.counts[number] > KEPT_MAX {
            self.left_out += 1;
            return;
        }
        // Many mappings of one file share its name and path.
        if let Some((_, last)) =
            self.mappings.last().filter(|(other, last)| *other == number && last.path == mapping.path)
        {
            (mapping.name, mapping.path) = (Arc::clone(&last.name), Arc::clone(&last.path));
        }
        self.mappings.push((number, mapping));
    }

    /// The mappings that fit, and the number of the others.
    fn into_kept(mut self, room: usize) -> (Vec<Mapping>, u64) {
        let Some(beyond) = self.mappings.len().checked_sub(room).filter(|beyond| *beyond > 0) else {
            return (self.mappings.into_iter().map(|(_, mapping)| mapping).collect(), self.left_out);
        };
        let counts = &self.counts;
        // The sort is stable: of one file, the lowest addresses are kept.
        self.mappings.sort_by_key(|(number, _)| (counts[*number], *number));
        self.mappings.truncate(room);
        let mut kept: Vec<Mapping> = self.mappings.into_iter().map(|(_, mapping)| mapping).collect();
        kept.sort_unstable_by_key(|mapping| mapping.start);
        (kept, self.left_out + beyond as u64)
    }
}

/// Parses a line; `None` unless the mapping is executable.
fn executable(line: &[u8]) -> Option<Mapping> {
    let line = String::from_utf8_lossy(line);
    let Line { start, end, offset, permissions, device, inode, path } = Line::parse(&line)?;
    if permissions.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let (name, path) = match path {
        special @ ("[vdso]" | "[vsyscall]") => (special, ""),
        other if other.is_empty() || other.starts_with('[') => ("[anon]", ""),
        path => (Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default(), path),
    };
    let name = name.strip_suffix(DELETED).unwrap_or(name);
    let file = (inode != 0).then_some(FileId { device, inode });
    Some(Mapping { start, end, offset, file, name: Arc::from(name), path: Arc::from(Path::new(path)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_executable_mappings_by_address() {
        let maps = "00400000-00420000 r-xp 00000000 fe:00 42 /usr/bin/python3.11\n\
                    00420000-00430000 rw-p 00020000 fe:00 42 /usr/bin/python3.11\n\
                    7f0000000000-7f0000001000 r-xp 00001000 08:11 7 /tmp/gone.so (deleted)\n\
                    7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0 [vdso]\n";
        let mappings = Mappings::parse(maps.as_bytes()).unwrap();
        assert_eq!(mappings.iter().count(), 3);
        let python = mappings.find(0x41_0000).unwrap();
        assert_eq!((&*python.name, python.file), ("python3.11", Some(FileId { device: (0xfe, 0), inode: 42 })));
        assert_eq!(mappings.find(0x42_0000), None);
        let gone = mappings.find(0x7f00_0000_0fff).unwrap();
        assert_eq!((&*gone.name, gone.is_deleted(), python.is_deleted()), ("gone.so", true, false));
        // No such process and no such file exists.
        let why = crate::files::open(u32::MAX, gone).unwrap_err().to_string();
        assert!(why.contains("replaced on disk"), "{why}");
        assert_eq!(&*mappings.find(0x7ffd_0000_0000).unwrap().name, "[vdso]");
    }

    /// The map of a process with one file mapped many times, and the interpreter above all of it.
    fn many(count: u64) -> String {
        let mut maps = String::new();
        for number in 0..count {
            let start = 0x7000_0000_0000 + 0x2000 * number;
            maps += &format!("{start:x}-{:x} r-xp 00000000 fe:00 9 /tmp/many (deleted)\n", start + 0x1000);
            maps += &format!("{:x}-{:x} r--p 00000000 fe:00 9 /tmp/many (deleted)\n", start + 0x1000, start + 0x2000);
        }
        maps + "7fff00000000-7fff00020000 r-xp 00001000 fe:00 42 /usr/lib/libpython3.12.so\n\
                7fff10000000-7fff10020000 r-xp 00000000 00:00 0 \n"
    }

    #[test]
    fn a_file_mapped_over_and_over_does_not_displace_the_others() {
        for count in [10, KEPT_MAX as u64 - 2, KEPT_MAX as u64 - 1, 100_000] {
            let mappings = Mappings::parse(many(count).as_bytes()).unwrap();
            let kept = mappings.iter().count() as u64;
            assert_eq!(mappings.lines() as u64, 2 * count + 2);
            assert_eq!(kept, (count + 2).min(KEPT_MAX as u64));
            assert_eq!(kept + mappings.left_out(), count + 2);
            assert_eq!(&*mappings.find(0x7fff_0001_0000).unwrap().name, "libpython3.12.so");
            assert_eq!(&*mappings.find(0x7fff_1000_0000).unwrap().name, "[anon]");
            assert!(mappings.iter().is_sorted_by_key(|mapping| mapping.start));
            assert_eq!(&*mappings.find(0x7000_0000_0fff).unwrap().name, "many");
            assert_eq!(mappings.find(0x7000_0000_1000), None);
        }
    }
}
