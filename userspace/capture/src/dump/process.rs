//! A process as `pyobs dump` sees it.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use pyobs_model::dump::{Awaited, DumpFrame, Role, StackState, State as Doing, ThreadDump, What};
use pyobs_model::report::FrameOut;
use pyobs_model::{Frame, Tid, WaitReason};

use super::frames::{At, Frames, Outcome};
use super::names::Codes;
use super::natives::Natives;
use super::objects::Objects;
use super::pages::Pages;
use super::sources::Sources;
use super::states::{self, Gil, State as ThreadState};
use super::task_iterator::Listed;
use super::thread_objects;
use super::threads::{self, Clock, Kernel};
use crate::cpython::attached::{Attachment, NotAttached};
use crate::cpython::mapped::Mapped;
use crate::families::offcpu::reason;
use crate::files::Files;
use crate::kernel::calls;
use crate::native::walk::{Files as NativeFiles, Stack};
use crate::process_maps::Mappings;

/// Time limit for reading a process's frames. Threads not reached by then have no frames.
const TIME_MAX: Duration = Duration::from_secs(2);
/// The most thread states considered per thread.
const STATES_MAX: usize = 16;
/// Attempts to read a thread before it runs on.
const TRIES: usize = 8;

pub struct Process {
    pub pid: u32,
    pub attachment: Attachment,
    pub memory: Pages,
    pub mappings: Mappings,
    pub threads: Vec<Thread>,
    states: Vec<ThreadState>,
    codes: RefCell<Codes>,
    sources: RefCell<Sources>,
}

pub struct Thread {
    pub kernel: Kernel,
    pub python: Option<Python>,
    /// Its native stack, if it was asked for, and if the thread does not run.
    pub native: Option<Stack>,
}

/// The Python side of a thread.
pub struct Python {
    pub state: ThreadState,
    pub frames: Frames,
    pub stack_state: StackState,
    pub gil: Option<Gil>,
    /// The names of its frames; `None` for those of the interpreter's own.
    pub named: Vec<Option<Frame>>,
    /// `threading.Thread.name`.
    pub name: Option<String>,
    /// The tid of the thread that it joins, in the process's own pid namespace.
    pub joins: Option<u32>,
    /// A lock that a `with` statement names although the thread has released it.
    pub released: Option<u64>,
}

/// Why a process cannot be dumped.
pub enum Unread {
    NoRights,
    Refused(String),
}

impl Process {
    /// Reads a process. Returns `None` if it runs no CPython or has exited.
    pub fn read(pid: u32, files: &mut Files, clock: &Clock) -> Result<Option<Self>, Unread> {
        let mappings = match Mappings::of(pid) {
            Ok(mappings) => mappings,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(Unread::NoRights),
            Err(_) => return Ok(None),
        };
        let mapped = Mapped::of(pid, &mappings, files).map_err(|(name, refusal)| {
            Unread::Refused(format!("{name}: {}; its threads are not shown.", refusal.sentence))
        })?;
        let attachment = match mapped.attach() {
            None => return Ok(None),
            Some(Ok(attachment)) => attachment,
            Some(Err(NotAttached::NotYet)) => return Ok(None),
            Some(Err(NotAttached::Never(reason))) => {
                return Err(Unread::Refused(format!("Process {pid} is not shown: {}.", reason.sentence())));
            }
        };
        let memory = Pages::new(pid);
        let kernels = threads::of_process(pid, clock);
        let states = states::all(&memory, &attachment.attached, attachment.process.pthread_tid).unwrap_or_default();
        let mut process = Self {
            pid,
            attachment,
            memory,
            mappings,
            threads: Vec::new(),
            states,
            codes: RefCell::default(),
            sources: RefCell::new(Sources::new(pid)),
        };
        let begun = Instant::now();
        for kernel in kernels {
            let thread = if begun.elapsed() < TIME_MAX {
                process.thread(kernel, clock)
            } else {
                Thread { kernel, python: None, native: None }
            };
            process.threads.push(thread);
        }
        Ok(Some(process))
    }

    /// Reads the Python state that goes with what the kernel said of a thread. If it has run in between, reads both again.
    fn thread(&self, mut kernel: Kernel, clock: &Clock) -> Thread {
        let mut python = self.python(&kernel, &self.memory);
        for _ in 0..TRIES {
            if kernel.state == Doing::Running || python.is_none() || kernel.is_still_asleep(self.pid) {
                return Thread { kernel, python, native: None };
            }
            let Some(now) = threads::of_thread(self.pid, kernel.tid, clock) else { break };
            kernel = now;
            python = self.python(&kernel, &Pages::new(self.pid));
        }
        if let Some(python) = &mut python {
            python.stack_state = StackState::Torn;
        }
        Thread { kernel, python, native: None }
    }

    /// Adds what the task iterator reports about its threads. Returns false if a thread has run in the meantime: it is read
    /// again, and needs a newer report.
    pub fn add_listed(
        &mut self,
        listed: &HashMap<u32, Listed>,
        mut natives: Option<&mut NativeFiles>,
        clock: &Clock,
    ) -> bool {
        let memory = Pages::new(self.pid);
        let until = Instant::now() + TIME_MAX;
        let mut is_done = true;
        for index in 0..self.threads.len() {
            let Thread { kernel, native, .. } = &mut self.threads[index];
            let Some(listed) = listed.get(&kernel.tid) else { continue };
            if matches!(kernel.state, Doing::Running | Doing::Throttled) {
                kernel.state = if listed.is_throttled { Doing::Throttled } else { Doing::Running };
                continue;
            }
            let Some(files) = natives.as_deref_mut().filter(|_| native.is_none()) else { continue };
            let loops = &self.attachment.process.loops;
            let stack = files.walk(self.pid, &self.mappings, &memory, loops, listed.registers, until);
            if kernel.is_still_asleep(self.pid) {
                *native = Some(stack);
                continue;
            }
            is_done = false;
            if let Some(now) = threads::of_thread(self.pid, kernel.tid, clock) {
                self.threads[index] = self.thread(now, clock);
            }
        }
        is_done
    }

    /// Reads a thread's Python state. If it has several thread states, uses the newest with frames.
    fn python(&self, kernel: &Kernel, memory: &Pages) -> Option<Python> {
        let own = self.states.iter().filter(|state| state.tid == kernel.inner_tid);
        let own: Vec<&ThreadState> = own.take(STATES_MAX).collect();
        let has_frames =
            |state: &&&ThreadState| !Frames::of(memory, &self.attachment.layout, state.address).list.is_empty();
        let state = match &own[..] {
            [] => return None,
            [only] => *only,
            [first, ..] => own.iter().find(has_frames).unwrap_or(first),
        };
        let (frames, stack_state) = self.frames(kernel, state, memory);
        let gil = Gil::of(&self.memory.now(), &self.attachment, state.interpreter);
        let mut codes = self.codes.borrow_mut();
        let named = |at: &At| codes.frame(&self.memory, &self.attachment.attached, at.frame);
        let named: Vec<Option<Frame>> = frames.list.iter().map(named).collect();
        let objects = self.objects();
        let of = |frame: &Frame| (Arc::clone(&frame.function), frame.file.clone().unwrap_or_default());
        let own = || frames.list.iter().zip(&named).filter_map(|(at, named)| Some((at, of(named.as_ref()?))));
        let name =
            own().next_back().and_then(|(at, (function, file))| thread_objects::name(&objects, at, (&function, &file)));
        let joins = own().next().and_then(|(at, (function, file))| {
            let numbers = thread_objects::joined(&objects, at, (&function, &file))?;
            let is_it = |state: &&ThreadState| state.thread != 0 && numbers.contains(&state.thread);
            self.states.iter().find(is_it).map(|state| state.tid)
        });
        let released =
            own().next().and_then(|(at, (function, file))| thread_objects::released(&objects, at, (&function, &file)));
        Some(Python { state: *state, frames, stack_state, gil, named, name, joins, released })
    }

    fn frames(&self, kernel: &Kernel, state: &ThreadState, memory: &Pages) -> (Frames, StackState) {
        let layout = &self.attachment.layout;
        // A running thread gets its own page cache, so that a snapshot re-reads only what its stack touches.
        let own = (kernel.state == Doing::Running).then(|| Pages::new(self.pid));
        let memory = own.as_ref().unwrap_or(memory);
        let mut frames = Frames::default();
        for _ in 0..TRIES {
            frames = Frames::of(memory, layout, state.address);
            let is_same = frames.outcome != Outcome::Unreadable
                && (memory.were_same(frames.words()) || kernel.is_still_asleep(self.pid));
            if is_same {
                let stack_state = if frames.list.is_empty() { StackState::None } else { StackState::Consistent };
                return (frames, stack_state);
            }
            memory.renew();
        }
        let stack_state = if frames.outcome == Outcome::Unreadable && frames.list.is_empty() {
            StackState::Unreadable
        } else {
            StackState::Torn
        };
        (frames, stack_state)
    }

    pub fn states(&self) -> &[ThreadState] {
        &self.states
    }

    /// Names frames that belong to no thread, such as those of a suspended coroutine.
    pub fn shown_frames(&self, list: &[At]) -> Vec<DumpFrame> {
        let (mut codes, mut sources) = (self.codes.borrow_mut(), self.sources.borrow_mut());
        let python = &self.attachment.attached;
        let named = list.iter().filter_map(|at| codes.frame(&self.memory, python, at.frame));
        named.map(|frame| with_source(&mut sources, &frame)).collect()
    }

    pub fn objects(&self) -> Objects<'_> {
        Objects::new(&self.memory, &self.attachment.attached)
    }

    pub fn version(&self) -> Arc<str> {
        Arc::clone(&self.attachment.attached.version)
    }

    pub fn is_still_asleep(&self, tid: u32) -> bool {
        self.threads.iter().any(|thread| thread.kernel.tid == tid && thread.kernel.is_still_asleep(self.pid))
    }

    /// Returns the tid of the thread with this `pthread_self()`.
    pub fn thread_with(&self, number: u64) -> Option<u32> {
        self.thread_by(|state| state.thread == number)
    }

    /// Returns the tid of the thread that owns a thread state.
    pub fn thread_of_state(&self, address: u64) -> Option<u32> {
        self.thread_by(|state| state.address == address)
    }

    fn thread_by(&self, is_it: impl Fn(&ThreadState) -> bool) -> Option<u32> {
        self.thread_called(self.states.iter().find(|state| is_it(state))?.tid)
    }

    /// Translates a tid from the process's own pid namespace.
    pub fn thread_called(&self, inner_tid: u32) -> Option<u32> {
        self.threads.iter().find(|thread| thread.kernel.inner_tid == inner_tid).map(|thread| thread.kernel.tid)
    }

    pub fn shown(&self, thread: &Thread, awaits: Option<Awaited>, natives: &mut Natives) -> ThreadDump {
        let Thread { kernel, python, native } = thread;
        let call = kernel.call.and_then(|call| call.number);
        let rests = matches!(kernel.state, Doing::Asleep | Doing::Uninterruptible);
        let waits_for_gil = awaits.as_ref().is_some_and(|awaited| awaited.what == What::Gil);
        let reason = kernel.call.filter(|_| rests).map(|call| match waits_for_gil {
            true => WaitReason::Gil,
            false => reason::of_call(call.number.unwrap_or(pyobs_abi::offcpu::NO_CALL), call.arguments[0] == 0),
        });
        let (frames, native_stack) = match native {
            Some(stack) => natives.joined(self, python.as_ref(), stack),
            None => (python.iter().flat_map(|python| python.named.iter().flatten().cloned()).collect(), None),
        };
        let mut sources = self.sources.borrow_mut();
        let holds_gil = python.as_ref().is_some_and(|python| {
            python.gil.is_some_and(|gil| gil.holder == Some(python.state.address)) && !waits_for_gil
        });
        ThreadDump {
            tid: Tid(kernel.tid),
            name: kernel.name.clone(),
            python_name: python.as_ref().and_then(|python| python.name.clone()),
            role: match python {
                _ if kernel.tid == self.pid => Role::Main,
                Some(_) => Role::Python,
                None => Role::Native,
            },
            state: kernel.state,
            cpu: kernel.cpu,
            reason,
            call: call
                .map(|number| calls::of(number.into()).map_or_else(|| number.to_string(), |call| call.name.to_owned())),
            kernel_function: kernel.kernel_function.clone(),
            asleep_s: kernel.asleep.map(|asleep| asleep.as_secs_f64()),
            holds_gil,
            awaits,
            stack: frames.iter().rev().map(|frame| with_source(&mut sources, frame)).collect(),
            stack_state: python.as_ref().map_or(StackState::None, |python| python.stack_state),
            native_stack,
        }
    }
}

fn with_source(sources: &mut Sources, frame: &Frame) -> DumpFrame {
    let source = frame.file.as_ref().zip(frame.line).and_then(|(file, line)| sources.line(file, line));
    DumpFrame { frame: FrameOut::from(frame), source }
}
