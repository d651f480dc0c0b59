//! `pyobs dump`: what every thread of every Python process does right now, without a stop or a signal.
//!
//! /proc says which threads sleep, where and since when; `process_vm_readv` reads their Python frames. The program runs
//! on meanwhile. A thread that has not run between the first look and the last has a consistent stack, and so has one
//! whose frames were the same in two snapshots taken one right after the other. A BPF program that lists threads adds the
//! registers from which native stacks are walked.

mod awaited;
mod containers;
pub(crate) mod coroutines;
mod files;
pub(crate) mod frames;
pub(crate) mod fuzz;
mod locks;
pub(crate) mod names;
mod natives;
pub(crate) mod objects;
pub(crate) mod pages;
mod process;
mod sources;
pub(crate) mod states;
mod task_iterator;
pub(crate) mod task_objects;
pub(crate) mod tasks;
mod tcp;
mod thread_objects;
mod threads;
mod unix;
mod values;

use std::time::{Instant, SystemTime};

use foldhash::HashMap;
use pyobs_model::dump::{self, Dump, ProcessDump, Zombie};
use pyobs_model::number::plural;
use pyobs_model::views::Native;
use pyobs_model::{Pid, Tid};

use self::containers::{Containers, Placed};
use self::files::Everyone;
use self::natives::Natives;
use self::process::{Process, Unread};
pub use self::task_iterator::TaskIterator;
use self::threads::Clock;
use crate::files::Files;
use crate::machine::{self, Facts, NoTarget};
use crate::{native, rights};

/// Attempts to read native stacks before their threads run on.
const TRIES: usize = 4;

/// Selects what to dump.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Dump only these processes and their descendants. Empty means all.
    pub pids: Vec<u32>,
    /// Dump only processes in these containers, given by name, pod or id prefix. Empty means all.
    pub containers: Vec<String>,
    /// Include asyncio tasks.
    pub tasks: bool,
    /// Which native frames to include, of threads that do not run.
    pub native: Native,
}

#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    #[error(transparent)]
    Target(#[from] NoTarget),
    #[error("no Python process runs in a container called {0}; {1}")]
    NoContainer(String, String),
    #[error("/proc cannot be read: {0}")]
    Proc(#[from] std::io::Error),
    #[error("the memory of {0} cannot be read; {1}")]
    NoRights(String, String),
}

/// Dumps every selected process. `iterator` is the loaded program, or why it could not be loaded.
pub fn take(options: &Options, iterator: Result<TaskIterator, String>) -> Result<Dump, DumpError> {
    let begun = Instant::now();
    let taken = machine::utc(SystemTime::now());
    options.pids.iter().try_for_each(|pid| machine::check_target(*pid))?;
    let pids = if options.pids.is_empty() { machine::processes()? } else { machine::descendants(&options.pids)? };
    let (mut files, clock) = (Files::default(), Clock::default());
    let (mut processes, mut notes, mut unreadable) = (Vec::new(), Vec::new(), 0);
    let mut containers = Containers::default();
    let is_wanted = |placed: &Placed| options.containers.is_empty() || placed.is_in(&options.containers);
    let pids = pids.into_iter().map(|pid| (pid, containers.of(pid))).filter(|(_, placed)| is_wanted(placed));
    let placed: HashMap<u32, Placed> = pids.collect();
    for pid in placed.keys().copied() {
        match Process::read(pid, &mut files, &clock) {
            Ok(Some(process)) => processes.push(process),
            Ok(None) => {}
            Err(Unread::NoRights) => unreadable += 1,
            Err(Unread::Refused(sentence)) => notes.push(sentence),
        }
    }
    if unreadable > 0 {
        let them = plural(unreadable, "process", "processes");
        if processes.is_empty() && !options.pids.is_empty() {
            return Err(DumpError::NoRights(them, rights::todo()));
        }
        notes.push(if !rights::may_read_memory() {
            format!("The memory of {them} cannot be read; to see all, {}.", rights::todo())
        } else {
            format!("The memory of {them} cannot be read, not even by root.")
        });
    }
    if processes.is_empty() && !options.containers.is_empty() {
        return Err(DumpError::NoContainer(options.containers.join(", "), containers.names()));
    }
    processes.sort_unstable_by_key(|process| process.pid);
    let mut natives = Natives { files: native::walk::Files::default(), shown: options.native };
    match iterator {
        Ok(mut iterator) => add_listed(&mut processes, &mut iterator, &mut natives, &clock),
        Err(why) if options.native != Native::None => notes.push(format!("There are no native frames: {why}.")),
        Err(_) => {}
    }
    notes.sort_unstable();
    notes.dedup();
    let everyone = Everyone::default();
    let awaited: Vec<_> = processes.iter().map(|process| awaited::of(process, &everyone)).collect();
    let names = rustix::system::uname();
    let mut dump = Dump {
        version: dump::VERSION,
        host: names.nodename().to_string_lossy().into_owned(),
        kernel: names.release().to_string_lossy().into_owned(),
        taken,
        took_s: 0.0,
        processes: processes
            .iter()
            .zip(awaited)
            .map(|(process, awaited)| {
                let placed = placed.get(&process.pid).cloned().unwrap_or_default();
                shown(process, awaited, placed, &mut natives)
            })
            .collect(),
        findings: Vec::new(),
        notes,
    };
    let deadlocks = dump::deadlocks(&dump, |pid, tid| {
        let process = processes.iter().find(|process| process.pid == pid.0);
        process.is_some_and(|process| process.is_still_asleep(tid.0))
    });
    dump.findings = [deadlocks, dump::blocked_loops(&dump), dump::limited_groups(&dump)].concat();
    if !options.tasks {
        dump.processes.iter_mut().for_each(|process| process.tasks = None);
    }
    dump.took_s = begun.elapsed().as_secs_f64();
    Ok(dump)
}

/// Adds what the task iterator reports about threads. Retries those that ran in between.
fn add_listed(processes: &mut [Process], iterator: &mut TaskIterator, natives: &mut Natives, clock: &Clock) {
    for _ in 0..TRIES {
        let listed = iterator.threads();
        let mut is_done = true;
        for process in &mut *processes {
            let files = (natives.shown != Native::None).then_some(&mut natives.files);
            is_done &= process.add_listed(&listed, files, clock);
        }
        if is_done {
            break;
        }
    }
}

fn shown(process: &Process, mut awaited: awaited::Awaits, placed: Placed, natives: &mut Natives) -> ProcessDump {
    let facts = Facts::of(process.pid);
    let zombies = machine::children(process.pid).into_iter().filter_map(|pid| {
        let ended = machine::check_target(pid) == Err(NoTarget::Ended(pid));
        ended.then(|| Zombie { pid: Pid(pid), name: machine::name(pid) })
    });
    ProcessDump {
        pid: Pid(process.pid),
        ppid: Pid(facts.as_ref().map_or(0, |facts| facts.ppid)),
        command: facts.map_or_else(String::new, |facts| facts.command),
        python: process.version(),
        cgroup: placed.group,
        container: placed.container,
        cpu_limit: placed.cpu,
        memory_limit: placed.memory,
        zombies: zombies.collect(),
        tasks: Some(tasks::of(process)),
        threads: process
            .threads
            .iter()
            .map(|thread| process.shown(thread, awaited.remove(&Tid(thread.kernel.tid)), natives))
            .collect(),
    }
}
