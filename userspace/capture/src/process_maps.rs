//! `/proc/PID/maps`: what a process has mapped executable.

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;

use procfs::FromBufRead;
use procfs::process::{MMPermissions, MMapPath, MemoryMaps};

use crate::files::FileId;

/// Mappings that are looked at; a process with more is not an ordinary program (`vm.max_map_count` is 65,530).
const MAPPINGS_MAX: usize = 65_536;

/// What the kernel puts behind the path of such a file.
const DELETED: &str = " (deleted)";

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// `None` for memory without a file.
    pub file: Option<FileId>,
    /// The file's base name, or the kernel's name of the mapping such as `[vdso]`.
    pub name: Arc<str>,
    path: PathBuf,
}

impl Mapping {
    pub fn has(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The file's path as the process sees it; empty where there is no file.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Whether the file has no name any more, or another has it.
    pub fn is_deleted(&self) -> bool {
        self.path.as_os_str().as_encoded_bytes().ends_with(DELETED.as_bytes())
    }

    /// Ways to open the mapped file, best first: the mapping itself, which is right even when the file was deleted or
    /// lies in another mount namespace; then the path as the process sees it.
    pub fn ways(&self, pid: u32) -> [PathBuf; 2] {
        let inside = self.path.strip_prefix("/").unwrap_or(&self.path);
        [
            PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end)),
            PathBuf::from(format!("/proc/{pid}/root")).join(inside),
        ]
    }
}

/// The executable mappings of a process, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings(Vec<Mapping>);

impl Mappings {
    pub fn of(pid: u32) -> std::io::Result<Self> {
        let file = std::fs::File::open(format!("/proc/{pid}/maps"))?;
        Self::parse(std::io::BufReader::new(file))
    }

    fn parse(maps: impl BufRead) -> std::io::Result<Self> {
        let maps = MemoryMaps::from_buf_read(maps).map_err(std::io::Error::other)?;
        let executable = maps.into_iter().take(MAPPINGS_MAX).filter(|map| map.perms.contains(MMPermissions::EXECUTE));
        Ok(Self(executable.map(mapping).collect()))
    }

    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let after = self.0.partition_point(|mapping| mapping.start <= address);
        self.0[..after].last().filter(|mapping| mapping.has(address))
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Mapping> {
        self.0.iter()
    }
}

fn mapping(map: procfs::process::MemoryMap) -> Mapping {
    let (name, path) = match map.pathname {
        MMapPath::Path(path) => {
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            (name, path)
        }
        MMapPath::Vdso => ("[vdso]".to_owned(), PathBuf::new()),
        MMapPath::Vsyscall => ("[vsyscall]".to_owned(), PathBuf::new()),
        _ => ("[anon]".to_owned(), PathBuf::new()),
    };
    let name = name.strip_suffix(DELETED).unwrap_or(&name);
    Mapping {
        start: map.address.0,
        end: map.address.1,
        offset: map.offset,
        file: (map.inode != 0).then_some(FileId { device: (map.dev.0 as u32, map.dev.1 as u32), inode: map.inode }),
        name: Arc::from(name),
        path,
    }
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
        // Nobody has such a process's mapping, nor a file of that name.
        let why = crate::files::open(u32::MAX, gone).unwrap_err().to_string();
        assert!(why.contains("replaced on disk"), "{why}");
        assert_eq!(&*mappings.find(0x7ffd_0000_0000).unwrap().name, "[vdso]");
    }
}
