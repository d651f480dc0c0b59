//! The recordings, and what holds for each of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pyobs_model::Family;
use pyobs_tests::{Case, case};
use rusqlite::{Connection, OpenFlags};

/// A clone of the repository holds every version of every file.
const FILE_BYTES_MAX: u64 = 200 << 10;
const FOLDER_BYTES_MAX: u64 = 2 << 20;

/// A recording, the family that it is about, and what the sizes in its exports mean.
#[derive(Clone, Copy, Debug)]
pub struct File {
    pub name: &'static str,
    pub family: Family,
    pub weight: &'static str,
}

const fn of(name: &'static str, family: Family, weight: &'static str) -> File {
    File { name, family, weight }
}

pub const FILES: [File; 15] = [
    of("cpu", Family::Cpu, "cpu"),
    of("before", Family::Cpu, "cpu"),
    of("after", Family::Cpu, "cpu"),
    of("offcpu", Family::OffCpu, "offcpu"),
    of("gil", Family::Gil, "gil"),
    of("eval", Family::Eval, "cpu"),
    of("arena", Family::Arena, "bytes"),
    of("heap", Family::Heap, "bytes"),
    of("shm", Family::Shm, "bytes"),
    of("nrt", Family::Nrt, "bytes"),
    of("ucx", Family::Ucx, "cpu"),
    of("redundancy", Family::Redundancy, "redundant"),
    of("tasks", Family::Tasks, "offcpu"),
    of("cut-off", Family::Cpu, "cpu"),
    of("old", Family::Cpu, "cpu"),
];

impl File {
    /// Its name in [`folder`].
    pub fn file(&self) -> String {
        format!("{}.pyobs", self.name)
    }

    fn open(&self) -> Connection {
        Connection::open_with_flags(folder().join(self.file()), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
    }

    /// What the recording's table `meta` has under a key.
    fn meta(&self, key: &str) -> Option<String> {
        self.open().query_row("SELECT value FROM meta WHERE key = ?", [key], |row| row.get(0)).ok()
    }
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings")
}

pub fn cases() -> Vec<Case> {
    vec![
        case("corpus/every_family_has_a_recording", every_family),
        case("corpus/every_recording_is_listed", every_file),
        case("corpus/the_readme_says_how_each_was_made", readme),
        case("corpus/is_small", small),
        case("corpus/names_nothing_of_the_machine_that_made_it", neutral),
        case("corpus/one_was_cut_off", cut_off),
    ]
}

fn every_family() {
    for family in Family::ALL {
        let file = FILES.iter().find(|file| file.family == family);
        let file = file.unwrap_or_else(|| panic!("no recording of {family}"));
        let probes = file.meta("probes").unwrap();
        assert!(probes.split(',').any(|probe| probe == family.name()), "{}: only {probes}", file.name);
    }
}

fn every_file() {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> = entries.filter(|name| name.ends_with(".pyobs")).collect();
    let listed: BTreeSet<String> = FILES.iter().map(File::file).collect();
    assert_eq!(there, listed);
}

fn readme() {
    let text = fs::read_to_string(folder().join("README.md")).unwrap();
    for file in FILES {
        let row = format!("| `{}` |", file.file());
        assert_eq!(text.matches(&row).count(), 1, "README.md has no row, or several, of {}", file.file());
    }
}

fn small() {
    for file in FILES {
        let bytes = fs::metadata(folder().join(file.file())).unwrap().len();
        assert!(bytes <= FILE_BYTES_MAX, "{}: {bytes} bytes", file.name);
    }
    let bytes = size(&folder());
    assert!(bytes <= FOLDER_BYTES_MAX, "the folder has {bytes} bytes");
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { size(&path) } else { fs::metadata(&path).unwrap().len() }).sum()
}

/// Freed pages may hold texts that no row has any more, so the bytes are searched as well.
fn neutral() {
    for file in FILES {
        assert_eq!(file.meta("host").as_deref(), Some("demo"), "{}", file.name);
        let bytes = fs::read(folder().join(file.file())).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for machine in ["/root", "/work", "/home/", "pyenv", "python-build"] {
            let around = text.find(machine).map(|at| text[at..].chars().take(80).collect::<String>());
            assert_eq!(around, None, "{} has {machine}", file.name);
        }
    }
}

fn cut_off() {
    for file in FILES {
        let finished = file.meta("finished_ns").is_some();
        assert_eq!(finished, file.name != "cut-off", "{}", file.name);
    }
}
