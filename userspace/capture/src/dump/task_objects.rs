//! Where a process has the task objects of asyncio.
//!
//! From 3.14 on, `_asyncio` describes where they are ([`AsyncioOffsets`]). Before, `asyncio.tasks` has them in weak
//! sets, which are found through the globals of a frame on a thread's stack.

use foldhash::{HashMap, HashSet};
use pyobs_abi::process::Layout;

use super::coroutines::is_coroutine;
use super::frames::{At, Frames};
use super::objects::Objects;
use super::states::State;
use crate::cpython::asyncio_debug::{AsyncioOffsets, SECTION};
use crate::cpython::attached::Attached;
use crate::elf::Elf;
use crate::files;
use crate::memory::ProcessMemory;
use crate::process_maps::{Mapping, Mappings};

/// Bounds the tasks of a process.
const TASKS_MAX: usize = 65_536;
/// Larger files are not searched for the table of offsets.
const FILE_MAX: u64 = 256 << 20;
/// Words of a task object in which its coroutine is looked for.
const WORDS_MAX: u64 = 40;
const POINTER: u64 = 8;
/// The types of futures of `_asyncio`, and where they have their first callback and the others.
const FUTURES: [&str; 3] = ["_asyncio.Future", "_asyncio.Task", "_GatheringFuture"];
const CALLBACKS: [u64; 2] = [24, 40];
/// What a weak reference refers to lies behind its header.
const REFERENT: u64 = 16;

/// A task object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskObject {
    pub address: u64,
    /// The id of its loop's thread, in the process's own pid namespace.
    pub tid: Option<u32>,
    /// Where the object has its name and its coroutine, and what is there.
    pub name_at: u64,
    pub name: u64,
    pub coroutine_at: u64,
    pub coroutine: u64,
}

impl TaskObject {
    fn read(objects: &Objects<'_>, address: u64, tid: Option<u32>, name_at: u64, coroutine_at: u64) -> Option<Self> {
        let [name, coroutine] = [objects.word(name_at)?, objects.word(coroutine_at)?];
        Some(Self { address, tid, name_at, name, coroutine_at, coroutine })
    }

    /// Whether its loop runs it in the next turn, if it does not run now: it waits for no future, or for one that is done and
    /// has scheduled its callbacks. The future lies before the coroutine.
    ///
    /// `TaskObj`, `FutureObj` and `future_schedule_callbacks` in
    /// <https://github.com/python/cpython/blob/v3.12.0/Modules/_asynciomodule.c>
    pub fn is_scheduled(&self, objects: &Objects<'_>) -> bool {
        let future = self.coroutine_at.checked_sub(POINTER).and_then(|at| objects.word(at));
        match future {
            None => false,
            Some(0) => true,
            Some(future) => {
                // Futures of other implementations have no such fields.
                let is_known = objects.kind(future).is_some_and(|kind| FUTURES.contains(&&*kind));
                let has_none = |field: u64| future.checked_add(field).and_then(|at| objects.word(at)) == Some(0);
                is_known && CALLBACKS.into_iter().all(has_none)
            }
        }
    }
}

/// Lists the tasks, and the addresses of those that run.
pub fn all(
    objects: &Objects<'_>,
    layout: &Layout,
    states: &[State],
    offsets: Option<&AsyncioOffsets>,
) -> (Vec<TaskObject>, HashSet<u64>) {
    let (mut found, running) = match offsets {
        Some(offsets) => listed(objects, states, offsets),
        None => in_weak_sets(objects, layout, states),
    };
    found.truncate(TASKS_MAX);
    (found, running)
}

/// `Task-7` is kept as a number until somebody asks for the name (3.12 and newer).
pub fn name(objects: &Objects<'_>, name: u64) -> Option<String> {
    let text = objects.text(name)?;
    Some(if &*objects.kind(name)? == "int" { format!("Task-{text}") } else { text })
}

/// The table of `_asyncio`, which is an extension module or part of the interpreter.
pub fn offsets(pid: u32, python: &Attached, mappings: &Mappings) -> Option<AsyncioOffsets> {
    if !python.number.since(14) {
        return None;
    }
    let is_module = |mapping: &&Mapping| mapping.name.starts_with("_asyncio.");
    let is_interpreter = |mapping: &&Mapping| mapping.file == Some(python.file);
    let mapping = mappings.iter().find(is_module).or_else(|| mappings.iter().find(is_interpreter))?;
    let bytes = files::contents(pid, mapping, FILE_MAX)?;
    let elf = Elf::parse(&bytes).ok()?;
    let (address, _) = elf.section(SECTION)?;
    let bias = mapping.start.wrapping_sub(mapping.offset).wrapping_sub(elf.code_delta()?);
    AsyncioOffsets::read(&ProcessMemory::new(pid), address.wrapping_add(bias))
}

/// The tasks in the lists of the threads and interpreters (3.14 and newer).
fn listed(objects: &Objects<'_>, states: &[State], offsets: &AsyncioOffsets) -> (Vec<TaskObject>, HashSet<u64>) {
    let (mut found, mut running) = (Vec::new(), HashSet::default());
    let mut interpreters = HashSet::default();
    for state in states {
        let mut add = |head: u64, tid| {
            let tasks = nodes(objects, head).into_iter().map(|node| node.wrapping_sub(offsets.node));
            found.extend(tasks.filter_map(|task| {
                let [name, coroutine] = [offsets.name, offsets.coroutine].map(|offset| task.wrapping_add(offset));
                TaskObject::read(objects, task, tid, name, coroutine)
            }));
        };
        add(state.address.wrapping_add(offsets.thread_tasks), Some(state.tid).filter(|tid| *tid != 0));
        if interpreters.insert(state.interpreter) {
            add(state.interpreter.wrapping_add(offsets.interpreter_tasks), None);
        }
        let task = objects.word(state.address.wrapping_add(offsets.running_task));
        running.extend(task.filter(|task| *task != 0));
    }
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

/// The tasks in the weak sets of `asyncio.tasks` (until 3.13).
fn in_weak_sets(objects: &Objects<'_>, layout: &Layout, states: &[State]) -> (Vec<TaskObject>, HashSet<u64>) {
    let mut running = HashSet::default();
    // The threads that run asyncio's own code, which has the loop, and others whose code only imports asyncio.
    let (mut loops, mut others) = (HashMap::<u64, Vec<u32>>::default(), HashSet::default());
    for state in states {
        for at in &Frames::of(objects.memory, layout, state.address).list {
            match tasks_module(objects, layout, at) {
                Some(Globals::OfAsyncio(module)) => {
                    loops.entry(module).or_default().push(state.tid);
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
    let mut found: HashMap<u64, TaskObject> = HashMap::default();
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
    (found.into_values().collect(), running)
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
fn task_object(objects: &Objects<'_>, task: u64, tid: Option<u32>) -> Option<TaskObject> {
    if &*objects.kind(task)? != "_asyncio.Task" {
        return None;
    }
    let mut words = (2..WORDS_MAX).map_while(|index| task.checked_add(POINTER * index));
    let coroutine = words.find(|at| objects.word(*at).is_some_and(|value| is_coroutine(objects, value)))?;
    TaskObject::read(objects, task, tid, coroutine.checked_add(POINTER)?, coroutine)
}
