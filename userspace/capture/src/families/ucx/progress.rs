//! Counts calls of `ucp_worker_progress` for a few milliseconds at a time. A program that polls calls it
//! millions of times a second, and a probe makes each call forty times as slow.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aya::maps::{Array, MapData};
use pyobs_abi::control;
use pyobs_model::Nanos;

use crate::files::FileId;
use crate::kernel::probed_files::ProbedFile;
use crate::kernel::uprobes::{Scope, Uprobes};

/// The longest window, including the time to attach the probe.
const WINDOW: Duration = Duration::from_millis(30);
/// The pause between windows, after which another process has its turn; and the delay before the first, so
/// that the library can start up.
const PAUSE: Duration = Duration::from_secs(5);
const FIRST: Duration = Duration::from_secs(1);
const FILES_MAX: usize = 64;
const PROCESSES_MAX: usize = 4096;

/// The function's place in a library.
struct Place {
    file: ProbedFile,
    offset: u64,
}

/// A window for one process. Its thread returns for how long calls were counted.
struct Window {
    pid: u32,
    thread: JoinHandle<Option<Duration>>,
}

pub(super) struct Progress {
    program: Arc<OwnedFd>,
    uprobes: Uprobes,
    places: HashMap<FileId, Arc<Place>>,
    /// By pid: the library's file, and for how long calls were counted.
    processes: HashMap<u32, (FileId, Nanos)>,
    window: Option<Window>,
    next: Instant,
    /// The process of the last window.
    last: u32,
}

impl Progress {
    pub(super) fn new(program: OwnedFd, uprobes: Uprobes) -> Self {
        let (places, processes) = (HashMap::new(), HashMap::new());
        let program = Arc::new(program);
        Self { program, uprobes, places, processes, window: None, next: Instant::now(), last: 0 }
    }

    pub(super) fn place(&mut self, id: FileId, file: ProbedFile, offset: u64) {
        if self.places.len() < FILES_MAX {
            self.places.insert(id, Arc::new(Place { file, offset }));
        }
    }

    /// The code of this file is another one now.
    pub(super) fn rewritten(&mut self, id: FileId) {
        self.places.remove(&id);
        self.processes.retain(|_, (file, _)| *file != id);
    }

    pub(super) fn has(&mut self, pid: u32, file: FileId) {
        if self.processes.is_empty() {
            self.next = Instant::now() + FIRST;
        }
        if self.processes.len() < PROCESSES_MAX && self.places.contains_key(&file) {
            let known = self.processes.entry(pid).or_insert((file, Nanos(0)));
            known.0 = file;
        }
    }

    pub(super) fn ended(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// For how long a process's calls have been counted so far.
    pub(super) fn probed(&self, pid: u32) -> Nanos {
        self.processes.get(&pid).map_or(Nanos(0), |(_, probed)| *probed)
    }

    /// Whether a window may be open.
    pub(super) fn is_open(&self) -> bool {
        self.window.is_some()
    }

    /// Call regularly, with the time on the kernel's clock.
    pub(super) fn tick(&mut self, now: u64, control: &mut Array<MapData, u64>) {
        if let Some(window) = self.window.take_if(|window| window.thread.is_finished()) {
            self.next = Instant::now() + PAUSE;
            let probed = window.thread.join().ok().flatten().unwrap_or_default();
            if let Some((_, all)) = self.processes.get_mut(&window.pid) {
                *all = all.saturating_add(Nanos(u64::try_from(probed.as_nanos()).unwrap_or(u64::MAX)));
            }
        }
        if self.window.is_some() || Instant::now() < self.next {
            return;
        }
        let next = self.processes.keys().filter(|pid| **pid > self.last).min().or(self.processes.keys().min());
        let Some((pid, (file, _))) = next.and_then(|pid| self.processes.get_key_value(pid)) else { return };
        let Some(place) = self.places.get(file).map(Arc::clone) else { return };
        let until = now.saturating_add(u64::try_from(WINDOW.as_nanos()).unwrap_or(u64::MAX));
        if control.set(control::PROGRESS_UNTIL, until, 0).is_err() {
            return;
        }
        let (pid, uprobes, program) = (*pid, self.uprobes, Arc::clone(&self.program));
        let end = Instant::now() + WINDOW;
        let count = move || {
            let probe = uprobes.attach(program.as_fd(), &place.file, place.offset, Scope::Process(pid), 0).ok()?;
            let counted = end.saturating_duration_since(Instant::now());
            std::thread::sleep(counted);
            drop(probe);
            Some(counted)
        };
        self.last = pid;
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(count);
        self.window = thread.ok().map(|thread| Window { pid, thread });
    }
}
