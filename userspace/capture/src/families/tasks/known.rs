//! What is known of one process's coroutines and tasks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use pyobs_abi::process::Turn;
use pyobs_abi::stack::Frame as RawFrame;
use pyobs_model::{Frame, TaskKind, TaskState};

use super::turns;
use crate::cache::Cache;
use crate::cpython::asyncio_debug::AsyncioOffsets;
use crate::cpython::attached::{Attached, kernel_layout};
use crate::dump::names::Codes;
use crate::dump::objects::Objects;
use crate::dump::pages::Pages;
use crate::dump::task_objects::{self, TaskObject};
use crate::dump::tasks::{self, Source};
use crate::dump::{coroutines, states};
use crate::kernel::cost::Bucket;
use crate::memory::{Memory, ProcessMemory};
use crate::pipeline::decode::Stack;
use crate::pipeline::processes::Watched;
use crate::process_maps::Mappings;

/// Minimum interval between full task listings of a process.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// Maximum interval while a process has no tasks.
const LIST_SELDOM: Duration = Duration::from_secs(16);
/// CPU budget for listing tasks: a share of one CPU, and how much unused time accumulates.
const LISTS_SHARE: f64 = 0.001;
const LISTS_SAVED_MAX: Duration = Duration::from_millis(50);
/// Pause between listings that look up a name. It doubles each time the name is not found.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time limit for one listing.
const LIST_MAX: Duration = Duration::from_millis(50);
/// Attempts per listing.
const TRIES: usize = 3;
/// Limits per process: tasks cached by coroutine, and tasks reported with their state.
const KNOWN_MAX: usize = 16_384;
const ALIVE_MAX: usize = 4096;
/// How long a cached task is used without checking that it still owns the coroutine.
const BELIEVED: Duration = Duration::from_secs(1);
/// Stacks searched for the event loop's function: other loops than asyncio's do not have it.
const TURN_SEARCHES_MAX: u32 = 64;
/// Cached code objects; the least recently used are evicted.
const CODES_MAX: usize = 4096;

/// A running coroutine.
#[derive(Clone, Debug)]
pub struct Coroutine {
    pub object: u64,
    /// The number of its Python frame in the stack.
    pub frame: usize,
    /// Its function, at its first line.
    pub function: Frame,
}

/// Limits how often tasks are listed.
pub struct Lookups(Bucket);

impl Default for Lookups {
    fn default() -> Self {
        Self(Bucket::new(LISTS_SHARE, LISTS_SAVED_MAX))
    }
}

/// A task with its current state.
pub struct Alive {
    pub address: u64,
    pub name: Option<Arc<str>>,
    pub state: TaskState,
    /// The address of the task that it awaits.
    pub awaits: Option<u64>,
    /// The address of the future that it awaits.
    pub future: Option<u64>,
    /// Its coroutines, the outermost first.
    pub frames: Vec<Frame>,
}

/// A cached task.
struct Listed {
    task: TaskObject,
    name: Option<Arc<str>>,
    checked: Instant,
}

pub struct Known {
    pub pid: u32,
    /// The functions of code objects, by address and check word; `None` for one that makes no coroutines.
    functions: Cache<(u64, u32), Option<Frame>>,
    /// By coroutine address.
    tasks: HashMap<u64, Listed>,
    /// Whether asyncio is loaded, or has had tasks.
    pub has_asyncio: bool,
    /// When a name may be looked up again, and the pause before the lookup after that.
    next_list: Option<Instant>,
    pause: Duration,
    /// The version of the memory map that was last searched for the table of offsets (3.14 and newer).
    searched: Option<u64>,
    offsets: Option<AsyncioOffsets>,
    /// Whether the event loop's function was found, and the stacks that were searched for it.
    has_turn: bool,
    turn_searches: u32,
    /// Time of the last full listing, and the interval until the next.
    listed_all: Option<Instant>,
    every: Duration,
}

impl Known {
    pub fn new(pid: u32) -> Self {
        Self {
            pid,
            functions: Cache::new(CODES_MAX),
            tasks: HashMap::default(),
            has_asyncio: false,
            next_list: None,
            pause: PAUSE,
            searched: None,
            offsets: None,
            has_turn: false,
            turn_searches: 0,
            listed_all: None,
            every: LIST_EVERY,
        }
    }

    /// Returns which library runs the coroutines of the process.
    pub fn runner(&self) -> TaskKind {
        if self.has_asyncio { TaskKind::Asyncio } else { TaskKind::Coroutine }
    }

    /// Returns the coroutine of the task that a stack belongs to: the outermost coroutine of the innermost run. An eager task
    /// runs inside the task that starts it.
    pub fn coroutine(&mut self, stack: &Stack, watched: &Watched) -> Option<Coroutine> {
        let python = watched.python.as_deref()?;
        let sample = &stack.sample;
        let runs = sample.generators.iter().zip(sample.generator_frames).filter(|(frame, _)| **frame != 0);
        for (frame, number) in runs {
            let Some(code) = stack.frames.get(usize::from(number)) else { continue };
            if let Some(function) = self.function(*code, watched) {
                let object = coroutines::of_frame(python, *frame);
                return Some(Coroutine { object, frame: number.into(), function });
            }
        }
        None
    }

    /// Returns where the event loop above a task's coroutine keeps the time of its turn, once it is found.
    pub fn turn(&mut self, stack: &Stack, coroutine: usize, watched: &Watched) -> Option<Turn> {
        if self.has_turn || self.turn_searches >= TURN_SEARCHES_MAX {
            return None;
        }
        self.turn_searches += 1;
        let turn = turns::find(stack, coroutine, watched, watched.python.as_deref()?);
        self.has_turn = turn.is_some();
        turn
    }

    /// Returns the function of a code object, or `None` if it is not a coroutine function.
    fn function(&mut self, raw: RawFrame, watched: &Watched) -> Option<Frame> {
        let key = (raw.address, raw.check());
        if let Some(function) = self.functions.get(&key) {
            return function.clone();
        }
        let code = watched.names.code(raw)?;
        let (function, file) = (Arc::clone(&code.function), Arc::clone(&code.file));
        let frame = Frame::python(function, file, Some(code.first_line), Some(code.first_line));
        let function = code.is_coroutine().then_some(frame);
        if raw.check() != 0 {
            self.functions.insert(key, function.clone());
        }
        function
    }

    /// Returns the name of a coroutine's task, or `None` if it is not an asyncio task or ended before the lookup.
    pub fn name(
        &mut self,
        coroutine: u64,
        lookups: &mut Lookups,
        watched: &Watched,
        maps_read: u64,
    ) -> Option<Arc<str>> {
        let python = watched.python.as_deref()?;
        let now = Instant::now();
        if !self.check(coroutine, now) {
            let Lookups(bucket) = lookups;
            if self.next_list.is_some_and(|next| now < next) || !bucket.spend(Duration::ZERO, now).is_zero() {
                return None;
            }
            self.list(python, watched, maps_read, now);
            bucket.spend(now.elapsed(), Instant::now());
            // Tasks that end before they are listed would have all of them listed again and again.
            self.pause = if self.tasks.contains_key(&coroutine) { PAUSE } else { (2 * self.pause).min(PAUSE_MAX) };
            self.next_list = Some(now + self.pause);
        }
        let listed = self.tasks.get_mut(&coroutine)?;
        if listed.name.is_none() {
            let memory = Pages::new(self.pid);
            let objects = Objects::within(LIST_MAX, &memory, python);
            listed.name = task_objects::name(&objects, listed.task.name).map(Arc::from);
        }
        listed.name.clone()
    }

    /// Whether the coroutine's task is known and still has it.
    fn check(&mut self, coroutine: u64, now: Instant) -> bool {
        let Some(listed) = self.tasks.get_mut(&coroutine) else { return false };
        if now.saturating_duration_since(listed.checked) < BELIEVED {
            return true;
        }
        let (mut own, mut name) = ([0; 8], [0; 8]);
        let read = ProcessMemory::new(self.pid)
            .read_many(&mut [(listed.task.coroutine_at, &mut own), (listed.task.name_at, &mut name)]);
        if read.is_err() || u64::from_ne_bytes(own) != coroutine {
            return false;
        }
        let name = u64::from_ne_bytes(name);
        if name != listed.task.name {
            (listed.task.name, listed.name) = (name, None);
        }
        listed.checked = now;
        true
    }

    /// Lists all tasks with their state, if a listing is due and within budget.
    pub fn list_all(
        &mut self,
        lookups: &mut Lookups,
        watched: &Watched,
        maps_read: u64,
        at_the_end: bool,
    ) -> Option<Vec<Alive>> {
        let Lookups(bucket) = lookups;
        let (now, python) = (Instant::now(), watched.python.as_deref()?);
        let is_due = self.listed_all.is_none_or(|last| now.saturating_duration_since(last) >= self.every);
        if !self.has_asyncio || !is_due || at_the_end || !bucket.spend(Duration::ZERO, now).is_zero() {
            return None;
        }
        self.listed_all = Some(now);
        let found = self.look(python, watched, maps_read, |memory, objects, source| {
            let mut codes = Codes::default();
            let alive = |task: tasks::Task| {
                let frames = task.frames.iter().filter_map(|at| codes.frame(memory, python, at.frame)).collect();
                let name = task.name.map(Arc::from);
                Alive {
                    address: task.object.address,
                    name,
                    state: task.state,
                    awaits: task.awaits.first().copied(),
                    future: task.future,
                    frames,
                }
            };
            tasks::all(source, objects).into_iter().take(ALIVE_MAX).map(alive).collect::<Vec<Alive>>()
        });
        bucket.spend(now.elapsed(), Instant::now());
        let found = found.filter(|found| !found.is_empty());
        // Many programs load asyncio and make no tasks.
        self.every = if found.is_some() { LIST_EVERY } else { (2 * self.every).min(LIST_SELDOM) };
        found
    }

    /// Calls `with` with a reader for the interpreter's tasks.
    fn look<T>(
        &mut self,
        python: &Attached,
        watched: &Watched,
        maps_read: u64,
        with: impl FnOnce(&Pages, &Objects<'_>, Source<'_>) -> T,
    ) -> Option<T> {
        let layout = kernel_layout(&python.layout, None).filter(|_| !python.layout.free_threaded)?;
        if self.offsets.is_none() && self.searched != Some(maps_read) {
            self.searched = Some(maps_read);
            // Notices of mappings come later than the first samples of what was mapped.
            let now = || task_objects::offsets(self.pid, python, &Mappings::of(self.pid).ok()?);
            self.offsets = task_objects::offsets(self.pid, python, watched.mappings()).or_else(now);
        }
        let memory = Pages::new(self.pid);
        let objects = Objects::within(LIST_MAX, &memory, python);
        let states = states::all(&memory, python, 0).unwrap_or_default();
        let source = Source { layout: &layout, states: &states, offsets: self.offsets.as_ref() };
        Some(with(&memory, &objects, source))
    }

    fn list(&mut self, python: &Attached, watched: &Watched, maps_read: u64, now: Instant) {
        // Sets are read while the program changes them.
        let tasks = (0..TRIES).find_map(|_| {
            let tasks = self.look(python, watched, maps_read, |_, objects, source| {
                task_objects::all(objects, source.layout, source.states, source.offsets).0
            });
            tasks.filter(|tasks| !tasks.is_empty())
        });
        let Some(tasks) = tasks else { return };
        self.has_asyncio = true;
        let mut before = std::mem::take(&mut self.tasks);
        self.tasks = tasks
            .into_iter()
            .take(KNOWN_MAX)
            .map(|task| {
                let same = before.remove(&task.coroutine).filter(|known| known.task == task);
                (task.coroutine, Listed { task, name: same.and_then(|known| known.name), checked: now })
            })
            .collect();
    }
}
