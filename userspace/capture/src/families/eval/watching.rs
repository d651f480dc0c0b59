//! The processes whose calls are watched, their interpreters' files, and the probes on these.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;

use pyobs_model::ProcessRef;

use crate::cpython::entries::{self, Entries, Site, Unseen};
use crate::cpython::version::Version;
use crate::elf::Elf;
use crate::files::FileId;
use crate::kernel::probed_files::{Probe, ProbedFile};
use crate::kernel::uprobes::{Scope, TrapCosts, Uprobes};
use crate::prefetch::read_loaded;
use crate::process_maps::{Mapping, Mappings};

/// Processes or files with probes at the same time. Each has about five, and attaching one takes
/// milliseconds; further targets get none.
const TARGETS_MAX: usize = 64;

#[derive(Debug)]
pub struct Programs {
    pub enter: OwnedFd,
    pub exit: OwnedFd,
}

/// An interpreter's file.
#[derive(Debug)]
pub struct Image {
    /// Kept open so that the file stays reachable after it is renamed or its process ends.
    file: ProbedFile,
    name: String,
    entries: Entries,
    /// Link-time address minus file offset.
    delta: u64,
}

impl Image {
    /// Opens the file behind a mapping and looks for function entries and exits in it.
    fn open(pid: u32, id: FileId, mapping: &Mapping, version: Version) -> io::Result<Self> {
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for way in mapping.ways(pid) {
            match File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(&way) {
                Ok(file) => {
                    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
                    let file = ProbedFile::new(file, id);
                    let bytes = read_loaded(file.file(), file.file().metadata()?.len()).ok_or_else(invalid)?;
                    let elf = Elf::parse(&bytes).map_err(|_| invalid())?;
                    let delta = elf.code_delta().ok_or_else(invalid)?;
                    return Ok(Self {
                        file,
                        name: mapping.name.to_string(),
                        entries: entries::find(&elf, version),
                        delta,
                    });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Says in words which of its calls cannot be seen.
    fn unseen(&self) -> Vec<String> {
        let name = &self.name;
        let sentence = |unseen: &Unseen| match unseen {
            Unseen::Calls => {
                format!("calls in {name} are not seen: its code does not show where Python functions begin")
            }
            Unseen::Throws => format!("generators that go on because of an exception are not counted in {name}"),
            Unseen::Returns => format!("calls in {name} have no times: its code does not show where they end"),
            Unseen::Exceptions => {
                format!("calls in {name} that an exception ends have no times; it is stripped of its symbols")
            }
        };
        self.entries.unseen.iter().map(sentence).collect()
    }
}

/// A process whose calls are watched.
#[derive(Debug)]
pub struct Subject {
    pub id: ProcessRef,
    /// `None` if the interpreter's file could not be read.
    image: Option<Rc<Image>>,
    /// The words of its command line.
    pub command: Vec<String>,
}

/// Attaches and detaches probes.
#[derive(Debug)]
pub struct Watching {
    programs: Programs,
    uprobes: Uprobes,
    pub costs: TrapCosts,
    /// Attach to files, hence to all processes, instead of to each process.
    everybody: bool,
    images: HashMap<FileId, Rc<Image>>,
    subjects: HashMap<u32, Subject>,
    probes: HashMap<Target, Vec<Probe>>,
    /// What the user has already been told. Each new window would repeat it otherwise.
    reported: HashSet<String>,
}

/// What a set of probes is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Target {
    Process(u32),
    File(FileId),
}

impl Watching {
    pub fn new(programs: Programs, everybody: bool) -> io::Result<Self> {
        let uprobes = Uprobes::of_this_kernel()?;
        Ok(Self {
            programs,
            costs: uprobes.trap_costs()?,
            uprobes,
            everybody,
            images: HashMap::new(),
            subjects: HashMap::new(),
            probes: HashMap::new(),
            reported: HashSet::new(),
        })
    }

    pub fn subject(&self, pid: u32) -> Option<&Subject> {
        self.subjects.get(&pid)
    }

    pub fn pids(&self) -> Vec<u32> {
        self.subjects.keys().copied().collect()
    }

    /// Adds a process that runs CPython. Returns which of its calls cannot be seen, in words, the first time
    /// this is found.
    pub fn add(&mut self, pid: u32, id: ProcessRef, version: &str, file: FileId) -> Vec<String> {
        let mut notes = Vec::new();
        let mut image = self.images.get(&file).cloned();
        if image.is_none() {
            // Failures are not cached: they may be temporary.
            match open(pid, version, file) {
                Ok(opened) => {
                    notes = opened.unseen();
                    image = Some(Rc::clone(self.images.entry(file).or_insert(Rc::new(opened))));
                }
                Err(error) => {
                    notes.push(format!("calls in process {pid} are not seen: its interpreter cannot be read: {error}"));
                }
            }
        }
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        self.subjects.insert(pid, Subject { id, image, command });
        notes
    }

    /// Removes a process that has ended or runs another program now. Returns its probes.
    pub fn remove(&mut self, pid: u32) -> Vec<Probe> {
        self.subjects.remove(&pid);
        self.probes.remove(&Target::Process(pid)).unwrap_or_default()
    }

    /// A file was written to, so that its probes are gone. The next process that maps it gets new ones.
    pub fn rewritten(&mut self, file: FileId) {
        let Some(image) = self.images.remove(&file) else { return };
        self.probes.remove(&Target::File(file));
        for (pid, subject) in &mut self.subjects {
            if subject.image.take_if(|of_process| Rc::ptr_eq(of_process, &image)).is_some() {
                self.probes.remove(&Target::Process(*pid));
            }
        }
    }

    /// Attaches the missing probes. `cost` is the run time of a program in nanoseconds, without the trap.
    /// Failures are returned in words and not retried.
    pub fn attach(&mut self, cost: u32) -> Vec<String> {
        let wanted: Vec<(Target, Rc<Image>)> = if self.everybody {
            self.images.iter().map(|(file, image)| (Target::File(*file), Rc::clone(image))).collect()
        } else {
            let process = |(pid, subject): (&u32, &Subject)| Some((Target::Process(*pid), subject.image.clone()?));
            self.subjects.iter().filter_map(process).collect()
        };
        let mut notes = Vec::new();
        for (target, image) in wanted {
            if self.probes.contains_key(&target) {
                continue;
            }
            if self.probes.len() >= TARGETS_MAX {
                notes.push(format!("calls are watched in {TARGETS_MAX} processes at the most; there are more"));
                break;
            }
            let probes = self.put(&image, target, cost, &mut notes);
            self.probes.insert(target, probes);
        }
        notes.retain(|note| self.reported.insert(note.clone()));
        notes
    }

    fn put(&self, image: &Image, target: Target, cost: u32, failures: &mut Vec<String>) -> Vec<Probe> {
        let scope = match target {
            Target::Process(pid) => Scope::Process(pid),
            Target::File(_) => Scope::Everybody,
        };
        let mut probes = Vec::new();
        let mut put = |program: &OwnedFd, site: &Site| {
            let trap = if site.stepped { self.costs.stepped } else { self.costs.cheap };
            let cookie = site.cookie(trap.saturating_add(cost)).0;
            let offset = site.address.wrapping_sub(image.delta);
            match self.uprobes.attach(program.as_fd(), &image.file, offset, scope, cookie) {
                Ok(probe) => probes.push(probe),
                // The process has just ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => {
                    failures.push(format!("a probe in {} cannot be put: {error}; calls are missing", image.name));
                }
            }
        };
        // Exits first, so that no call is seen to begin without its end being seen too.
        image.entries.exits.iter().for_each(|site| put(&self.programs.exit, site));
        image.entries.enters.iter().for_each(|site| put(&self.programs.enter, site));
        probes
    }

    /// Detaches all probes and returns them.
    pub fn detach(&mut self) -> Vec<Probe> {
        self.probes.drain().flat_map(|(_, probes)| probes).collect()
    }
}

fn open(pid: u32, version: &str, file: FileId) -> io::Result<Image> {
    let version = Version::parse(version.as_bytes()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let mappings = Mappings::of(pid)?;
    let mapping = mappings.iter().find(|mapping| mapping.file == Some(file));
    Image::open(pid, file, mapping.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?, version)
}
