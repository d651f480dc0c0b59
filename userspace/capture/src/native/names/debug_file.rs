//! Finds the separate file with another file's debug information, as distributions package it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::inside;
use super::sections::Sections;

const FOLDER: &str = "usr/lib/debug";
/// The largest file whose checksum is computed when there is no build id.
const CHECKED_MAX: u64 = 64 << 20;

/// Finds the debug file by build id, else by name and checksum; in the process's root first, then in ours.
pub fn find(file: &File, sections: &Sections, path: &Path, root: &Path) -> Option<File> {
    let id = sections.build_id(file);
    let link = link(file, sections);
    let here = Path::new("/");
    if let Some(id) = &id {
        let by_id = by_id(id);
        let mut found = [root, here].into_iter().filter_map(|root| inside::open(root, &by_id, true));
        if let Some(found) = found.find(|found| is_of(found, Some(id), None)) {
            return Some(found);
        }
    }
    let (name, checksum) = link?;
    let folder = path.parent()?;
    let folder = folder.strip_prefix("/").unwrap_or(folder);
    let packaged = Path::new(FOLDER).join(folder).join(&name);
    let ways = [
        (root, folder.join(&name)),
        (root, folder.join(".debug").join(&name)),
        (root, packaged.clone()),
        (here, packaged),
    ];
    let own = file.metadata().ok()?;
    ways.iter().filter_map(|(root, way)| inside::open(root, way, true)).find(|found| {
        // A file may link to its own name.
        let is_same = found.metadata().is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()));
        !is_same && is_of(found, id.as_deref(), Some(checksum))
    })
}

fn by_id(id: &[u8]) -> PathBuf {
    let mut path = format!("{FOLDER}/.build-id/");
    for (index, byte) in id.iter().enumerate() {
        let _ = write!(path, "{}{byte:02x}", if index == 1 { "/" } else { "" });
    }
    path.push_str(".debug");
    PathBuf::from(path)
}

/// The name and the checksum in the file's debug link.
fn link(file: &File, sections: &Sections) -> Option<(PathBuf, u32)> {
    let bytes = sections.named(".gnu_debuglink").read(file, 0, 512)?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let at = (end + 1).next_multiple_of(4);
    let checksum = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
    let name = PathBuf::from(OsStr::from_bytes(&bytes[..end]));
    // The name must be a single component other than `..`.
    (name.file_name() == Some(name.as_os_str())).then_some((name, checksum))
}

fn is_of(found: &File, id: Option<&[u8]>, sum: Option<u32>) -> bool {
    let Some(sections) = Sections::of(found) else { return false };
    match (id, sections.build_id(found)) {
        (Some(id), Some(found)) => id == found,
        _ => sum.is_some_and(|sum| checksum(found) == Some(sum)),
    }
}

/// CRC-32 of a whole file, as in debug links.
fn checksum(file: &File) -> Option<u32> {
    let size = file.metadata().ok()?.len();
    if size > CHECKED_MAX {
        return None;
    }
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(byte as u32, |sum, _| if sum & 1 != 0 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 })
    });
    let mut piece = vec![0; 1 << 16];
    let (mut at, mut sum) = (0, u32::MAX);
    while at < size {
        let length = (size - at).min(piece.len() as u64) as usize;
        file.read_exact_at(&mut piece[..length], at).ok()?;
        sum = piece[..length].iter().fold(sum, |sum, byte| sum >> 8 ^ table[usize::from(sum as u8 ^ byte)]);
        at += length as u64;
    }
    Some(!sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_made_of_the_build_identifier() {
        assert_eq!(by_id(&[0xbe, 0xef, 0x01]), Path::new("usr/lib/debug/.build-id/be/ef01.debug"));
    }

    #[test]
    fn the_checksum_is_that_of_zip() {
        let path = std::env::temp_dir().join(format!("pyobs-checksum-{}", std::process::id()));
        std::fs::write(&path, b"123456789").unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(checksum(&file), Some(0xcbf4_3926));
    }
}
