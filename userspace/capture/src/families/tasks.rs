//! The family `tasks`: which task of an event loop runs, or blocks its loop, where a stack is taken.
//!
//! The kernel side sends the frames of generators with every stack. The outermost frame of a run of them is that of a
//! task's coroutine, so the task is known without a walk over all tasks. Only what asyncio calls it has to be looked up
//! (`known.rs`). A stack that comes through code of the library greenlet below its outermost Python frame is that of a
//! greenlet (`greenlets.rs`).

mod greenlets;
mod known;
mod turns;

use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use pyobs_model::{
    Event, Family, Frame, FrameId, Nanos, ProcessRef, StackId, Task, TaskId, TaskKind, TaskState, TaskStatus,
};

use crate::family::{Collector, Context, FamilySpec, Start};
use crate::pipeline::decode::Stack;
use crate::session::error::StartError;

use self::known::{Alive, Known, Lookups};

pub const SPEC: FamilySpec = FamilySpec {
    is_on_by_default: true,
    start,
    ..FamilySpec::new(Family::Tasks, "which asyncio task or greenlet runs, or blocks its event loop")
};

/// Limits on the task names kept per coroutine function and process, and in total. A server may start a task for each
/// request, so tasks beyond these limits share one nameless entry per function.
const NAMES_MAX: usize = 256;
const ALL_NAMES_MAX: usize = 100_000;

/// The beginning of the name of asyncio's extension module.
const MODULE: &str = "_asyncio.";

#[derive(Default)]
struct Tasks {
    processes: HashMap<ProcessRef, Known>,
    lookups: Lookups,
    names: Names,
    /// The last reported status of each task.
    statuses: HashMap<ProcessRef, HashMap<TaskId, Said>>,
    /// Tasks that ran since the last listing of their process.
    have_run: HashSet<TaskId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Said {
    state: TaskState,
    awaits: Option<TaskId>,
    /// The address of the future that it awaits.
    future: Option<u64>,
    stack: StackId,
}

/// The task names in use, by process and coroutine function.
#[derive(Default)]
struct Names {
    of: HashMap<(ProcessRef, FrameId), HashSet<Arc<str>>>,
    count: usize,
}

impl Names {
    fn forget(&mut self, process: ProcessRef) {
        let gone = self.of.extract_if(|(of, _), _| *of == process);
        self.count -= gone.map(|(_, names)| names.len()).sum::<usize>();
    }

    /// Returns the task of this name, or the one that stands for all tasks of the coroutine without a name of their own.
    fn identify(
        &mut self,
        (process, kind): (ProcessRef, TaskKind),
        code: Frame,
        name: Option<Arc<str>>,
        context: &mut Context,
    ) -> Option<TaskId> {
        let coroutine = context.interner.frame(Frame { line: code.first_line, ..code }, &mut context.events)?;
        let names = self.of.entry((process, coroutine)).or_default();
        let name = name.filter(|name| {
            let is_known = names.contains(name);
            let has_room = names.len() < NAMES_MAX && self.count < ALL_NAMES_MAX;
            if !is_known && has_room {
                self.count += 1;
                names.insert(Arc::clone(name));
            }
            is_known || has_room
        });
        context.interner.task(Task { process, kind, name, coroutine }, &mut context.events)
    }
}

fn start(_: &mut Start<'_>) -> Result<Box<dyn Collector>, StartError> {
    Ok(Box::new(Tasks::default()))
}

impl Collector for Tasks {
    fn task_of(&mut self, stack: &Stack, context: &mut Context) -> Option<TaskId> {
        let maps_read = context.processes.maps_read();
        let pid = stack.sample.header.pid;
        let (watched, _) = context.processes.get(pid)?;
        if stack.sample.generators[0] == 0 && watched.greenlet().is_none() {
            return None;
        }
        let process = watched.id;
        let known = self.processes.entry(process).or_insert_with(|| Known::new(watched.pid));
        let Some(coroutine) = known.coroutine(stack, watched) else {
            let function = greenlets::first_function(stack, watched)?;
            return self.names.identify((process, TaskKind::Greenlet), function, None, context);
        };
        let name = known.name(coroutine.object, &mut self.lookups, watched, maps_read);
        let kind = known.runner();
        if let Some(turn) = known.turn(stack, coroutine.frame, watched) {
            context.processes.set_turn(pid, turn, &mut context.object);
        }
        let task = self.names.identify((process, kind), coroutine.function, name, context)?;
        self.have_run.insert(task);
        Some(task)
    }

    /// Finds processes that load asyncio, because tasks that wait are on no thread's stack.
    fn mapped(&mut self, context: &mut Context) {
        let ids: HashMap<u32, ProcessRef> = context.processes.watched().collect();
        let modules = context.processes.mappings().filter(|(_, mapping)| mapping.name.starts_with(MODULE));
        for (pid, _) in modules {
            if let Some(id) = ids.get(&pid) {
                self.processes.entry(*id).or_insert_with(|| Known::new(pid)).has_asyncio = true;
            }
        }
    }

    fn advance(&mut self, context: &mut Context) {
        let pids: Vec<(u32, ProcessRef)> = self.processes.iter().map(|(id, known)| (known.pid, *id)).collect();
        for (pid, process) in pids {
            let maps_read = context.processes.maps_read();
            let Some((watched, _)) = context.processes.get(pid) else { continue };
            let Some(known) = self.processes.get_mut(&process) else { continue };
            let Some(listed) = known.list_all(&mut self.lookups, watched, maps_read, context.at_the_end) else {
                continue;
            };
            self.report(process, &listed, context);
        }
    }

    fn ended(&mut self, pid: u32, _at: Nanos, context: &mut Context) {
        let Some((watched, _)) = context.processes.get(pid) else { return };
        let ended = watched.id;
        if self.processes.remove(&ended).is_some() {
            self.statuses.remove(&ended);
            self.names.forget(ended);
        }
    }
}

impl Tasks {
    /// Emits the changes since the last listing of a process.
    fn report(&mut self, process: ProcessRef, listed: &[Alive], context: &mut Context) {
        let at = context.now();
        let mut ids = HashMap::default();
        for alive in listed {
            let Some(code) = alive.frames.first().cloned() else { continue };
            let id = self.names.identify((process, TaskKind::Asyncio), code, alive.name.clone(), context);
            ids.extend(id.map(|id| (alive.address, id)));
        }
        let (mut before, now) = (self.statuses.remove(&process).unwrap_or_default(), &mut HashMap::default());
        for alive in listed {
            let Some(task) = ids.get(&alive.address).copied() else { continue };
            if alive.name.is_none() || now.contains_key(&task) {
                continue; // it stands for several
            }
            let frames = alive.frames.iter().cloned();
            let frames: Vec<FrameId> =
                frames.filter_map(|frame| context.interner.frame(frame, &mut context.events)).collect();
            let Some(stack) = context.interner.stack(&frames, Some(task), &mut context.events) else { continue };
            let awaits = alive.awaits.and_then(|other| ids.get(&other)).copied();
            let said = Said { state: alive.state, awaits, future: alive.future, stack };
            if before.remove(&task) != Some(said) || self.have_run.remove(&task) {
                let state = Some(alive.state);
                context.events.push(Event::TaskStatus(TaskStatus { at, task, state, awaits, stack }));
            }
            now.insert(task, said);
        }
        for (task, Said { stack, .. }) in before {
            context.events.push(Event::TaskStatus(TaskStatus { at, task, state: None, awaits: None, stack }));
        }
        self.statuses.insert(process, std::mem::take(now));
    }
}
