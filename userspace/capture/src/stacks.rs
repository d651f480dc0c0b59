//! Stacks become numbers of named frames.
//!
//! Python frames are named at once, for the code object may be gone in a moment. Native functions are looked up beside
//! the work; a stack with one that is not known yet waits for it.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashSet};
use pyobs_abi::stack::{Frame as RawFrame, flags, native, native_address, walk};
use pyobs_model::{Event, Frame, FrameId, FrameKind, Nanos, Outcome, Reason, StackId};

use crate::cpython::names;
use crate::files::FileId;
use crate::intern::Interner;
use crate::join::{Halves, Joined, join};
use crate::kernel::symbols::Symbols;
use crate::memory::ProcessMemory;
use crate::native::Native;
use crate::native::images::Image;
use crate::native::namer::{Key, Namer};
use crate::processes::Watched;
use crate::record::Stack;

/// Stands for a function that has no name, and for a code object that could not be read.
const NATIVE: &str = "<native>";
const UNREADABLE: &str = "<unreadable>";
/// How long a stack waits for the names of its native frames.
const PATIENCE: Duration = Duration::from_secs(10);
/// Stacks that wait at the most, and native functions that are remembered.
const PARKED_MAX: usize = 50_000;
const KNOWN_MAX: usize = 200_000;

/// A stack and what it is for.
pub struct Taken<P> {
    pub purpose: P,
    /// `None` when there was no number left.
    pub stack: Option<StackId>,
}

/// A frame of a stack that waits.
#[derive(Clone, Copy)]
enum Part {
    Known(FrameId),
    /// By its number in `Parked::keys`.
    Native(usize),
}

struct Parked<P> {
    purpose: P,
    /// Root first.
    parts: Vec<Part>,
    keys: Vec<(Key, Arc<str>)>,
    since: Instant,
}

pub struct Stacks<P> {
    symbols: Symbols,
    kernel_frames: HashMap<Arc<str>, FrameId>,
    namer: Namer,
    known: HashMap<Key, Rc<[FrameId]>>,
    asked: HashSet<Key>,
    parked: VecDeque<Parked<P>>,
    joined: Vec<Joined>,
    /// Code that was not known was read.
    learned: bool,
}

impl<P> Stacks<P> {
    pub fn new(namer: Namer) -> Self {
        let mut symbols = Symbols::default();
        // While we still have the right to see the kernel's addresses.
        symbols.learn(&[0]);
        Self {
            symbols,
            kernel_frames: HashMap::default(),
            namer,
            known: HashMap::default(),
            asked: HashSet::default(),
            parked: VecDeque::new(),
            joined: Vec::new(),
            learned: false,
        }
    }

    /// Looks up the kernel functions that a batch of stacks is the first to name.
    pub fn learn_symbols<'a>(&mut self, stacks: impl Iterator<Item = &'a Stack>) {
        let new = stacks.flat_map(|stack| &stack.kernel).filter(|address| !self.symbols.knows(**address));
        let new: BTreeSet<u64> = new.copied().collect();
        if !new.is_empty() {
            self.symbols.learn(&new.into_iter().collect::<Vec<u64>>());
        }
    }

    /// Takes a stack; it comes out of [`Self::named`] when all its frames have names.
    #[expect(clippy::too_many_arguments, reason = "what is taken, whose it is, where it goes, and what for")]
    pub fn take(
        &mut self,
        stack: &Stack,
        at: Nanos,
        watched: &Watched,
        native: &mut Native,
        interner: &mut Interner,
        events: &mut Vec<Event>,
        purpose: impl FnOnce(Outcome) -> P,
    ) {
        let mut outcome = outcome(stack);
        let halves = Halves {
            one_each: watched.python.as_ref().is_some_and(|python| python.layout.frame.owner.is_none()),
            native_complete: stack.sample.native == native::COMPLETE,
            python_truncated: stack.sample.walk == walk::TRUNCATED,
        };
        let mut joined = std::mem::take(&mut self.joined);
        if !join(&stack.native, stack.frames.len(), halves, &mut joined) && outcome == Outcome::Complete {
            outcome = Outcome::Cut(Reason::FramesUnjoined);
        }
        let (mut parts, mut keys) = (Vec::with_capacity(joined.len() + stack.kernel.len()), Vec::new());
        for frame in joined.iter().rev() {
            match *frame {
                Joined::Native(number) => {
                    let address = native_address(stack.native[number]);
                    keys.push(self.native_frame(address, watched));
                    parts.push(Part::Native(keys.len() - 1));
                }
                Joined::Python(number) => {
                    match python(stack.frames[number], at, watched, interner, events, &mut self.learned) {
                        Ok(frame) => parts.push(Part::Known(frame)),
                        Err(reason) => {
                            events.push(Event::Loss { at, reason, count: 1 });
                            outcome = Outcome::Failed(reason);
                            let unreadable = Frame { function: Arc::from(UNREADABLE), ..nameless(FrameKind::Python) };
                            parts.extend(interner.frame(unreadable, events).map(Part::Known));
                        }
                    }
                }
            }
        }
        self.joined = joined;
        for address in stack.kernel.iter().rev() {
            let name = self.symbols.name(*address);
            // It calls those who look at a tracepoint, where there are several (include/linux/tracepoint.h).
            if !name.starts_with("__traceiter_") {
                parts.extend(self.kernel(name, interner, events).map(Part::Known));
            }
        }
        if stack.sample.native == native::NO_TABLE
            && let Some(mapping) = stack.native.last().and_then(|word| watched.mapping(native_address(*word)))
        {
            native.want(watched.pid, mapping);
        }
        self.parked.push_back(Parked { purpose: purpose(outcome), parts, keys, since: Instant::now() });
    }

    /// Asks for the names that stacks wait for, and gives those stacks that have theirs.
    pub fn named(
        &mut self,
        interner: &mut Interner,
        events: &mut Vec<Event>,
        mut each: impl FnMut(Taken<P>, &mut Vec<Event>),
    ) {
        for (key, module, names) in self.namer.answers() {
            self.asked.remove(&key);
            let frames: Rc<[FrameId]> = if names.is_empty() {
                self.nameless_frame(&module, interner, events)
            } else {
                let frames = names.into_iter().filter_map(|name| {
                    let frame = Frame {
                        kind: FrameKind::Native,
                        function: name.function,
                        module: Some(Arc::clone(&module)),
                        file: name.file,
                        line: name.line,
                        first_line: None,
                    };
                    interner.frame(frame, events)
                });
                frames.collect()
            };
            self.remember(key, frames);
        }
        while let Some(first) = self.parked.front() {
            let is_late = first.since.elapsed() > PATIENCE || self.parked.len() > PARKED_MAX;
            if !is_late && !first.keys.iter().all(|(key, _)| self.known.contains_key(key)) {
                break;
            }
            let Some(parked) = self.parked.pop_front() else { break };
            let mut frames = Vec::with_capacity(parked.parts.len());
            for part in &parked.parts {
                match *part {
                    Part::Known(frame) => frames.push(frame),
                    Part::Native(number) => {
                        let (key, module) = &parked.keys[number];
                        match self.known.get(key) {
                            Some(names) => frames.extend_from_slice(names),
                            None => frames.extend_from_slice(&self.nameless_frame(module, interner, events)),
                        }
                    }
                }
            }
            let stack = interner.stack(&frames, events);
            each(Taken { purpose: parked.purpose, stack }, events);
        }
        self.namer.flush();
    }

    /// Takes away the names of a file that is another now.
    pub fn forget(&mut self, file: FileId) {
        self.known.retain(|key, _| key.image != Image::File(file));
    }

    /// Whether Python code that was not known came up since the last call.
    pub fn has_learned(&mut self) -> bool {
        std::mem::take(&mut self.learned)
    }

    /// Whether stacks wait for names.
    pub fn is_waiting(&self) -> bool {
        !self.parked.is_empty()
    }

    /// What names a native frame, which is asked for unless it is known.
    fn native_frame(&mut self, address: u64, watched: &Watched) -> (Key, Arc<str>) {
        let (key, module) = match watched.mapping(address) {
            Some(mapping) => {
                let image = Image::of(mapping);
                let key = match image {
                    Image::Anonymous => Key { image, pid: watched.pid, address },
                    _ => Key { image, pid: 0, address: address - mapping.start + mapping.offset },
                };
                if !self.known.contains_key(&key) && self.asked.insert(key) {
                    self.namer.ask(key, watched.pid, mapping);
                }
                (key, Arc::clone(&mapping.name))
            }
            None => (Key { image: Image::Anonymous, pid: 0, address: 0 }, Arc::from("[unknown]")),
        };
        if key.pid == 0 && key.address == 0 && !self.known.contains_key(&key) && self.asked.insert(key) {
            self.namer.give_up(key, Arc::clone(&module));
        }
        (key, module)
    }

    fn nameless_frame(&self, module: &Arc<str>, interner: &mut Interner, events: &mut Vec<Event>) -> Rc<[FrameId]> {
        let frame =
            Frame { function: Arc::from(NATIVE), module: Some(Arc::clone(module)), ..nameless(FrameKind::Native) };
        interner.frame(frame, events).into_iter().collect()
    }

    fn remember(&mut self, key: Key, frames: Rc<[FrameId]>) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(key, frames);
    }

    fn kernel(&mut self, name: Arc<str>, interner: &mut Interner, events: &mut Vec<Event>) -> Option<FrameId> {
        if let Some(frame) = self.kernel_frames.get(&name) {
            return Some(*frame);
        }
        let frame = Frame { function: Arc::clone(&name), ..nameless(FrameKind::Kernel) };
        let frame = interner.frame(frame, events)?;
        self.kernel_frames.insert(name, frame);
        Some(frame)
    }
}

/// Names a Python frame.
fn python(
    raw: RawFrame,
    at: Nanos,
    watched: &Watched,
    interner: &mut Interner,
    events: &mut Vec<Event>,
    learned: &mut bool,
) -> Result<FrameId, Reason> {
    if let Some(frame) = watched.names.frame(raw) {
        return Ok(frame);
    }
    let code = match watched.names.code(raw) {
        Some(code) => code,
        None => {
            let python = watched.python.as_deref().ok_or(Reason::ProcessGone)?;
            let read = |pid| {
                let memory = ProcessMemory::new(pid);
                names::read_code(&memory, raw.address, raw.check(), &python.layout, python.code_type)
            };
            // A forked child that has ended or become another program since had its parent's memory; the check word
            // tells whether the parent still has that code object.
            let code = read(watched.pid).or_else(|reason| match watched.parent {
                Some(parent) if raw.check() != 0 => read(parent).map_err(|_| reason),
                _ => Err(reason),
            });
            let code = Arc::new(code?);
            *learned = true;
            watched.names.insert_code(raw, Arc::clone(&code), at);
            code
        }
    };
    let line = raw.offset().and_then(|offset| code.line(offset));
    let frame = Frame {
        kind: FrameKind::Python,
        function: Arc::clone(&code.function),
        module: None,
        file: Some(Arc::clone(&code.file)),
        line,
        first_line: Some(code.first_line),
    };
    let frame = interner.frame(frame, events).ok_or(Reason::TableFull)?;
    watched.names.insert_frame(raw, frame, at);
    Ok(frame)
}

fn nameless(kind: FrameKind) -> Frame {
    Frame { kind, function: Arc::from(""), module: None, file: None, line: None, first_line: None }
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
    Outcome::Cut(why)
}
