//! Turns stacks into numbers of named frames.
//!
//! Python frames are named at once, because the code object may be gone a moment later. Another thread looks
//! up native functions, and a stack with an unknown one waits for it.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashSet};
use pyobs_abi::stack::{Frame as RawFrame, flags, native, native_address, walk};
use pyobs_model::{Event, Frame, FrameId, FrameKind, Nanos, Outcome, Reason, StackId, TaskId};

use super::decode::Stack;
use super::processes::Watched;
use crate::cache::Cache;
use crate::cpython::attached::Attached;
use crate::cpython::names::{self, CodeObject, LongTables};
use crate::files::FileId;
use crate::intern::Interner;
use crate::kernel::cost::Bucket;
use crate::kernel::symbols::Symbols;
use crate::memory::ProcessMemory;
use crate::native::Native;
use crate::native::images::Image;
use crate::native::merge::{Halves, Merged, greenlet_part, merge};
use crate::native::namer::{Key, Namer};
use crate::native::names::NAMELESS;
use crate::process_maps::{Mapping, Module};

/// Stands in for a code object that could not be read.
const UNREADABLE: &str = "<unreadable>";
/// Prefix of the names of trampolines made by `python -X perf`
/// (<https://github.com/python/cpython/blob/v3.13.0/Python/perf_trampoline.c>).
const TRAMPOLINE: &str = "py::";
/// How long a stack waits for the names of its native frames.
const PATIENCE: Duration = Duration::from_secs(10);
/// Stacks that may wait at the same time; beyond this the oldest are emitted without the missing names.
const PARKED_MAX: usize = 50_000;
/// Share of one CPU that reading huge line tables may use, and how much of it can be saved.
const TABLES_SHARE: f64 = 0.02;
const TABLES_SAVED_MAX: Duration = Duration::from_millis(200);
/// Cached native functions; the least recently used are evicted and looked up again.
const KNOWN_MAX: usize = 32_768;

/// A stack and what it was taken for.
pub struct Taken<P> {
    pub purpose: P,
    /// `None` if no stack number was left.
    pub stack: Option<StackId>,
    /// How much of it was walked.
    pub outcome: Outcome,
}

/// A native frame whose names are not known yet.
struct Gap {
    /// Number of the stack's frames before it.
    at: usize,
    key: Key,
    module: Module,
}

struct Parked<P> {
    purpose: P,
    outcome: Outcome,
    task: Option<TaskId>,
    /// The frames already named, root first.
    frames: Vec<FrameId>,
    gaps: Vec<Gap>,
    since: Instant,
}

pub struct Stacks<P> {
    symbols: Symbols,
    kernel_frames: HashMap<Arc<str>, FrameId>,
    namer: Namer,
    known: Cache<Key, Rc<[FrameId]>>,
    asked: HashSet<Key>,
    parked: VecDeque<Parked<P>>,
    merged: Vec<Merged>,
    reading: Reading,
}

/// State kept between reads of code objects.
struct Reading {
    /// Whether code not known before was read.
    learned: bool,
    /// When a line was last looked up in a table that is not kept.
    long_table_at: Option<Instant>,
    tables: Bucket,
}

impl Reading {
    /// Reads the code object of an unknown frame in this process's memory.
    fn code(&mut self, pid: u32, raw: RawFrame, python: &Attached) -> Result<CodeObject, Reason> {
        let now = Instant::now();
        let has_time = self.tables.spend(Duration::ZERO, now).is_zero();
        let tables = if has_time { LongTables::Read } else { LongTables::LeaveOut };
        let (memory, layout) = (ProcessMemory::new(pid), &python.layout);
        let code = names::read_code(&memory, raw.address, raw.check(), layout, python.code_type, tables);
        // A long table may have been read before the object turned out to have changed.
        if code.as_ref().map_or(true, CodeObject::has_long_table) {
            self.tables.spend(now.elapsed(), Instant::now());
        }
        self.learned |= code.is_ok();
        code
    }
}

impl<P> Stacks<P> {
    pub fn new(namer: Namer) -> Self {
        let mut symbols = Symbols::default();
        // Do this while we still have the right to see kernel addresses.
        symbols.learn(&[0]);
        Self {
            symbols,
            kernel_frames: HashMap::default(),
            namer,
            known: Cache::new(KNOWN_MAX),
            asked: HashSet::default(),
            parked: VecDeque::new(),
            merged: Vec::new(),
            reading: Reading {
                learned: false,
                long_table_at: None,
                tables: Bucket::new(TABLES_SHARE, TABLES_SAVED_MAX),
            },
        }
    }

    /// Looks up the kernel functions that a batch of stacks is the first to contain.
    pub fn learn_symbols<'a>(&mut self, stacks: impl Iterator<Item = &'a Stack>) {
        let new = stacks.flat_map(|stack| &stack.kernel).filter(|address| !self.symbols.knows(**address));
        let new: BTreeSet<u64> = new.copied().collect();
        if !new.is_empty() {
            self.symbols.learn(&new.into_iter().collect::<Vec<u64>>());
        }
    }

    /// Takes a stack. [`Self::named`] returns it when all its frames are named.
    #[expect(clippy::too_many_arguments, reason = "what is taken, whose it is, where it goes, and what for")]
    pub fn take(
        &mut self,
        stack: &Stack,
        at: Nanos,
        watched: &Watched,
        native: &mut Native,
        interner: &mut Interner,
        events: &mut Vec<Event>,
        purpose: P,
    ) {
        let one_each = watched.python.as_ref().is_some_and(|python| python.layout.frame.owner.is_none());
        let is_complete = stack.sample.walk == walk::COMPLETE;
        let greenlet = watched.greenlet().filter(|_| is_complete);
        let greenlet = greenlet.and_then(|code| greenlet_part(&stack.native, stack.frames.len(), one_each, &code));
        let words = &stack.native[..greenlet.unwrap_or(stack.native.len())];
        let is_complete = greenlet.is_some() && stack.sample.flags & flags::UNJOINED == 0;
        let mut outcome = if is_complete { Outcome::Complete } else { outcome(stack) };
        let halves = Halves {
            one_each,
            native_complete: greenlet.is_some() || stack.sample.native == native::COMPLETE,
            python_truncated: stack.sample.walk == walk::TRUNCATED,
        };
        let mut merged = std::mem::take(&mut self.merged);
        if !merge(words, stack.frames.len(), halves, &mut merged) && outcome == Outcome::Complete {
            outcome = Outcome::NativePartial(Reason::FramesUnjoined);
        }
        let (mut frames, mut gaps) = (Vec::with_capacity(merged.len() + stack.kernel.len()), Vec::new());
        let mut last_mapping = None;
        for frame in merged.iter().rev() {
            match *frame {
                Merged::Native(number) => {
                    let address = native_address(stack.native[number]);
                    let mapping = last_mapping.filter(|last: &&Mapping| last.has(address));
                    last_mapping = mapping.or_else(|| watched.mapping(address));
                    self.native_frame(address, watched.pid, last_mapping, &mut frames, &mut gaps);
                }
                Merged::Python(number) => {
                    match python(stack.frames[number], at, watched, interner, events, &mut self.reading) {
                        Ok(frame) => frames.extend(frame),
                        Err(reason) => {
                            events.push(Event::Loss { at, reason, count: 1 });
                            outcome = Outcome::Failed(reason);
                            let unreadable = Frame::new(FrameKind::Python, Arc::from(UNREADABLE));
                            frames.extend(interner.frame(unreadable, events));
                        }
                    }
                }
            }
        }
        self.merged = merged;
        for address in stack.kernel.iter().rev() {
            let name = self.symbols.name(*address);
            // This function calls the programs of a tracepoint that has several
            // (https://github.com/torvalds/linux/blob/v6.1/include/linux/tracepoint.h).
            if !name.starts_with("__traceiter_") {
                frames.extend(self.kernel(name, interner, events));
            }
        }
        if stack.sample.native == native::NO_TABLE
            && let Some(mapping) = stack.native.last().and_then(|word| watched.mapping(native_address(*word)))
        {
            native.want(watched.pid, mapping);
        }
        self.parked.push_back(Parked { purpose, outcome, task: None, frames, gaps, since: Instant::now() });
    }

    /// Says which task ran where the last stack was taken.
    pub fn belongs_to(&mut self, task: TaskId) {
        if let Some(parked) = self.parked.back_mut() {
            parked.task = Some(task);
        }
    }

    /// Requests the names that stacks wait for, and returns the stacks whose names are complete.
    pub fn named(&mut self, interner: &mut Interner, events: &mut Vec<Event>) -> Vec<Taken<P>> {
        let mut named = Vec::new();
        for (key, module, names) in self.namer.answers() {
            self.asked.remove(&key);
            let frames: Rc<[FrameId]> = if names.is_empty() {
                self.nameless_frame(&module, interner, events)
            } else if key.image == Image::Anonymous && names.iter().all(|name| name.function.starts_with(TRAMPOLINE)) {
                // The Python frame represents it.
                Rc::from([])
            } else {
                let frames = names.into_iter().filter_map(|name| {
                    let frame = Frame {
                        kind: FrameKind::Native,
                        function: name.function,
                        module: Some(Arc::clone(&module.name)),
                        file: name.file,
                        line: name.line,
                        first_line: None,
                        package: module.package.clone(),
                    };
                    interner.frame(frame, events)
                });
                frames.collect()
            };
            self.known.insert(key, frames);
        }
        while let Some(first) = self.parked.front() {
            let is_late = first.since.elapsed() > PATIENCE || self.parked.len() > PARKED_MAX;
            if !is_late && !first.gaps.iter().all(|gap| self.known.peek(&gap.key).is_some()) {
                break;
            }
            let Some(parked) = self.parked.pop_front() else { break };
            let frames = self.filled(parked.frames, &parked.gaps, interner, events);
            let stack = interner.stack(&frames, parked.task, events);
            named.push(Taken { purpose: parked.purpose, stack, outcome: parked.outcome });
        }
        self.namer.flush();
        named
    }

    /// Drops the names of a file that was replaced.
    pub fn forget(&mut self, file: FileId) {
        self.known.retain(|key| key.image != Image::File(file));
        self.namer.forget(file);
    }

    /// Whether unknown Python code was read since the last call.
    pub fn has_learned(&mut self) -> bool {
        std::mem::take(&mut self.reading.learned)
    }

    /// When a line was last looked up in a line table that is not kept.
    pub fn long_table_at(&self) -> Option<Instant> {
        self.reading.long_table_at
    }

    /// Announces that no more stacks will come, and the caller waits for the remaining names.
    pub fn hurry(&self) {
        self.namer.hurry();
    }

    /// Whether stacks wait for names.
    pub fn is_waiting(&self) -> bool {
        !self.parked.is_empty()
    }

    /// The frames of a stack, with the names it waited for filled in.
    fn filled(
        &self,
        known: Vec<FrameId>,
        gaps: &[Gap],
        interner: &mut Interner,
        events: &mut Vec<Event>,
    ) -> Vec<FrameId> {
        if gaps.is_empty() {
            return known;
        }
        let (mut frames, mut done) = (Vec::with_capacity(known.len() + gaps.len()), 0);
        for gap in gaps {
            frames.extend_from_slice(&known[done..gap.at]);
            done = gap.at;
            match self.known.peek(&gap.key) {
                Some(names) => frames.extend_from_slice(names),
                None => frames.extend_from_slice(&self.nameless_frame(&gap.module, interner, events)),
            }
        }
        frames.extend_from_slice(&known[done..]);
        frames
    }

    /// Adds the frames of a native function, or requests its name and leaves a gap.
    fn native_frame(
        &mut self,
        address: u64,
        pid: u32,
        mapping: Option<&Mapping>,
        frames: &mut Vec<FrameId>,
        gaps: &mut Vec<Gap>,
    ) {
        let key = match mapping {
            Some(mapping) => match Image::of(mapping) {
                image @ Image::Anonymous => Key { image, pid, address },
                image => Key { image, pid: 0, address: address - mapping.start + mapping.offset },
            },
            None => Key { image: Image::Anonymous, pid: 0, address: 0 },
        };
        if let Some(names) = self.known.get(&key) {
            return frames.extend_from_slice(names);
        }
        let module = mapping.map_or_else(Module::unknown, Module::of);
        if self.asked.insert(key) {
            match mapping {
                Some(mapping) => self.namer.ask(key, pid, mapping),
                None => self.namer.give_up(key, module.clone()),
            }
        }
        gaps.push(Gap { at: frames.len(), key, module });
    }

    fn nameless_frame(&self, module: &Module, interner: &mut Interner, events: &mut Vec<Event>) -> Rc<[FrameId]> {
        let Module { name, package } = module.clone();
        let frame = Frame { module: Some(name), package, ..Frame::new(FrameKind::Native, Arc::from(NAMELESS)) };
        interner.frame(frame, events).into_iter().collect()
    }

    fn kernel(&mut self, name: Arc<str>, interner: &mut Interner, events: &mut Vec<Event>) -> Option<FrameId> {
        if let Some(frame) = self.kernel_frames.get(&name) {
            return Some(*frame);
        }
        let frame = Frame::new(FrameKind::Kernel, Arc::clone(&name));
        let frame = interner.frame(frame, events)?;
        self.kernel_frames.insert(name, frame);
        Some(frame)
    }
}

/// Names a Python frame; `None` if it is the interpreter's own.
fn python(
    raw: RawFrame,
    at: Nanos,
    watched: &Watched,
    interner: &mut Interner,
    events: &mut Vec<Event>,
    reading: &mut Reading,
) -> Result<Option<FrameId>, Reason> {
    if let Some(frame) = watched.names.frame(raw) {
        return Ok(Some(frame));
    }
    // A forked child that has ended, or has become another program, had its parent's memory. The check word
    // tells whether the parent still has that code object.
    let parent = watched.parent.filter(|_| raw.check() != 0);
    let code = match watched.names.code(raw) {
        Some(code) => code,
        None => {
            let python = watched.python.as_deref().ok_or(Reason::ProcessGone)?;
            let code = reading.code(watched.pid, raw, python).or_else(|reason| match parent {
                Some(parent) => reading.code(parent, raw, python).map_err(|_| reason),
                None => Err(reason),
            });
            let code = Arc::new(code?);
            if !code.leaves_out_lines() {
                watched.names.insert_code(raw, Arc::clone(&code), at);
            }
            code
        }
    };
    if code.is_interpreters() {
        return Ok(None);
    }
    let line_in = |pid, offset| code.line(offset, &ProcessMemory::new(pid));
    let line = raw.offset().map_or(Ok(None), |offset| {
        let of_parent = |reason| parent.map_or(Err(reason), |parent| line_in(parent, offset).map_err(|_| reason));
        line_in(watched.pid, offset).or_else(of_parent)
    });
    if let Err(reason) = line {
        events.push(Event::Loss { at, reason, count: 1 });
    }
    if code.has_long_table() {
        reading.long_table_at = Some(Instant::now());
    }
    let (function, file) = (Arc::clone(&code.function), Arc::clone(&code.file));
    let frame = Frame::python(function, file, line.unwrap_or(None), Some(code.first_line));
    let frame = interner.frame(frame, events).ok_or(Reason::TableFull)?;
    // Do not cache the frame without its line: the table may be readable next time.
    if line.is_ok() || !(code.leaves_out_lines() || code.has_long_table()) {
        watched.names.insert_frame(raw, frame, at);
    }
    Ok(Some(frame))
}

fn outcome(stack: &Stack) -> Outcome {
    let sample = &stack.sample;
    let python = match sample.walk {
        walk::NO_PYTHON => Outcome::NoPython,
        walk::COMPLETE => Outcome::Complete,
        walk::TRUNCATED => Outcome::Truncated,
        walk::THREAD_STATE_UNREADABLE => Outcome::Failed(Reason::ThreadStateUnreadable),
        walk::FRAME_UNREADABLE => Outcome::Failed(Reason::FrameUnreadable),
        _ => Outcome::Failed(Reason::FrameInvalid),
    };
    if python != Outcome::Complete {
        return python;
    }
    let why = match sample.native {
        native::COMPLETE if sample.flags & flags::UNJOINED != 0 => Reason::FramesUnjoined,
        native::COMPLETE => return Outcome::Complete,
        native::TRUNCATED => return Outcome::Truncated,
        native::NO_MAPPING => Reason::MappingUnknown,
        native::NO_TABLE => Reason::UnwindTableMissing,
        native::NO_RULE => Reason::UnwindRuleMissing,
        native::UNSUPPORTED => Reason::UnwindRuleUnsupported,
        native::UNREADABLE => Reason::NativeStackUnreadable,
        _ => Reason::NativeStackInvalid,
    };
    Outcome::NativePartial(why)
}
