//! The users' own advice for findings: tables that are asked before the one that pyobs ships.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pyobs_model::findings::advice::{self, Advice};

use crate::exit;

const OF_THE_MACHINE: &str = "/etc/pyobs/advice.toml";
const OF_THE_USER: &str = "pyobs/advice.toml";
const BYTES_MAX: u64 = 64 << 10;

/// Reads the user's table and the machine's, if they exist. One that cannot be used is named, and left out.
pub(crate) fn load() {
    let mut all = Vec::new();
    for path in of_the_user().into_iter().chain([PathBuf::from(OF_THE_MACHINE)]) {
        match read(&path) {
            Ok(advice) => all.extend(advice),
            Err(why) => exit::say(&format!("{} is left out: {why}", path.display())),
        }
    }
    advice::add(all);
}

fn of_the_user() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some(config.join(OF_THE_USER))
}

/// Nothing if there is no such file.
fn read(path: &Path) -> Result<Vec<Advice>, String> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.to_string()),
    };
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > BYTES_MAX {
        return Err(format!("it has more than {} KiB", BYTES_MAX >> 10));
    }
    advice::parse(&text)
}

/// A FIFO or a device could block.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_whole_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("advice.toml");
        assert_eq!(read(&path), Ok(Vec::new()), "there is none");
        let entry = "[[advice]]\nfinding = \"chatty\"\npackage = \"ours\"\ntext = \"Ask Ada.\"\n";
        std::fs::write(&path, entry).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        std::fs::write(&path, entry.repeat(2000)).unwrap();
        assert_eq!(read(&path), Err("it has more than 64 KiB".to_owned()));
        std::fs::write(&path, "[[advice]]\nfinding = 1\n").unwrap();
        assert!(read(&path).is_err());
        assert_eq!(read(folder.path()), Err("it is no regular file".to_owned()));
    }
}
