//! Errors. Each is one sentence that names the file and the next step.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}: no such file; `pyobs record -o FILE` makes a recording")]
    NotFound(Shown),
    #[error("{0}: its folder does not exist; create it, or give another place with -o FILE")]
    NoFolder(Shown),
    #[error("{0}: permission denied; ask its owner for read access, or run pyobs as its owner")]
    NotReadable(Shown),
    #[error("{0}: it cannot be written here; give another place with -o FILE")]
    NotWritable(Shown),
    #[error("{0}: this file system is read-only; give another place with -o FILE")]
    ReadOnly(Shown),
    #[error("{0}: the disk is full; what was recorded so far is kept: free space, or give another place with -o FILE")]
    DiskFull(Shown),
    #[error("{path} is {what}, and a recording is a regular file; give another name")]
    NotAFile { path: Shown, what: &'static str },
    #[error("{0} exists and is not a pyobs recording; remove it, or give another name with -o FILE")]
    Exists(Shown),
    #[error("{0} is not a pyobs recording; `pyobs record -o FILE` makes one")]
    NotARecording(Shown),
    #[error("{0} is empty: its recording was cut off before anything was written; record again")]
    Empty(Shown),
    #[error("{path} is damaged ({what}) and cannot be read; record again, or try `sqlite3 FILE .recover`")]
    Corrupt { path: Shown, what: String },
    #[error("{path} is a recording of format {found}, and this pyobs reads formats up to {known}; use a newer pyobs")]
    Newer { path: Shown, found: u32, known: u32 },
    #[error("{0} is in use by another program; wait for it to end, or give another file")]
    Busy(Shown),
    #[error("{0}: recording stopped at an earlier error; what was recorded until then is in the file")]
    Stopped(Shown),
    #[error("{path}: {source}; check the disk, or give another file")]
    Io { path: Shown, source: io::Error },
    #[error("{path}: SQLite says {source}; check the disk, or give another file")]
    Sqlite { path: Shown, source: rusqlite::Error },
}

/// A path in a form that is safe to show: a file name may contain escape sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown(PathBuf);

impl From<&Path> for Shown {
    fn from(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string_lossy();
        if text.chars().any(char::is_control) { write!(f, "{text:?}") } else { f.write_str(&text) }
    }
}

impl Error {
    /// An error of the file system while a recording is read.
    pub(crate) fn reading(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound(path.into()),
            io::ErrorKind::PermissionDenied => Self::NotReadable(path.into()),
            io::ErrorKind::StorageFull => Self::DiskFull(path.into()),
            _ => Self::Io { path: path.into(), source },
        }
    }

    /// An error of the file system while a recording is made.
    pub(crate) fn writing(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NoFolder(path.into()),
            io::ErrorKind::PermissionDenied => Self::NotWritable(path.into()),
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(path.into()),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull(path.into()),
            _ => Self::Io { path: path.into(), source },
        }
    }

    pub(crate) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull(path.into()),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(path.into()),
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::NotWritable(path.into())
            }
            Some(ErrorCode::NotADatabase) => Self::NotARecording(path.into()),
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt { path: path.into(), what: brief(&source) },
            _ => Self::Sqlite { path: path.into(), source },
        }
    }

    pub(crate) fn corrupt(path: &Path, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.into(), what: what.into() }
    }
}

fn brief(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => {
            message.chars().filter(|c| !c.is_control()).take(200).collect()
        }
        other => other.to_string(),
    }
}
