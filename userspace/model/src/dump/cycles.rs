//! Deadlocks: threads that wait for each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::{Dump, Holder, ProcessDump, TaskDump, ThreadDump, What};
use crate::findings::{Cost, Evidence, Finding, Severity};
use crate::report::FrameOut;
use crate::{Pid, Tid};

/// Circles reported.
const CYCLES_MAX: usize = 20;

type Thread<'a> = (&'a ProcessDump, &'a ThreadDump);

/// A finding for each circle of threads that wait for each other. `is_still_asleep` says whether a thread has not run since
/// the dump was taken: what the threads of a circle waited for at different times is no deadlock.
pub fn deadlocks(dump: &Dump, is_still_asleep: impl Fn(Pid, Tid) -> bool) -> Vec<Finding> {
    let threads =
        || dump.processes.iter().flat_map(|process| process.threads.iter().map(move |thread| (process, thread)));
    let by_tid: BTreeMap<Tid, Thread<'_>> =
        threads().map(|(process, thread)| (thread.tid, (process, thread))).collect();
    let next = |thread: &ThreadDump| -> Option<Tid> {
        let [holder] = &thread.awaits.as_ref()?.holders[..] else { return None };
        holder.tid.or_else(|| only_thread(dump, holder))
    };
    let circles = circles(by_tid.keys().copied(), |tid| {
        by_tid.get(&tid).and_then(|(_, thread)| next(thread)).into_iter().collect()
    });
    let mut found = Vec::new();
    for circle in circles {
        let cycle: Vec<Thread<'_>> = circle.iter().filter_map(|tid| by_tid.get(tid).copied()).collect();
        let still_waits =
            |(process, thread): &Thread<'_>| waits_for_gil(thread) || is_still_asleep(process.pid, thread.tid);
        if cycle.iter().all(still_waits) && !cycle.iter().all(|(_, thread)| waits_for_gil(thread)) {
            found.push(finding(&cycle));
        }
    }
    found.extend(dump.processes.iter().flat_map(of_tasks));
    found.truncate(CYCLES_MAX);
    found
}

/// Nodes that lead to each other in a circle. Each node is in one circle at most.
fn circles<N: Copy + Ord>(nodes: impl Iterator<Item = N>, next: impl Fn(N) -> Vec<N>) -> Vec<Vec<N>> {
    let (mut done, mut found) = (BTreeSet::new(), Vec::new());
    for start in nodes {
        if !done.insert(start) {
            continue;
        }
        // The way from the start, each node with those that it leads to and that are still to be followed.
        let mut way = vec![(start, next(start))];
        while let Some((_, open)) = way.last_mut() {
            let Some(node) = open.pop() else {
                way.pop();
                continue;
            };
            if let Some(first) = way.iter().position(|(other, _)| *other == node) {
                found.push(way.drain(first..).map(|(node, _)| node).collect());
            } else if done.insert(node) {
                way.push((node, next(node)));
            }
        }
    }
    found
}

/// Tasks that await each other. A task goes on once all that it awaits are done.
fn of_tasks(process: &ProcessDump) -> Vec<Finding> {
    let tasks: BTreeMap<&str, &TaskDump> =
        process.tasks.iter().flatten().map(|task| (task.id.as_str(), task)).collect();
    let next = |id: &str| -> Vec<&str> {
        let awaits = tasks.get(id).map(|task| &task.awaits[..]).unwrap_or_default();
        awaits.iter().filter_map(|id| tasks.get_key_value(id.as_str()).map(|(id, _)| *id)).collect()
    };
    let circles = circles(tasks.keys().copied(), next);
    let name = |id: &&str| tasks[*id].name.as_deref().unwrap_or(id).to_owned();
    let finding = |circle: &Vec<&str>| {
        let awaits = |(index, id): (usize, &&str)| {
            let place =
                tasks[*id].stack.iter().rev().find_map(|frame| frame.frame.line.map(|_| place_of(&frame.frame)));
            let at = place.map(|place| format!(" at {place}")).unwrap_or_default();
            format!("task {} awaits{at} {}", name(id), name(&circle[(index + 1) % circle.len()]))
        };
        let parts: Vec<String> = circle.iter().enumerate().map(awaits).collect();
        Finding {
            summary: match &circle[..] {
                [only] => format!("task {} awaits itself", name(only)),
                _ => format!("{} tasks await each other: {}", circle.len(), parts.join("; ")),
            },
            detail: format!("{}.", capital(&parts.join(", and "))),
            advice: "Let one of the tasks return a result before it awaits the other.".to_owned(),
            ..found(process.pid, "tasks", circle.len())
        }
    };
    circles.iter().map(finding).collect()
}

/// The parts that all these findings have in common.
fn found(pid: Pid, what: &'static str, count: usize) -> Finding {
    Finding {
        id: "dump/deadlock",
        severity: Severity::Serious,
        summary: String::new(),
        detail: String::new(),
        advice: String::new(),
        process: None,
        pid: Some(pid),
        evidence: BTreeMap::from([(what, Evidence::Count(count as u64))]),
        cost: Cost::default(),
        target: None,
    }
}

/// A thread that waits for the GIL wakes up every few milliseconds to ask for it again, and does nothing else.
fn waits_for_gil(thread: &ThreadDump) -> bool {
    thread.awaits.as_ref().is_some_and(|awaited| awaited.what == What::Gil)
}

/// The Python thread of a process that has no other.
fn only_thread(dump: &Dump, holder: &Holder) -> Option<Tid> {
    let process = dump.processes.iter().find(|process| process.pid == holder.pid)?;
    let mut threads = process.threads.iter().filter(|thread| !thread.stack.is_empty());
    let only = threads.next()?;
    threads.next().is_none().then_some(only.tid)
}

fn finding(cycle: &[Thread<'_>]) -> Finding {
    let pids: BTreeSet<Pid> = cycle.iter().map(|(process, _)| process.pid).collect();
    let name = |(process, thread): &Thread<'_>| match pids.len() {
        1 => format!("thread {}", thread.tid),
        _ => format!("process {}", process.pid),
    };
    let waits = |(index, thread): (usize, &Thread<'_>)| {
        let holder = &cycle[(index + 1) % cycle.len()];
        let what = thread.1.awaits.as_ref().map_or("something", |awaited| awaited.what.phrase());
        let itself = if cycle.len() == 1 { "itself".to_owned() } else { name(holder) };
        format!("{} waits at {} for {what} of {itself}", name(thread), place(thread.1))
    };
    let parts: Vec<String> = cycle.iter().enumerate().map(waits).collect();
    let (first, _) = cycle[0];
    let kind = if pids.len() == 1 { "threads" } else { "processes" };
    let summary = match cycle.len() {
        1 => format!("{} waits at {} for what it holds itself", name(&cycle[0]), place(cycle[0].1)),
        count => format!("{count} {kind} wait for each other: {}", parts.join("; ")),
    };
    Finding {
        summary,
        detail: format!("{}.", capital(&parts.join(", and "))),
        advice: "Take the locks in the same order everywhere, or acquire them with a timeout.".to_owned(),
        pid: (pids.len() == 1).then_some(first.pid),
        ..found(first.pid, "threads", cycle.len())
    }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// `app.py:12`, or the thread's name if it runs no Python.
fn place(thread: &ThreadDump) -> String {
    match thread.line() {
        Some(frame) => place_of(frame),
        None => thread.name.clone(),
    }
}

pub(super) fn place_of(frame: &FrameOut) -> String {
    let file = frame.file.as_deref().unwrap_or("?");
    let file = file.rsplit('/').next().unwrap_or(file);
    frame.line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::FrameKind;
    use crate::dump::TaskState;
    use crate::dump::{Awaited, DumpFrame, Role, StackState, State};

    fn thread(tid: u32, awaits: Option<(What, Holder)>) -> ThreadDump {
        let frame = FrameOut {
            kind: FrameKind::Python,
            function: Arc::from("f"),
            module: None,
            file: Some(Arc::from("/srv/app.py")),
            line: Some(tid),
        };
        ThreadDump {
            tid: Tid(tid),
            name: "python".to_owned(),
            python_name: None,
            role: Role::Python,
            state: State::Asleep,
            cpu: None,
            reason: None,
            call: None,
            kernel_function: None,
            asleep_s: None,
            holds_gil: false,
            awaits: awaits.map(|(what, holder)| Awaited { what, name: None, holders: vec![holder] }),
            stack: vec![DumpFrame { frame, source: None }],
            stack_state: StackState::Consistent,
            native_stack: None,
        }
    }

    fn dump(processes: Vec<(u32, Vec<ThreadDump>)>) -> Dump {
        let process = |(pid, threads)| ProcessDump {
            pid: Pid(pid),
            ppid: Pid(1),
            command: String::new(),
            python: Arc::from("3.12.1"),
            cgroup: None,
            container: None,
            cpu_limit: None,
            memory_limit: None,
            threads,
            tasks: None,
            zombies: Vec::new(),
        };
        Dump {
            version: super::super::VERSION,
            host: String::new(),
            kernel: String::new(),
            taken: String::new(),
            took_s: 0.0,
            processes: processes.into_iter().map(process).collect(),
            findings: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn of(pid: u32, tid: u32) -> Holder {
        Holder { pid: Pid(pid), tid: Some(Tid(tid)) }
    }

    fn said(dump: &Dump) -> Vec<String> {
        deadlocks(dump, |_, _| true).into_iter().map(|finding| finding.summary).collect()
    }

    #[test]
    fn a_circle_is_found_once_and_those_who_wait_for_it_are_not_in_it() {
        let threads = vec![
            thread(1, Some((What::Lock, of(9, 2)))),
            thread(2, Some((What::Lock, of(9, 3)))),
            thread(3, Some((What::RLock, of(9, 2)))),
            thread(4, None),
            thread(5, Some((What::Lock, of(9, 4)))),
        ];
        let expected = "2 threads wait for each other: thread 2 waits at app.py:2 for the lock of thread 3; \
                        thread 3 waits at app.py:3 for the RLock of thread 2";
        assert_eq!(said(&dump(vec![(9, threads.clone())])), [expected]);
        let moved = deadlocks(&dump(vec![(9, threads)]), |_, tid| tid != Tid(3));
        assert!(moved.is_empty(), "thread 3 has run since");
    }

    #[test]
    fn a_thread_can_wait_for_itself() {
        let threads = vec![thread(1, Some((What::Lock, of(9, 1))))];
        assert_eq!(said(&dump(vec![(9, threads)])), ["thread 1 waits at app.py:1 for what it holds itself"]);
    }

    #[test]
    fn a_process_with_one_thread_stands_for_it() {
        let whole = |pid| Holder { pid: Pid(pid), tid: None };
        let parent = || thread(1, Some((What::Child, whole(2))));
        let child = || thread(2, Some((What::Pipe, whole(1))));
        let expected = "2 processes wait for each other: process 1 waits at app.py:1 for the end of process 2; \
                        process 2 waits at app.py:2 for the pipe of process 1";
        assert_eq!(said(&dump(vec![(1, vec![parent()]), (2, vec![child()])])), [expected]);
        let with_another = vec![(1, vec![parent(), thread(3, None)]), (2, vec![child()])];
        assert!(said(&dump(with_another)).is_empty(), "another thread may read from the pipe");
    }

    #[test]
    fn tasks_that_await_each_other_are_a_circle_whatever_else_they_await() {
        let task = |id: &str, awaits: &[&str]| TaskDump {
            id: id.to_owned(),
            name: Some(format!("T{id}")),
            tid: None,
            state: TaskState::Waiting,
            awaits: awaits.iter().map(|id| (*id).to_owned()).collect(),
            awaited_by: Vec::new(),
            stack: Vec::new(),
            stack_state: StackState::Consistent,
        };
        let of = |tasks: Vec<TaskDump>| {
            let mut dump = dump(vec![(9, Vec::new())]);
            dump.processes[0].tasks = Some(tasks);
            said(&dump)
        };
        let tree = vec![task("1", &["2", "3"]), task("2", &["4"]), task("3", &["4"]), task("4", &["gone"])];
        assert!(of(tree.clone()).is_empty());
        let circle = [tree, vec![task("5", &["4", "6"]), task("6", &["4", "7", "3"]), task("7", &["5"])]].concat();
        assert_eq!(of(circle), ["3 tasks await each other: task T5 awaits T6; task T6 awaits T7; task T7 awaits T5"]);
        assert_eq!(of(vec![task("1", &["1"])]), ["task T1 awaits itself"]);
    }

    #[test]
    fn waiting_for_the_gil_alone_is_no_deadlock() {
        let holder = |awaits| thread(2, awaits);
        let waiter = || thread(1, Some((What::Gil, of(9, 2))));
        let passing = vec![waiter(), holder(Some((What::Gil, of(9, 1))))];
        assert!(said(&dump(vec![(9, passing)])).is_empty(), "the GIL was passed on meanwhile");
        let stuck = vec![waiter(), holder(Some((What::Mutex, of(9, 1))))];
        let expected = "2 threads wait for each other: thread 1 waits at app.py:1 for the GIL of thread 2; \
                        thread 2 waits at app.py:2 for a mutex in native code of thread 1";
        assert_eq!(said(&dump(vec![(9, stuck)])), [expected]);
    }
}
