//! The asyncio tasks of a process.
//!
//! From 3.14 on, `_asyncio` describes where they are ([`AsyncioOffsets`]). Before, `asyncio.tasks` has them in weak
//! sets, which are found through the globals of a frame on a thread's stack.

use foldhash::{HashMap, HashSet};
use pyobs_abi::process::Layout;
use pyobs_model::Tid;
use pyobs_model::dump::{StackState, TaskDump, TaskState};

use super::coroutines::{Chain, is_coroutine};
use super::frames::At;
use super::objects::Objects;
use super::pages::Pages;
use super::process::Process;
use crate::cpython::asyncio_debug::{AsyncioOffsets, SECTION};
use crate::elf::Elf;
use crate::files;
use crate::memory::Memory;
use crate::process_maps::{Mapping, Mappings};

/// Bounds the tasks of a process.
const TASKS_MAX: usize = 65_536;
/// Larger files are not searched for the table of offsets.
const FILE_MAX: u64 = 256 << 20;
/// Words of a task object in which its coroutine is looked for.
const WORDS_MAX: u64 = 40;
const POINTER: u64 = 8;
/// What a weak reference refers to lies behind its header.
const REFERENT: u64 = 16;

/// A task that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Task {
    address: u64,
    name: Option<String>,
    tid: Option<u32>,
    state: TaskState,
    awaits: Vec<u64>,
    awaited_by: Vec<u64>,
    /// The outermost coroutine first.
    frames: Vec<At>,
    stack_state: StackState,
}

/// A task object, and what is known of it from where it was found.
#[derive(Clone, Copy)]
struct Found {
    address: u64,
    tid: Option<u32>,
    name: u64,
    coroutine: u64,
}

/// The tasks of a process that are not done, in the order of their addresses.
pub fn of(process: &Process) -> Vec<TaskDump> {
    let id = |address: &u64| format!("{address:#x}");
    let shown = |task: Task| TaskDump {
        id: id(&task.address),
        name: task.name,
        tid: task.tid.map(Tid),
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
    let offsets = offsets(process);
    let memory = Pages::new(process.pid);
    if read(process, &memory, offsets.as_ref()).is_empty() {
        return Vec::new();
    }
    memory.renew();
    let mut tasks = read(process, &memory, offsets.as_ref());
    let before = read(process, &memory.earlier(), offsets.as_ref());
    let before: HashMap<u64, Task> = before.into_iter().map(|task| (task.address, task)).collect();
    for task in &mut tasks {
        if before.get(&task.address).is_none_or(|before| before.frames != task.frames) {
            task.stack_state = StackState::Torn;
        }
    }
    tasks
}

fn read(process: &Process, memory: &Pages, offsets: Option<&AsyncioOffsets>) -> Vec<Task> {
    let objects = Objects::new(memory, &process.attachment.attached);
    let layout = &process.attachment.layout;
    let (found, running) = match offsets {
        Some(offsets) => listed(process, &objects, offsets),
        None => in_weak_sets(process, &objects, layout),
    };
    let ids: HashSet<u64> = found.iter().map(|task| task.address).collect();
    let mut tasks = Vec::new();
    for task in found {
        if !objects.has_time() {
            break;
        }
        let Some(chain) = Chain::of(&objects, layout, task.coroutine) else { continue };
        let is_running = running.contains(&task.address);
        let future = chain.future.filter(|_| !is_running);
        tasks.push(Task {
            address: task.address,
            name: name(&objects, task.name),
            tid: task.tid,
            state: match chain.is_created {
                _ if is_running => TaskState::Running,
                true => TaskState::Created,
                false => TaskState::Waiting,
            },
            awaits: future.map(|future| tasks_behind(&objects, future, &ids)).unwrap_or_default(),
            awaited_by: offsets.map(|offsets| awaited_by(&objects, offsets, task.address, &ids)).unwrap_or_default(),
            frames: chain.frames,
            stack_state: StackState::Consistent,
        });
    }
    tasks.sort_unstable_by_key(|task| task.address);
    join(&mut tasks);
    tasks
}

/// Makes both sides of each edge know it.
fn join(tasks: &mut [Task]) {
    let mut edges: HashSet<(u64, u64)> = HashSet::default();
    for task in tasks.iter() {
        edges.extend(task.awaits.iter().map(|other| (task.address, *other)));
        edges.extend(task.awaited_by.iter().map(|other| (*other, task.address)));
    }
    let (mut awaits, mut awaited_by) = (HashMap::<u64, Vec<u64>>::default(), HashMap::<u64, Vec<u64>>::default());
    for (from, to) in edges {
        awaits.entry(from).or_default().push(to);
        awaited_by.entry(to).or_default().push(from);
    }
    for task in tasks {
        task.awaits = awaits.remove(&task.address).unwrap_or_default();
        task.awaited_by = awaited_by.remove(&task.address).unwrap_or_default();
        task.awaits.sort_unstable();
        task.awaited_by.sort_unstable();
    }
}

/// `Task-7` is kept as a number until somebody asks for the name (3.12 and newer).
fn name(objects: &Objects<'_>, name: u64) -> Option<String> {
    let text = objects.text(name)?;
    Some(if &*objects.kind(name)? == "int" { format!("Task-{text}") } else { text })
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

/// The table of `_asyncio`, which is an extension module or part of the interpreter.
fn offsets(process: &Process) -> Option<AsyncioOffsets> {
    if !process.attachment.attached.number.since(14) {
        return None;
    }
    let mappings = Mappings::of(process.pid).ok()?;
    let is_module = |mapping: &&Mapping| mapping.name.starts_with("_asyncio.");
    let is_interpreter = |mapping: &&Mapping| mapping.file == Some(process.attachment.attached.file);
    let mapping = mappings.iter().find(is_module).or_else(|| mappings.iter().find(is_interpreter))?;
    let bytes = files::contents(process.pid, mapping, FILE_MAX)?;
    let elf = Elf::parse(&bytes).ok()?;
    let (address, _) = elf.section(SECTION)?;
    let bias = mapping.start.wrapping_sub(mapping.offset).wrapping_sub(elf.code_delta()?);
    AsyncioOffsets::read(&process.memory, address.wrapping_add(bias))
}

/// The tasks in the lists of the threads and interpreters, and those that run (3.14 and newer).
fn listed(process: &Process, objects: &Objects<'_>, offsets: &AsyncioOffsets) -> (Vec<Found>, HashSet<u64>) {
    let (mut found, mut running) = (Vec::new(), HashSet::default());
    let mut interpreters = HashSet::default();
    for state in process.states() {
        let tid = process.thread_of_state(state.address);
        let mut add = |head: u64, tid| {
            for node in nodes(objects, head) {
                let address = node.wrapping_sub(offsets.node);
                let word = |offset: u64| objects.word(address.wrapping_add(offset)).unwrap_or(0);
                found.push(Found { address, tid, name: word(offsets.name), coroutine: word(offsets.coroutine) });
            }
        };
        add(state.address.wrapping_add(offsets.thread_tasks), tid);
        if interpreters.insert(state.interpreter) {
            add(state.interpreter.wrapping_add(offsets.interpreter_tasks), None);
        }
        let task = objects.word(state.address.wrapping_add(offsets.running_task));
        running.extend(task.filter(|task| *task != 0));
    }
    found.truncate(TASKS_MAX);
    (found, running)
}

/// The nodes of a circular list (`struct llist_node`).
fn nodes(objects: &Objects<'_>, head: u64) -> Vec<u64> {
    let (mut nodes, mut seen) = (Vec::new(), HashSet::default());
    let mut node = objects.word(head).unwrap_or(0);
    while node != 0 && node != head && nodes.len() < TASKS_MAX && seen.insert(node) {
        nodes.push(node);
        node = objects.word(node).unwrap_or(0);
    }
    nodes
}

/// Who awaits a task: one task or a set of them (3.14 and newer).
fn awaited_by(objects: &Objects<'_>, offsets: &AsyncioOffsets, task: u64, ids: &HashSet<u64>) -> Vec<u64> {
    let Some(by) = objects.word(task.wrapping_add(offsets.awaited_by)).filter(|by| *by != 0) else { return Vec::new() };
    let is_set = objects.memory.read_u8(task.wrapping_add(offsets.awaited_by_is_set)).is_ok_and(|flag| flag != 0);
    let others = if is_set { objects.set(by).unwrap_or_default() } else { vec![by] };
    others.into_iter().filter(|other| ids.contains(other)).collect()
}

/// The tasks in the weak sets of `asyncio.tasks`, and those that run (until 3.13).
fn in_weak_sets(process: &Process, objects: &Objects<'_>, layout: &Layout) -> (Vec<Found>, HashSet<u64>) {
    let mut running = HashSet::default();
    // The threads that run asyncio's own code, which has the loop, and others whose code only imports asyncio.
    let (mut loops, mut others) = (HashMap::<u64, Vec<u32>>::default(), HashSet::default());
    for thread in &process.threads {
        for at in thread.python.iter().flat_map(|python| &python.frames.list) {
            match tasks_module(objects, layout, at) {
                Some(Globals::OfAsyncio(module)) => {
                    loops.entry(module).or_default().push(thread.kernel.tid);
                    break;
                }
                Some(Globals::OfUser(module)) => _ = others.insert(module),
                None => {}
            }
        }
    }
    others.into_iter().for_each(|module| _ = loops.entry(module).or_default());
    // With loops in several threads, it is unknown which of them a task belongs to.
    let modules = loops.into_iter().map(|(module, tids)| (module, tids.first().copied().filter(|_| tids.len() == 1)));
    let mut found: HashMap<u64, Found> = HashMap::default();
    for (module, tid) in modules {
        for (key, value) in objects.items(module).unwrap_or_default() {
            match objects.text(key).as_deref() {
                Some("_all_tasks" | "_scheduled_tasks" | "_eager_tasks") => {
                    let tasks = in_set(objects, value).into_iter().filter_map(|task| task_object(objects, task, tid));
                    found.extend(tasks.map(|task| (task.address, task)));
                }
                Some("_current_tasks") => {
                    running.extend(objects.items(value).unwrap_or_default().into_iter().map(|(_, task)| task));
                }
                _ => {}
            }
        }
    }
    let mut found: Vec<Found> = found.into_values().collect();
    found.truncate(TASKS_MAX);
    (found, running)
}

/// Whose globals lead to `asyncio.tasks`.
enum Globals {
    OfAsyncio(u64),
    OfUser(u64),
}

/// The dictionary of `asyncio.tasks`, which the globals of asyncio's modules refer to as `tasks`, and those of others
/// through `asyncio`.
fn tasks_module(objects: &Objects<'_>, layout: &Layout, at: &At) -> Option<Globals> {
    // `f_globals` follows `f_builtins` in a `PyFrameObject`, and `f_func` in a frame of 3.11.
    let offset = match objects.minor() {
        ..=10 => u64::from(layout.frame_code) + 16,
        11 => 8,
        _ => 24,
    };
    let globals = objects.word(at.address.checked_add(offset)?)?;
    let items = objects.items(globals)?;
    let find = |items: &[(u64, u64)], name: &str| {
        let item = items.iter().find(|(key, _)| objects.text(*key).as_deref() == Some(name));
        item.and_then(|(_, value)| objects.module_dict(*value))
    };
    let is_tasks = |dict: &u64| {
        let names = ["_all_tasks", "_scheduled_tasks"];
        names.iter().any(|name| objects.item(*dict, name).is_some())
    };
    let direct = find(&items, "tasks").filter(is_tasks).map(Globals::OfAsyncio);
    let imported = || find(&objects.items(find(&items, "asyncio")?)?, "tasks").filter(is_tasks).map(Globals::OfUser);
    direct.or_else(imported)
}

/// The items of a set of objects, or of a `weakref.WeakSet`, whose attribute `data` is a set of references.
fn in_set(objects: &Objects<'_>, set: u64) -> Vec<u64> {
    if objects.kind(set).as_deref() == Some("set") {
        return objects.set(set).unwrap_or_default();
    }
    let values = objects.attributes(set).unwrap_or_default().into_iter();
    let sets = values.filter(|value| objects.kind(*value).as_deref() == Some("set"));
    let references = sets.filter_map(|set| objects.set(set)).flatten();
    let is_reference = |reference: &u64| {
        objects.kind(*reference).is_some_and(|kind| matches!(&*kind, "weakref" | "weakref.ReferenceType"))
    };
    references.filter(is_reference).filter_map(|reference| objects.word(reference.checked_add(REFERENT)?)).collect()
}

/// A task of the C implementation. The name follows the coroutine (`TaskObj` in
/// <https://github.com/python/cpython/blob/v3.12.0/Modules/_asynciomodule.c>).
fn task_object(objects: &Objects<'_>, task: u64, tid: Option<u32>) -> Option<Found> {
    if &*objects.kind(task)? != "_asyncio.Task" {
        return None;
    }
    let word = |index: u64| objects.word(task.checked_add(POINTER * index)?);
    let at = (2..WORDS_MAX).find(|index| word(*index).is_some_and(|value| is_coroutine(objects, value)))?;
    Some(Found { address: task, tid, coroutine: word(at)?, name: word(at + 1)? })
}
