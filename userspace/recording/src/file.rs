//! Decides where a recording may be created, and which files may be opened as one.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

use crate::Error;
use crate::schema::{APPLICATION_ID, APPLICATION_ID_AT, HEADER, MAGIC, PAGE_SIZE_AT, VERSION, VERSION_AT};

/// Suffixes of the files that SQLite keeps next to a database.
const SIBLINGS: [&str; 3] = ["-journal", "-wal", "-shm"];

/// The byte that SQLite locks while one connection is writing (its file format, "File Locking").
const RESERVED_BYTE: u64 = 0x4000_0001;

/// Ends a rollback journal that names a "super-journal".
const SUPER_JOURNAL: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Creates an empty file for a new recording and returns its path without links. An existing file is replaced only if it is
/// empty or a recording that no process is writing.
pub(crate) fn make(path: &Path) -> Result<PathBuf, Error> {
    let folder = |what| Error::NotAFile { path: path.into(), what };
    let name = path.file_name().ok_or_else(|| folder("a folder"))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let target = parent.canonicalize().map_err(|source| Error::writing(path, source))?.join(name);
    match fs::symlink_metadata(&target) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(Error::writing(path, source)),
        Ok(found) if found.is_symlink() => return Err(folder("a symbolic link")),
        Ok(found) if found.is_dir() => return Err(folder("a folder")),
        Ok(found) if !found.is_file() => return Err(folder("no regular file")),
        Ok(_) => {
            may_replace(path, &target)?;
            fs::remove_file(&target).map_err(|source| Error::writing(path, source))?;
        }
    }
    for sibling in SIBLINGS {
        match fs::remove_file(beside(&target, sibling)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(Error::writing(path, source)),
            _ => {}
        }
    }
    // Exclusive, so that no one can place a link there in the meantime.
    let made = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&target);
    made.map(|_| target).map_err(|source| Error::writing(path, source))
}

/// Removes what [`make`] created.
pub(crate) fn remove(target: &Path) {
    // A file that cannot be removed is empty, and the user sees the error that led here.
    let _ = fs::remove_file(target);
    for sibling in SIBLINGS {
        let _ = fs::remove_file(beside(target, sibling));
    }
}

fn may_replace(path: &Path, target: &Path) -> Result<(), Error> {
    let mut file = File::open(target).map_err(|source| Error::writing(path, source))?;
    let header = read_header(&mut file).map_err(|source| Error::writing(path, source))?;
    if !header.is_empty() && application_id(&header) != Some(APPLICATION_ID) {
        return Err(Error::Exists(path.into()));
    }
    let probe = Flock {
        start: RESERVED_BYTE,
        length: 1,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    match fcntl_getlk(&file, &probe) {
        Ok(Some(_)) => Err(Error::Busy(path.into())),
        // A file system without locks cannot say; SQLite would not get far on it either.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Refuses a file that is not a recording of a known format, before SQLite sees it.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    let found = fs::metadata(path).map_err(|source| Error::reading(path, source))?;
    if found.is_dir() {
        return Err(Error::NotAFile { path: path.into(), what: "a folder" });
    }
    if !found.is_file() {
        return Err(Error::NotAFile { path: path.into(), what: "no regular file" });
    }
    let mut file = File::open(path).map_err(|source| Error::reading(path, source))?;
    let header = read_header(&mut file).map_err(|source| Error::reading(path, source))?;
    if header.is_empty() {
        return Err(Error::Empty(path.into()));
    }
    if application_id(&header) != Some(APPLICATION_ID) {
        return Err(Error::NotARecording(path.into()));
    }
    match number(&header, VERSION_AT) {
        Some(found) if found > VERSION => Err(Error::Newer { path: path.into(), found, known: VERSION }),
        Some(1..) => Ok(()),
        Some(0) | None => Err(Error::corrupt(path, "its format has no number")),
    }
}

fn read_header(file: &mut File) -> io::Result<Vec<u8>> {
    let mut header = Vec::with_capacity(HEADER);
    file.take(HEADER as u64).read_to_end(&mut header)?;
    Ok(header)
}

fn application_id(header: &[u8]) -> Option<u32> {
    number(header, APPLICATION_ID_AT).filter(|_| header.starts_with(MAGIC))
}

fn number(header: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*header.get(at..)?.first_chunk()?))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Whether the file ends within a page, after at least one whole page. SQLite would read the rest of that page as zeros.
pub(crate) fn ends_within_page(path: &Path) -> Result<bool, Error> {
    let mut file = File::open(path).map_err(|source| Error::reading(path, source))?;
    let length = file.metadata().map_err(|source| Error::reading(path, source))?.len();
    let header = read_header(&mut file).map_err(|source| Error::reading(path, source))?;
    let page = page_size(&header).filter(|page| *page <= length);
    Ok(page.is_some_and(|page| !length.is_multiple_of(page)))
}

/// Returns a database's page size (SQLite's file format, "Page Size"), or `None` if SQLite does not allow that size.
fn page_size(header: &[u8]) -> Option<u64> {
    let size = u16::from_be_bytes(*header.get(PAGE_SIZE_AT..)?.first_chunk()?);
    let size = if size == 1 { 1 << 16 } else { u64::from(size) };
    (size >= 512 && size.is_power_of_two()).then_some(size)
}

/// A copy of a recording that was cut off within a commit or within a page. SQLite rolls back half a commit with the journal
/// next to the file, which modifies the file, and a reader must not do that. The copy has whole pages only.
#[derive(Debug)]
pub(crate) struct Copy {
    folder: PathBuf,
    pub(crate) file: PathBuf,
}

impl Copy {
    pub(crate) fn of(path: &Path) -> Result<Self, Error> {
        let folder = private_folder().map_err(|source| Error::Io { path: path.into(), source })?;
        let copy = Self { file: folder.join("recording"), folder };
        copy_bytes(path, &copy.file).map_err(|source| Error::reading(path, source))?;
        copy.drop_part_of_page().map_err(|source| Error::reading(path, source))?;
        for suffix in ["-journal", "-wal"] {
            let sibling = beside(path, suffix);
            // SQLite never creates a link or a pipe here.
            if !fs::symlink_metadata(&sibling).is_ok_and(|found| found.is_file()) {
                continue;
            }
            if suffix == "-journal" && names_super_journal(&sibling).map_err(|source| Error::reading(path, source))? {
                return Err(Error::corrupt(path, "the journal beside it is not pyobs's"));
            }
            copy_bytes(&sibling, &beside(&copy.file, suffix)).map_err(|source| Error::reading(path, source))?;
        }
        Ok(copy)
    }

    fn drop_part_of_page(&self) -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(&self.file)?;
        let length = file.metadata()?.len();
        match page_size(&read_header(&mut file)?) {
            Some(page) if page <= length => file.set_len(length - length % page),
            Some(_) | None => Ok(()),
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // Nothing can be done about a failure, and no other user can read the folder.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Unlike `fs::copy`, creates the copy with the permissions of a new file: the original may be read-only.
fn copy_bytes(from: &Path, to: &Path) -> io::Result<u64> {
    io::copy(&mut File::open(from)?, &mut File::create_new(to)?)
}

fn private_folder() -> io::Result<PathBuf> {
    let base = std::env::temp_dir();
    for attempt in 0..100 {
        let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let folder = base.join(format!("pyobs-{}-{time}-{attempt}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Whether rolling back with this journal would make SQLite delete another file, of the author's choice. pyobs writes no such
/// journals.
fn names_super_journal(journal: &Path) -> io::Result<bool> {
    let mut file = File::open(journal)?;
    if file.metadata()?.len() < SUPER_JOURNAL.len() as u64 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-(SUPER_JOURNAL.len() as i64)))?;
    let mut end = [0; SUPER_JOURNAL.len()];
    file.read_exact(&mut end)?;
    Ok(end == SUPER_JOURNAL)
}
