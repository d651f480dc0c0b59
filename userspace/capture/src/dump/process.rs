//! A process as `pyobs dump` sees it.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use pyobs_model::dump::{Awaited, Role, StackState, State as Doing, TaskDump, ThreadDump, What};
use pyobs_model::{Frame, Tid, WaitReason};

use super::awaited::{self, Awaits};
use super::files::Everyone;
use super::frames::{Frames, Outcome};
use super::names::{Codes, Sources};
use super::objects::Objects;
use super::pages::Pages;
use super::states::{self, Gil, State as ThreadState};
use super::tasks::Task;
use super::threads::{self, Clock, Kernel};
use crate::cpython::attached::{Attachment, NotAttached};
use crate::cpython::mapped::Mapped;
use crate::families::offcpu::reason;
use crate::files::Files;
use crate::kernel::calls;
use crate::process_maps::Mappings;

/// How often the frames of a thread that runs are read again until they stay the same.
const TRIES: usize = 8;

pub struct Process {
    pub pid: u32,
    pub attachment: Attachment,
    pub memory: Pages,
    pub threads: Vec<Thread>,
    states: Vec<ThreadState>,
    codes: RefCell<Codes>,
    sources: RefCell<Sources>,
}

pub struct Thread {
    pub kernel: Kernel,
    pub python: Option<Python>,
}

/// The Python side of a thread.
pub struct Python {
    pub state: ThreadState,
    pub frames: Frames,
    pub stack_state: StackState,
    pub gil: Option<Gil>,
    /// Its frames, innermost first.
    pub named: Vec<Frame>,
}

/// Why a process is left out.
pub enum Unread {
    NoRights,
    Refused(String),
}

impl Process {
    /// `None` if it runs no CPython, or has ended.
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
        let states = states::all(&memory, &attachment).unwrap_or_default();
        let mut process = Self {
            pid,
            attachment,
            memory,
            threads: Vec::new(),
            states,
            codes: RefCell::default(),
            sources: RefCell::default(),
        };
        for kernel in kernels {
            let python = process.python(&kernel);
            process.threads.push(Thread { kernel, python });
        }
        Ok(Some(process))
    }

    /// Reads the frames of a thread. Of several thread states that it made, the newest with frames counts.
    fn python(&self, kernel: &Kernel) -> Option<Python> {
        let own: Vec<&ThreadState> = self.states.iter().filter(|state| state.tid == kernel.inner_tid).collect();
        let has_frames =
            |state: &&&ThreadState| !Frames::of(&self.memory, &self.attachment.layout, state.address).list.is_empty();
        let state = match &own[..] {
            [] => return None,
            [only] => *only,
            [first, ..] => own.iter().find(has_frames).unwrap_or(first),
        };
        let (frames, stack_state) = self.frames(kernel, state);
        let gil = Gil::of(&self.memory.now(), &self.attachment, state.interpreter);
        let mut codes = self.codes.borrow_mut();
        let named = |at: &super::frames::At| codes.frame(&self.memory, &self.attachment.attached, at.frame);
        let named = frames.list.iter().filter_map(named).collect();
        Some(Python { state: *state, frames, stack_state, gil, named })
    }

    fn frames(&self, kernel: &Kernel, state: &ThreadState) -> (Frames, StackState) {
        let layout = &self.attachment.layout;
        // A thread that runs has pages of its own, so that they can be read again together.
        let own = (kernel.state == Doing::Running).then(|| Pages::new(self.pid));
        let memory = own.as_ref().unwrap_or(&self.memory);
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

    /// The frames of a task, as they are shown.
    pub fn shown_task(&self, task: &Task) -> TaskDump {
        let (mut codes, mut sources) = (self.codes.borrow_mut(), self.sources.borrow_mut());
        let python = &self.attachment.attached;
        let named = task.frames.iter().filter_map(|at| codes.frame(&self.memory, python, at.frame));
        let named: Vec<Frame> = named.collect();
        let id = |address: &u64| format!("{address:#x}");
        TaskDump {
            id: id(&task.address),
            name: task.name.clone(),
            tid: task.tid.map(Tid),
            state: task.state,
            awaits: task.awaits.iter().map(id).collect(),
            awaited_by: task.awaited_by.iter().map(id).collect(),
            stack: named.iter().map(|frame| sources.with_source(self.pid, frame)).collect(),
            stack_state: task.stack_state,
        }
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

    /// The thread whose `pthread_self()` this is.
    pub fn thread_with(&self, number: u64) -> Option<u32> {
        self.thread_by(|state| state.thread == number)
    }

    /// The thread that a thread state belongs to.
    pub fn thread_of_state(&self, address: u64) -> Option<u32> {
        self.thread_by(|state| state.address == address)
    }

    fn thread_by(&self, is_it: impl Fn(&ThreadState) -> bool) -> Option<u32> {
        let state = self.states.iter().find(|state| is_it(state))?;
        self.threads.iter().find(|thread| thread.kernel.inner_tid == state.tid).map(|thread| thread.kernel.tid)
    }

    /// What its threads wait for.
    pub fn awaited(&self, everyone: &Everyone) -> Awaits {
        awaited::of(self, everyone)
    }

    pub fn shown(&self, thread: &Thread, awaits: Option<Awaited>) -> ThreadDump {
        let Thread { kernel, python } = thread;
        let call = kernel.call.and_then(|call| call.number);
        let rests = matches!(kernel.state, Doing::Asleep | Doing::Uninterruptible);
        let waits_for_gil = awaits.as_ref().is_some_and(|awaited| awaited.what == What::Gil);
        let reason = kernel.call.filter(|_| rests).map(|call| match waits_for_gil {
            true => WaitReason::Gil,
            false => reason::of_call(call.number.unwrap_or(pyobs_abi::offcpu::NO_CALL), call.arguments[0] == 0),
        });
        let mut sources = self.sources.borrow_mut();
        let frames = python.iter().flat_map(|python| python.named.iter().rev());
        let holds_gil = python.as_ref().is_some_and(|python| {
            python.gil.is_some_and(|gil| gil.holder == Some(python.state.address)) && !waits_for_gil
        });
        ThreadDump {
            tid: Tid(kernel.tid),
            name: kernel.name.clone(),
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
            stack: frames.map(|frame| sources.with_source(self.pid, frame)).collect(),
            stack_state: python.as_ref().map_or(StackState::None, |python| python.stack_state),
        }
    }
}
