//! Names of JIT code from the map that a process writes for `perf`, `/tmp/perf-PID.map`: lines of address,
//! size and name, the numbers in hexadecimal.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::inside;
use crate::machine::living_thread;

/// Bytes of a map read at a time. The next look-up continues in a larger map.
const READ_MAX: usize = 4 << 20;
/// Functions kept, per process (the latest) and in all.
const FUNCTIONS_MAX: usize = 1 << 16;
const ALL_FUNCTIONS_MAX: usize = 1 << 19;
/// Maps kept open.
const MAPS_MAX: usize = 64;
const NAME_MAX: usize = 1024;
/// Functions before an address that are checked for one that extends to it.
const LOOK_BACK: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    size: u32,
    /// Offset of its name in the file.
    name: u32,
}

#[derive(Debug)]
struct Map {
    /// Start time of the process, device and inode.
    identity: (u64, u64, u64),
    file: File,
    read: u64,
    /// By start address, then by position in the file.
    functions: Vec<Function>,
    used: u64,
}

/// The maps of processes.
#[derive(Debug, Default)]
pub struct PerfMaps {
    maps: HashMap<u32, Map>,
    uses: u64,
}

impl PerfMaps {
    /// The names of functions at addresses of a process.
    pub fn look_up(&mut self, pid: u32, addresses: &[u64]) -> Vec<Option<String>> {
        self.uses += 1;
        if let Some((file, identity)) = open(pid) {
            if self.maps.get(&pid).is_none_or(|map| map.identity != identity) {
                self.maps.insert(pid, Map::of(file, identity));
            }
        } else if Path::new(&format!("/proc/{pid}")).exists() {
            // It has no map, or one that we do not trust. The map of a process that has ended may still be
            // open.
            self.maps.remove(&pid);
        }
        let Some(map) = self.maps.get_mut(&pid) else { return vec![None; addresses.len()] };
        map.used = self.uses;
        map.grow();
        let names = addresses.iter().map(|address| map.find(*address)).collect();
        self.make_room(pid);
        names
    }

    fn make_room(&mut self, keep: u32) {
        while self.maps.len() > MAPS_MAX
            || self.maps.values().map(|map| map.functions.len()).sum::<usize>() > ALL_FUNCTIONS_MAX
        {
            let others = self.maps.iter().filter(|(pid, _)| **pid != keep);
            let Some(oldest) = others.min_by_key(|(_, map)| map.used).map(|(pid, _)| *pid) else { break };
            self.maps.remove(&oldest);
        }
    }
}

/// The names of functions at addresses, from a map not read before.
pub fn in_file(file: File, addresses: &[u64]) -> Vec<Option<String>> {
    let mut map = Map::of(file, (0, 0, 0));
    map.grow();
    addresses.iter().map(|address| map.find(*address)).collect()
}

impl Map {
    fn of(file: File, identity: (u64, u64, u64)) -> Self {
        Self { identity, file, read: 0, functions: Vec::new(), used: 0 }
    }

    /// Reads what was appended to the map.
    fn grow(&mut self) {
        let Ok(size) = self.file.metadata().map(|metadata| metadata.len()) else { return };
        if size < self.read {
            self.read = 0;
            self.functions.clear();
        }
        let length = usize::try_from(size - self.read).unwrap_or(usize::MAX).min(READ_MAX);
        let mut bytes = vec![0; length];
        let Ok(length) = self.file.read_at(&mut bytes, self.read) else { return };
        bytes.truncate(length);
        // The last line may be incomplete; a line that fills the whole buffer never ends.
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map(|end| end + 1);
        bytes.truncate(end.unwrap_or(if length == READ_MAX { length } else { 0 }));
        if bytes.is_empty() {
            return;
        }
        let mut at = self.read;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.functions.extend(function(line, at));
            at += line.len() as u64;
        }
        self.read = at;
        if self.functions.len() > FUNCTIONS_MAX {
            self.functions.sort_unstable_by_key(|function| function.name);
            self.functions.drain(..self.functions.len() - FUNCTIONS_MAX);
        }
        self.functions.sort_by_key(|function| (function.start, function.name));
        self.functions.shrink_to_fit();
    }

    /// The name of the latest function at an address.
    fn find(&self, address: u64) -> Option<String> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let before = self.functions[..after].iter().rev().take(LOOK_BACK);
        let found = before
            .filter(|function| address - function.start < u64::from(function.size))
            .max_by_key(|function| function.name)?;
        let mut bytes = [0; NAME_MAX];
        let length = self.file.read_at(&mut bytes, found.name.into()).ok()?;
        let name = bytes[..length].split(|byte| *byte == b'\n').next()?;
        let name = String::from_utf8_lossy(name).trim_end().to_owned();
        (!name.is_empty()).then_some(name)
    }
}

/// Parses a line at a position in the file.
fn function(line: &[u8], at: u64) -> Option<Function> {
    let mut left = line;
    let mut number = || {
        let end = left.iter().position(u8::is_ascii_whitespace)?;
        let digits = std::str::from_utf8(&left[..end]).ok()?;
        left = left[end..].trim_ascii_start();
        u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = at + (line.len() - left.len()) as u64;
    let is_sensible = size > 0 && start.checked_add(size).is_some() && !left.is_empty();
    is_sensible.then_some(())?;
    Some(Function { start, size: u32::try_from(size).ok()?, name: u32::try_from(name).ok()? })
}

/// Opens a process's map if the process's user or root wrote it: anyone may write to `/tmp`.
fn open(pid: u32) -> Option<(File, (u64, u64, u64))> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // The last one is the pid in the process's own namespace.
    let own: u32 = field("NStgid:").and_then(|pids| pids.split_ascii_whitespace().last()?.parse().ok()).unwrap_or(pid);
    // Real and effective user.
    let users: Vec<u32> =
        field("Uid:")?.split_ascii_whitespace().take(2).filter_map(|user| user.parse().ok()).collect();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let started: u64 = stat.rsplit(')').next()?.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let root = format!("/proc/{}/root", living_thread(pid));
    let file = inside::open(Path::new(&root), Path::new(&format!("tmp/perf-{own}.map")), false)?;
    let metadata = file.metadata().ok()?;
    let is_trusted = metadata.uid() == 0 || users.contains(&metadata.uid());
    is_trusted.then(|| (file, (started, metadata.dev(), metadata.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_address_size_and_where_the_name_is() {
        let line = b"7f00aa10 2c py::main:/srv/a b.py\n";
        assert_eq!(function(line, 100), Some(Function { start: 0x7f00_aa10, size: 0x2c, name: 112 }));
        assert_eq!(function(b"0x10 0x4 x\n", 0), Some(Function { start: 16, size: 4, name: 9 }));
    }

    #[test]
    fn hostile_lines_are_left_out() {
        let lines: [&[u8]; 12] = [
            b"",
            b"\n",
            b"10\n",
            b"10 20\n",
            b"10 20 \n",
            b"10 0 empty\n",
            b"xyz 10 bad\n",
            b"10 -5 bad\n",
            b"ffffffffffffffff 10 around\n",
            b"10 ffffffffffffffff large\n",
            b"fffffffffffffffffffffffff 10 long\n",
            b"\xff\xfe \x00\x01 \x02\n",
        ];
        for line in lines {
            assert_eq!(function(line, 0), None, "{}", String::from_utf8_lossy(line));
        }
        assert_eq!(function(b"10 20 far\n", u64::from(u32::MAX)), None);
    }

    fn map(name: &str, text: &[u8]) -> (Map, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("pyobs-perf-map-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let file = File::open(&path).unwrap();
        (Map { identity: (0, 0, 0), file, read: 0, functions: Vec::new(), used: 0 }, path)
    }

    #[test]
    fn a_map_is_read_on_where_it_grew_and_the_last_word_counts() {
        let (mut map, path) = map("grow", b"1000 100 one\n1100 10 two\n1200 40 unfin");
        map.grow();
        assert_eq!(map.find(0x10ff).as_deref(), Some("one"));
        assert_eq!(map.find(0x1110), None);
        assert_eq!(map.find(0x1200), None);
        let more = b"1000 100 one\n1100 10 two\n1200 40 unfinished\n1080 8 inner\n1100 10 again\n";
        std::fs::write(&path, more).unwrap();
        map.grow();
        assert_eq!(map.find(0x123f).as_deref(), Some("unfinished"));
        assert_eq!(map.find(0x1087).as_deref(), Some("inner"));
        assert_eq!(map.find(0x1088).as_deref(), Some("one"));
        assert_eq!(map.find(0x1100).as_deref(), Some("again"));
        std::fs::write(&path, b"1000 8 anew\n").unwrap();
        map.grow();
        assert_eq!((map.find(0x1000).as_deref(), map.find(0x1100)), (Some("anew"), None));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_large_map_leaves_its_last_functions_and_bounded_names() {
        let mut text: Vec<u8> = Vec::new();
        for number in 0..FUNCTIONS_MAX as u64 + 10 {
            text.extend(format!("{:x} 8 f{number}\n", 0x1000 + number * 8).into_bytes());
        }
        text.extend(b"10 8 ".iter().chain(&[b'x'; 5000]).chain(b"\n"));
        let (mut map, path) = map("large", &text);
        std::fs::remove_file(&path).unwrap();
        map.grow();
        assert_eq!(map.functions.len(), FUNCTIONS_MAX);
        assert_eq!(map.find(0x1000), None);
        assert_eq!(map.find(0x1000 + 1000 * 8).as_deref(), Some("f1000"));
        assert_eq!(map.find(0x10).map(|name| name.len()), Some(NAME_MAX));
    }
}
