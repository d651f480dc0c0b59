//! Display names of processes, threads and frames, each in one line.

use std::time::Duration;

use pyobs_model::views::{Role, Weight, role};
use pyobs_model::{Frame, FrameKind, Model, Process, ProcessRef, ProcessState, Tid, Waker};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Options;
use crate::escape::{self, MAX_NAME, element};

/// The pid of the parent of all kernel threads.
const KTHREADD: u32 = 2;

/// `python3.12 (4242)`.
pub(crate) fn process(process: &Process) -> String {
    format!("{} ({})", program(process), process.pid)
}

/// `[web] python3.12 (4242)` for a process in a container.
pub(crate) fn process_in_container(state: &ProcessState) -> String {
    in_container(state, process(&state.process))
}

/// Puts the container before the name of a process.
fn in_container(state: &ProcessState, name: String) -> String {
    match &state.placement.container {
        Some(container) => format!("[{}] {name}", element(container.short_name())),
        None => name,
    }
}

/// `python3.12`.
pub(crate) fn program(process: &Process) -> String {
    // Readers of folded stacks take a line that begins with `# ` for a comment.
    element(file_name(process).trim_start_matches('#')).into_owned()
}

/// `python3.12 main.py` or `python3.12 -m app`, for viewers that append the pid. With the program alone, all processes of an
/// interpreter would look alike there.
pub(crate) fn program_and_script(process: &Process) -> String {
    let program = program(process);
    match script(process) {
        Some(script) => format!("{program} {}", escape::line(&script, MAX_NAME)),
        None => program,
    }
}

/// `[web] python3.12 main.py` for a process in a container.
pub(crate) fn program_in_container(state: &ProcessState) -> String {
    in_container(state, program_and_script(&state.process))
}

/// What an interpreter runs. Follows CPython's parsing of its command line (Modules/main.c, `python --help`).
fn script(process: &Process) -> Option<String> {
    process.python.as_ref()?;
    let mut words = process.command.split_whitespace().skip(1);
    loop {
        let word = words.next()?;
        if word.starts_with("--") {
            if word == "--check-hash-based-pycs" {
                words.next()?;
            }
            continue;
        }
        let Some(letters) = word.strip_prefix('-') else { return Some(base_name(word).to_owned()) };
        if letters.is_empty() {
            return Some("-".to_owned());
        }
        // The first letter that takes a value takes the rest of the word, or else the next word.
        let Some(at) = letters.find(['c', 'm', 'W', 'X']) else { continue };
        let (letter, rest) = letters.get(at..)?.split_at(1);
        if letter == "c" {
            return Some("-c".to_owned());
        }
        let taken = if rest.is_empty() { words.next()? } else { rest };
        if letter == "m" {
            return Some(format!("-m {taken}"));
        }
    }
}

/// The file name of the program. A kernel thread's name stays whole, because `kworker/0:1` is not a path.
fn file_name(process: &Process) -> &str {
    if process.ppid.0 == KTHREADD || process.pid.0 == KTHREADD {
        return &process.command;
    }
    let first = process.command.split_whitespace().next().unwrap_or_default();
    // Some servers set their title, such as `nginx: worker process`.
    base_name(first).trim_end_matches(':')
}

/// `qualname (file.py)`, or with `lines` `qualname (file.py:31)`; `function (module)`; `function [kernel]`.
///
/// The bracket is never left out: readers of folded stacks take a number at the end of a name for a count.
pub(crate) fn frame(frame: &Frame, lines: bool) -> String {
    let function = element(&frame.function);
    match frame.kind {
        FrameKind::Kernel => format!("{function} [kernel]"),
        FrameKind::Native => format!("{function} ({})", element(frame.module.as_deref().unwrap_or_default())),
        FrameKind::Python => format!("{function} ({})", element(&place(frame, lines))),
    }
}

/// `qualname`, `function` or `function [kernel]`.
pub(crate) fn function(frame: &Frame) -> String {
    let name = escape::line(&frame.function, MAX_NAME);
    if frame.kind == FrameKind::Kernel { format!("{name} [kernel]") } else { name.into_owned() }
}

/// `worker 4250`, or with a role `python (progress) 4251`.
pub(crate) fn thread(model: &Model, process: ProcessRef, tid: Tid) -> String {
    format!("{} {tid}", thread_name(model, process, tid))
}

/// `worker` or `python (progress)`, for viewers that append the tid.
pub(crate) fn thread_name(model: &Model, process: ProcessRef, tid: Tid) -> String {
    let thread = model.process(process).and_then(|state| state.threads.get(&tid));
    let name = thread.and_then(|thread| thread.name.as_deref()).unwrap_or("thread");
    with_role(name, role(model, process, tid))
}

/// Like [`thread()`], with the name that the waker had at that time. Its process may not be watched.
pub(crate) fn waker(model: &Model, waker: &Waker) -> String {
    let is_of_process = |process| model.process(process).is_some_and(|state| state.process.pid == waker.pid);
    let mut threads = model.ucx().threads();
    let thread = threads.find(|thread| thread.tid == waker.tid && is_of_process(thread.process));
    let role = thread.and_then(|thread| role(model, thread.process, thread.tid));
    format!("{} {}", with_role(&waker.name, role), waker.tid)
}

/// `python3.12 main.py (event_loop)`, for viewers that show a main thread under the name of its process.
pub(crate) fn process_and_main(model: &Model, process: ProcessRef, of: &ProcessState) -> String {
    with_role(&program_in_container(of), role(model, process, Tid(of.process.pid.0)))
}

fn with_role(name: &str, role: Option<Role>) -> String {
    let role = role.map(|role| format!(" ({})", role.name())).unwrap_or_default();
    format!("{}{role}", escape::line(name, MAX_NAME))
}

/// `file.py:31`, `file.py` or the module. Not escaped.
pub(crate) fn place(frame: &Frame, lines: bool) -> String {
    let file = frame.file.as_deref().or(frame.module.as_deref()).map_or("?", base_name);
    match frame.line.filter(|_| lines) {
        Some(line) => format!("{file}:{line}"),
        None => file.to_owned(),
    }
}

fn base_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// The unit of a flame graph.
pub(crate) fn unit(weight: Weight) -> &'static str {
    match weight {
        Weight::Cpu | Weight::Redundant => "samples",
        Weight::OffCpu | Weight::Gil => "µs",
        Weight::Bytes => "bytes",
    }
}

/// The message for an empty selection.
pub(crate) fn empty_selection(weight: Weight) -> &'static str {
    match weight {
        Weight::Cpu => "no samples",
        Weight::Redundant => "no redundant samples",
        Weight::OffCpu | Weight::Gil => "no waits",
        Weight::Bytes => "no memory that is held",
    }
}

/// The heading of a picture, at most `max` characters long.
pub(crate) fn title(model: &Model, options: &Options, max: usize) -> String {
    let host = metadata(&model.meta().host);
    let title = match (&options.title, options.weight) {
        (Some(title), _) => title.clone(),
        (None, Weight::Cpu) => format!("CPU time on {host}"),
        (None, Weight::OffCpu) => format!("Time off CPU on {host}"),
        (None, Weight::Gil) => format!("Waits for the GIL on {host}"),
        (None, Weight::Redundant) => format!("Native code that changes nothing on {host}"),
        (None, Weight::Bytes) => format!("Memory that is held on {host}"),
    };
    escape::line(&title, max).into_owned()
}

/// When the recording began, since the Unix epoch.
pub(crate) fn started(model: &Model) -> Option<Duration> {
    let at = OffsetDateTime::parse(&model.meta().started, &Rfc3339).ok()?;
    (at - OffsetDateTime::UNIX_EPOCH).try_into().ok()
}

/// A host, kernel version or time from the recording's metadata.
pub(crate) fn metadata(text: &str) -> String {
    if text.is_empty() { "?".to_owned() } else { escape::line(text, 64).into_owned() }
}

#[cfg(test)]
mod tests {
    use pyobs_model::Pid;

    use super::*;

    #[track_caller]
    fn assert_name(command: &str, ppid: u32, expected: &str) {
        let command = command.into();
        let it = Process { pid: Pid(7), ppid: Pid(ppid), command, python: None, started: None };
        assert_eq!(process(&it), format!("{expected} (7)"));
    }

    #[test]
    fn a_process_is_named_after_its_program() {
        assert_name("/usr/bin/python3.12 -m app", 1, "python3.12");
        assert_name("python3.12", 1, "python3.12");
        assert_name("nginx: worker process", 1, "nginx");
        assert_name("kworker/0:1-events", 2, "kworker/0:1-events");
        assert_name("kworker/u8:0 unbound", 2, "kworker/u8:0 unbound");
        assert_name("", 1, "?");
        assert_name("/", 1, "?");
        assert_name("# 12", 1, "?");
        assert_name("a;b\u{1b}", 1, "a:b\u{fffd}");
    }

    #[track_caller]
    fn assert_script(command: &str, expected: &str) {
        let python = Some("3.12.1".into());
        let mut it = Process { pid: Pid(7), ppid: Pid(1), command: command.into(), python, started: None };
        assert_eq!(program_and_script(&it), expected);
        it.python = None;
        assert_eq!(program_and_script(&it), program(&it));
    }

    #[test]
    fn a_script_tells_processes_apart() {
        assert_script("/usr/bin/python3.12 -B -u /srv/app/main.py --port 8000", "python3.12 main.py");
        assert_script("python3 -um app.server", "python3 -m app.server");
        assert_script("python3 -X importtime -W ignore -c import(app)", "python3 -c");
        assert_script("python3 -Xno_debug_ranges -Wdefault::ImportWarning -mapp", "python3 -m app");
        assert_script("python3 --check-hash-based-pycs never --help-all main.py", "python3 main.py");
        assert_script("python3 -", "python3 -");
        assert_script("python3", "python3");
        assert_script("python3 a\u{1b}.py", "python3 a\u{fffd}.py");
    }
}
