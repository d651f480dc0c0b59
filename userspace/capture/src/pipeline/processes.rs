//! The watched processes: found, followed through fork and exec, forgotten at their end.

mod interpreters;
mod lifecycle;
pub mod token_bucket;
mod watched;

use std::ffi::OsStr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashSet};
use pyobs_abi::process;
use pyobs_model::{Event, Nanos, Pid, Process, ProcessRef, Reason};

use crate::cpython::attached::Attached;
use crate::files::{FileId, Files};
use crate::frame_cache::FrameCache;
use crate::kernel::cost::thread_time;
use crate::kernel::object::Object;
use crate::kernel::sideband::{Behind, Mapped};
use crate::loader;
use crate::machine::{self, Facts};
use crate::native::Native;
use crate::placements::Placements;
use crate::process_maps::{Mapping, Mappings};
use crate::session::options::{Matching, Targets};

use self::token_bucket::TokenBuckets;
pub use self::watched::Watched;
use self::watched::sampled;

/// Delay between the first notice of a mapping and the look at the process, so that its loader makes
/// progress.
const EXAMINE_AFTER: Duration = Duration::from_millis(2);
/// Retries for an interpreter that is not ready: the first interval, the number of tries after which it grows
/// by one step, and the number of tries. They span half a minute, which may be needed on a machine where
/// hundreds start at once.
const RETRY_AFTER: Duration = Duration::from_millis(1);
const TRIES_A_STEP: u32 = 20;
const TRIES: u32 = 1000;
/// Delay between a notice of a mapping and reading a watched process's map again: a loader maps one file
/// after another.
const REFRESH_AFTER: Duration = Duration::from_millis(5);

/// Time limit per turn of the loop for processes, plus one process; the rest waits for the next turn.
const TURN: Duration = Duration::from_millis(100);

/// A process that runs CPython now.
pub struct Running<'a> {
    pub pid: u32,
    pub id: ProcessRef,
    pub python: &'a Attached,
}

/// A process that may contain an interpreter not yet known.
struct Pending {
    due: Instant,
    tries: u32,
}

pub struct Processes {
    everything: bool,
    /// With `everything`: only processes that match.
    matching: Option<Matching>,
    placements: Placements,
    start: Nanos,
    watched: HashMap<u32, Watched>,
    pending: HashMap<u32, Pending>,
    /// Watched processes whose memory map has changed, and when to read it.
    changed: HashMap<u32, Instant>,
    /// Limits how often maps may be read.
    map_reads: TokenBuckets,
    changed_files: Vec<FileId>,
    /// What was reported about interpreters that are not watched.
    refused: HashSet<String>,
    notes: Vec<String>,
    /// The launched process, which is ignored before its exec.
    expected: Option<u32>,
    files: Files,
    pub native: Native,
    layouts: HashMap<process::Layout, u32>,
    next: u32,
    grew: Instant,
    maps_read: u64,
}

impl Processes {
    pub fn new(targets: &Targets, start: Nanos, native: Native) -> Self {
        Self {
            everything: targets.is_everybody(),
            matching: if let Targets::Matching(matching) = targets { Some(matching.clone()) } else { None },
            placements: Placements::default(),
            start,
            watched: HashMap::default(),
            pending: HashMap::default(),
            changed: HashMap::default(),
            map_reads: TokenBuckets::default(),
            changed_files: Vec::new(),
            refused: HashSet::default(),
            notes: Vec::new(),
            expected: None,
            files: Files::default(),
            native,
            layouts: HashMap::default(),
            next: 0,
            grew: Instant::now(),
            maps_read: 0,
        }
    }

    /// Sets the time on the kernel's clock at which the recording begins.
    pub fn starts_at(&mut self, start: Nanos) {
        self.start = start;
    }

    /// A watched process, with what unwinds its native code.
    pub fn get(&mut self, pid: u32) -> Option<(&mut Watched, &mut Native)> {
        Some((self.watched.get_mut(&pid)?, &mut self.native))
    }

    /// When a process was last added.
    pub fn grew_at(&self) -> Instant {
        self.grew
    }

    /// The processes that run CPython now.
    pub fn running(&self) -> impl Iterator<Item = Running<'_>> + Clone {
        self.watched.iter().filter_map(|(pid, watched)| {
            Some(Running { pid: *pid, id: watched.id, python: watched.python.as_deref()? })
        })
    }

    /// All watched processes, including programs other than CPython.
    pub fn watched(&self) -> impl Iterator<Item = (u32, ProcessRef)> + '_ {
        self.watched.iter().map(|(pid, watched)| (*pid, watched.id))
    }

    /// The control groups of watched processes.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.watched.values().filter_map(|watched| watched.placement.cgroup.as_deref())
    }

    /// The executable mappings of all watched processes.
    pub fn mappings(&self) -> impl Iterator<Item = (u32, &Mapping)> + '_ {
        self.watched.iter().flat_map(|(pid, watched)| watched.mappings.iter().map(|mapping| (*pid, mapping)))
    }

    /// Increases whenever a process has mapped something new.
    pub fn maps_read(&self) -> u64 {
        self.maps_read
    }

    pub fn is_python(&self, pid: u32) -> bool {
        self.watched.get(&pid).is_some_and(|watched| watched.python.is_some())
    }

    /// Whether the user chose certain processes.
    pub fn has_targets(&self) -> bool {
        !self.everything
    }

    /// Whether the user wants this process, of those that nobody started or named.
    fn is_wanted(&mut self, pid: u32) -> bool {
        let Some(matching) = &self.matching else { return true };
        matching.has(&machine::name(pid), &self.placements.of(pid))
    }

    /// With targets: whether any of them is alive.
    pub fn targets_alive(&self) -> bool {
        self.everything || self.expected.is_some() || !self.watched.is_empty()
    }

    /// When the next process has to be looked at.
    pub fn next_due(&self) -> Option<Duration> {
        let due = self.pending.values().map(|pending| pending.due).chain(self.changed.values().copied()).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Looks at a process that is already running.
    pub fn begin(&mut self, pid: u32, object: &mut Object, events: &mut Vec<Event>) {
        if !self.everything {
            self.watch(pid, None, object, events);
        }
        self.attach(pid, 0, object, events);
    }

    /// Watches a process from its exec of this program on.
    pub fn expect(&mut self, pid: u32, program: &OsStr, object: &mut Object, events: &mut Vec<Event>) {
        for path in loader::files_of(program) {
            self.files.look_ahead(&path);
        }
        self.expected = Some(pid);
        self.set(pid, sampled(), object, events);
    }

    pub fn is_expected(&self, pid: u32) -> bool {
        self.expected == Some(pid)
    }

    /// Handles a notice that some process mapped something executable.
    pub fn mapped(&mut self, Mapped { pid, behind }: Mapped) {
        if self.watched.contains_key(&pid) {
            self.changed.entry(pid).or_insert_with(|| Instant::now() + REFRESH_AFTER);
        }
        let may_be_interpreter = match behind {
            Behind::Nothing => false,
            Behind::File(file) => self.files.may_be_interpreter(file),
            Behind::Unknown => true,
        };
        if !may_be_interpreter || self.is_python(pid) {
            return;
        }
        if self.everything || self.watched.contains_key(&pid) {
            self.visit(pid);
        }
    }

    /// Sentences for the user since the last call.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Files that were replaced since the last call.
    pub fn take_changed_files(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.changed_files)
    }

    /// Adds a process to the list of those to look at.
    pub fn visit(&mut self, pid: u32) {
        let after = if self.everything { EXAMINE_AFTER } else { Duration::ZERO };
        self.pending.entry(pid).or_insert_with(|| Pending { due: Instant::now() + after, tries: 0 });
    }

    /// Watched processes whose end was not reported.
    pub fn gone(&self) -> Vec<u32> {
        self.watched.keys().copied().filter(|pid| !machine::is_alive(*pid)).collect()
    }

    /// Looks at all processes after notices were lost, because any of them may have mapped something.
    pub fn examine_all(&mut self) {
        for pid in self.watched.keys() {
            self.changed.entry(*pid).or_insert_with(|| Instant::now() + REFRESH_AFTER);
        }
        for pid in machine::processes().unwrap_or_default() {
            if self.everything || self.watched.contains_key(&pid) {
                self.visit(pid);
            }
        }
    }

    /// Looks at the processes that are due. The next turn takes those that this one has no time for.
    pub fn attach_due(&mut self, object: &mut Object, events: &mut Vec<Event>) {
        let now = Instant::now();
        let due: Vec<(u32, u32)> =
            self.pending.iter().filter(|(_, pending)| pending.due <= now).map(|(pid, p)| (*pid, p.tries)).collect();
        for (pid, tries) in due {
            if now.elapsed() >= TURN {
                return;
            }
            self.pending.remove(&pid);
            if self.is_python(pid) {
                continue;
            }
            let allowed = self.map_reads.next(pid, now);
            if allowed > now {
                self.pending.insert(pid, Pending { due: allowed, tries });
            } else {
                self.attach(pid, tries, object, events);
            }
        }
        let due: Vec<u32> = self.changed.iter().filter(|(_, due)| **due <= now).map(|(pid, _)| *pid).collect();
        for pid in due {
            if now.elapsed() >= TURN {
                return;
            }
            self.changed.remove(&pid);
            let allowed = self.map_reads.next(pid, now);
            if allowed > now {
                self.changed.insert(pid, allowed);
                continue;
            }
            self.refresh(pid, object, events);
        }
    }

    /// Reads a watched process's memory map again.
    fn refresh(&mut self, pid: u32, object: &mut Object, events: &mut Vec<Event>) {
        if !self.watched.contains_key(&pid) {
            return;
        }
        let Ok(mappings) = self.read_map(pid) else { return };
        let Some(watched) = self.watched.get_mut(&pid) else { return };
        if mappings.is_same(&watched.mappings) {
            return;
        }
        let is_new = mappings.left_out() > 0 && watched.mappings.left_out() == 0;
        let before = Rc::clone(&watched.mappings);
        self.files.check(pid, mappings.iter().filter(|mapping| before.find(mapping.start) != Some(*mapping)));
        self.forget_changed();
        let Some(watched) = self.watched.get_mut(&pid) else { return };
        self.native.want_all(pid, &mappings);
        watched.place(mappings, &mut self.native);
        self.maps_read += 1;
        let entry = watched.entry;
        self.set(pid, entry, object, events);
        if is_new {
            events.push(self.lost(Reason::MappingsLeftOut, 1));
        }
    }

    /// Drops what was derived from files that were replaced.
    fn forget_changed(&mut self) {
        for file in self.files.take_changed() {
            self.native.forget(file);
            self.changed_files.push(file);
        }
    }

    /// Reads a process's memory map, charged to its allowance.
    fn read_map(&mut self, pid: u32) -> std::io::Result<Mappings> {
        let before = thread_time();
        let mappings = Mappings::of(pid)?;
        self.map_reads.spend(pid, mappings.lines(), thread_time().saturating_sub(before), Instant::now());
        Ok(mappings)
    }

    /// Watches a process, as one without Python for now.
    fn watch(&mut self, pid: u32, started: Option<Nanos>, object: &mut Object, events: &mut Vec<Event>) {
        if self.set(pid, sampled(), object, events) {
            let mappings = self.read_map(pid).unwrap_or_default();
            let entry = self.add(pid, started, None, sampled(), mappings, events);
            self.set(pid, entry, object, events);
        }
    }

    /// Tells the kernel side what to do with a process.
    fn set(&self, pid: u32, entry: process::Process, object: &mut Object, events: &mut Vec<Event>) -> bool {
        let fits = object.processes.insert(pid, entry, 0).is_ok();
        if !fits {
            events.push(self.lost(Reason::TableFull, 1));
        }
        fits
    }

    /// Tells the kernel side where a process's event loop keeps the time of its turn.
    pub fn set_turn(&mut self, pid: u32, turn: process::Turn, object: &mut Object) {
        if let Some(watched) = self.watched.get_mut(&pid) {
            watched.entry.turn = turn;
            // The process is in the table, so there is room for it.
            let _ = object.processes.insert(pid, watched.entry, 0);
        }
    }

    fn add(
        &mut self,
        pid: u32,
        started: Option<Nanos>,
        python: Option<Attached>,
        entry: process::Process,
        mappings: Mappings,
        events: &mut Vec<Event>,
    ) -> process::Process {
        let known = Facts::of(pid);
        let before = self.watched.get(&pid);
        let started = started.or(before.and_then(|watched| watched.facts.started));
        let facts = Process {
            pid: Pid(pid),
            ppid: Pid(known.as_ref().map_or(0, |facts| facts.ppid)),
            command: known.as_ref().map_or_else(|| Arc::from("?"), |facts| Arc::from(&*facts.command)),
            python: python.as_ref().map(|python| Arc::clone(&python.version)),
            started: started.or_else(|| known.and_then(|facts| facts.started(self.start))),
        };
        let id = match before {
            Some(watched) => watched.id,
            None => {
                self.next += 1;
                ProcessRef(self.next - 1)
            }
        };
        events.push(Event::Process { id, process: facts.clone() });
        let placement = self.placements.of(pid);
        events.push(Event::Placement { process: id, placement: placement.clone() });
        if mappings.left_out() > 0 && before.is_none_or(|watched| watched.mappings.left_out() == 0) {
            events.push(self.lost(Reason::MappingsLeftOut, 1));
        }
        self.files.check(pid, mappings.iter());
        self.forget_changed();
        self.native.want_all(pid, &mappings);
        let mut watched = Watched {
            id,
            pid,
            parent: None,
            python: python.map(Rc::new),
            names: FrameCache::default(),
            facts,
            placement,
            mappings: Rc::default(),
            placed: None,
            threads: HashMap::default(),
            entry,
            unattached: 0,
        };
        watched.place(mappings, &mut self.native);
        let entry = watched.entry;
        self.grew = Instant::now();
        self.maps_read += 1;
        self.watched.insert(pid, watched);
        entry
    }

    fn lost(&self, reason: Reason, count: u64) -> Event {
        Event::Loss { at: machine::monotonic().saturating_sub(self.start), reason, count }
    }
}
