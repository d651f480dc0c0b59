//! The asyncio tasks of a process, with what they await.

use foldhash::{HashMap, HashSet};
use pyobs_abi::process::Layout;
use pyobs_model::Tid;
use pyobs_model::dump::{StackState, TaskDump, TaskState};

use super::coroutines::Chain;
use super::frames::At;
use super::objects::Objects;
use super::pages::Pages;
use super::process::Process;
use super::states::State;
use super::task_objects::{self, TaskObject};
use crate::cpython::asyncio_debug::AsyncioOffsets;
use crate::memory::Memory;
use crate::process_maps::Mappings;

/// A task that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub object: TaskObject,
    pub name: Option<String>,
    pub state: TaskState,
    /// The addresses of other tasks.
    pub awaits: Vec<u64>,
    pub awaited_by: Vec<u64>,
    /// The address of the future that it waits for.
    pub future: Option<u64>,
    /// The outermost coroutine first.
    pub frames: Vec<At>,
    pub stack_state: StackState,
}

/// Where tasks are looked for.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub layout: &'a Layout,
    pub states: &'a [State],
    /// From 3.14 on.
    pub offsets: Option<&'a AsyncioOffsets>,
}

/// The tasks of a process that are not done, in the order of their addresses.
pub fn of(process: &Process) -> Vec<TaskDump> {
    let id = |address: &u64| format!("{address:#x}");
    let shown = |task: Task| TaskDump {
        id: id(&task.object.address),
        name: task.name,
        tid: task.object.tid.and_then(|tid| process.thread_called(tid)).map(Tid),
        state: task.state,
        awaits: task.awaits.iter().map(id).collect(),
        awaited_by: task.awaited_by.iter().map(id).collect(),
        stack: process.shown_frames(&task.frames),
        stack_state: task.stack_state,
    };
    twice(process).into_iter().map(shown).collect()
}

/// The loop may run meanwhile: a task has a consistent stack if it is the same in two snapshots, taken one right after the
/// other.
fn twice(process: &Process) -> Vec<Task> {
    if process.attachment.attached.layout.free_threaded {
        return Vec::new(); // objects have another header
    }
    let mappings = Mappings::of(process.pid).unwrap_or_default();
    let offsets = task_objects::offsets(process.pid, &process.attachment.attached, &mappings);
    let memory = Pages::new(process.pid);
    let (python, layout) = (&process.attachment.attached, &process.attachment.layout);
    let source = Source { layout, states: process.states(), offsets: offsets.as_ref() };
    if all(source, &Objects::new(&memory, python)).is_empty() {
        return Vec::new();
    }
    memory.renew();
    let mut tasks = all(source, &Objects::new(&memory, python));
    let before = all(source, &Objects::new(&memory.earlier(), python));
    let before: HashMap<u64, Task> = before.into_iter().map(|task| (task.object.address, task)).collect();
    for task in &mut tasks {
        if before.get(&task.object.address).is_none_or(|before| before.frames != task.frames) {
            task.stack_state = StackState::Torn;
        }
    }
    tasks
}

/// Reads all tasks once, as far as the time limit of the reader allows.
pub fn all(source: Source<'_>, objects: &Objects<'_>) -> Vec<Task> {
    let Source { layout, states, offsets } = source;
    let (found, running) = task_objects::all(objects, layout, states, offsets);
    let ids: HashSet<u64> = found.iter().map(|task| task.address).collect();
    let mut tasks = Vec::new();
    for task in found {
        if !objects.has_time() {
            break;
        }
        let Some(chain) = Chain::of(objects, layout, task.coroutine) else { continue };
        let is_running = running.contains(&task.address);
        let future = chain.future.filter(|_| !is_running);
        tasks.push(Task {
            object: task,
            name: task_objects::name(objects, task.name),
            state: match chain.is_created {
                _ if is_running => TaskState::Running,
                true => TaskState::Created,
                false if task.is_scheduled(objects) => TaskState::Scheduled,
                false => TaskState::Waiting,
            },
            awaits: future.map(|future| tasks_behind(objects, future, &ids)).unwrap_or_default(),
            awaited_by: offsets.map(|offsets| awaited_by(objects, offsets, task.address, &ids)).unwrap_or_default(),
            future,
            frames: chain.frames,
            stack_state: StackState::Consistent,
        });
    }
    tasks.sort_unstable_by_key(|task| task.object.address);
    join(&mut tasks);
    tasks
}

/// Makes both sides of each edge know it.
fn join(tasks: &mut [Task]) {
    let mut edges: HashSet<(u64, u64)> = HashSet::default();
    for task in tasks.iter() {
        edges.extend(task.awaits.iter().map(|other| (task.object.address, *other)));
        edges.extend(task.awaited_by.iter().map(|other| (*other, task.object.address)));
    }
    let (mut awaits, mut awaited_by) = (HashMap::<u64, Vec<u64>>::default(), HashMap::<u64, Vec<u64>>::default());
    for (from, to) in edges {
        awaits.entry(from).or_default().push(to);
        awaited_by.entry(to).or_default().push(from);
    }
    for task in tasks {
        task.awaits = awaits.remove(&task.object.address).unwrap_or_default();
        task.awaited_by = awaited_by.remove(&task.object.address).unwrap_or_default();
        task.awaits.sort_unstable();
        task.awaited_by.sort_unstable();
    }
}

/// The tasks that a future stands for: itself, or those that `gather` waits for.
fn tasks_behind(objects: &Objects<'_>, future: u64, ids: &HashSet<u64>) -> Vec<u64> {
    if ids.contains(&future) {
        return vec![future];
    }
    if objects.kind(future).as_deref() != Some("_GatheringFuture") {
        return Vec::new();
    }
    let lists = objects.attributes(future).unwrap_or_default().into_iter();
    let lists = lists.filter(|value| objects.kind(*value).as_deref() == Some("list"));
    let mut children: Vec<u64> = lists.filter_map(|list| objects.list(list)).flatten().collect();
    children.retain(|child| ids.contains(child));
    children.dedup();
    children
}

/// Who awaits a task: one task or a set of them (3.14 and newer).
fn awaited_by(objects: &Objects<'_>, offsets: &AsyncioOffsets, task: u64, ids: &HashSet<u64>) -> Vec<u64> {
    let Some(by) = objects.word(task.wrapping_add(offsets.awaited_by)).filter(|by| *by != 0) else { return Vec::new() };
    let is_set = objects.memory.read_u8(task.wrapping_add(offsets.awaited_by_is_set)).is_ok_and(|flag| flag != 0);
    let others = if is_set { objects.set(by).unwrap_or_default() } else { vec![by] };
    others.into_iter().filter(|other| ids.contains(other)).collect()
}
