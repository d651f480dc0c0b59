//! The text of `pyobs dump`.

mod tasks;

use std::fmt::Write as _;

use pyobs_model::Container;
use pyobs_model::Nanos;
use pyobs_model::dump::{
    Awaited, Dump, DumpFrame, Holder, NativeState, ProcessDump, Role, StackState, State, ThreadDump, What,
};
use pyobs_model::number::{plural, time};

use crate::escape;

// Widths of columns.
const PLACE: usize = 40;
const FUNCTION: usize = 28;
const SOURCE: usize = 60;
const COMMAND: usize = 200;
const NAME: usize = 64;
const SENTENCE: usize = 1000;

/// What was seen: findings, then each process with its threads, the innermost frame first.
pub fn text(dump: &Dump) -> String {
    let mut text = Text { dump, out: String::new() };
    text.heading();
    for finding in &dump.findings {
        let process = finding.pid.map(|pid| format!("Process {pid}: ")).unwrap_or_default();
        text.line(&format!("! {process}{}", escape::line(&finding.detail, SENTENCE)));
        text.line(&format!("  Try: {}", finding.advice));
    }
    dump.processes.iter().for_each(|process| text.process(process));
    for note in &dump.notes {
        text.line("");
        text.line(&escape::line(note, SENTENCE));
    }
    text.out
}

/// `container web (docker 3f4a9c0e5d7b, image python:3.12)`
fn described(container: &Container) -> String {
    let engine = container.engine.as_deref().unwrap_or("id");
    let id = container.id.get(..12).unwrap_or(&container.id);
    let mut words = format!("container {} ({engine} {id}", escape::line(container.short_name(), NAME));
    let rest = [("image", &container.image), ("pod", &container.pod), ("namespace", &container.namespace)];
    for (what, value) in rest.into_iter().filter_map(|(what, value)| Some((what, value.as_deref()?))) {
        _ = write!(words, ", {what} {}", escape::line(value, NAME));
    }
    words + ")"
}

/// Whether neither Python nor native frames of a thread are known.
fn is_unknown(thread: &ThreadDump) -> bool {
    thread.role == Role::Native && thread.stack.is_empty()
}

struct Text<'a> {
    dump: &'a Dump,
    out: String,
}

impl Text<'_> {
    fn line(&mut self, line: &str) {
        self.out += line.trim_end();
        self.out.push('\n');
    }

    fn heading(&mut self) {
        let Dump { processes, host, taken, took_s, .. } = self.dump;
        let threads: usize = processes.iter().map(|process| process.threads.len()).sum();
        let processes = plural(processes.len() as u64, "Python process", "Python processes");
        let threads = plural(threads as u64, "thread", "threads");
        let took = time(Nanos::from_secs_f64(*took_s));
        self.line(&format!(
            "{}, {}: {processes}, {threads}, in {took}",
            escape::line(host, NAME),
            escape::line(taken, NAME)
        ));
    }

    fn process(&mut self, process: &ProcessDump) {
        self.line("");
        let command = escape::line(&process.command, COMMAND);
        let python = escape::line(&process.python, NAME);
        self.line(&format!("Process {} (CPython {python}, parent {}): {command}", process.pid, process.ppid));
        if let Some(container) = &process.container {
            self.line(&format!("  In {}", described(container)));
        }
        for zombie in &process.zombies {
            let name = escape::line(&zombie.name, NAME);
            self.line(&format!("  Child {} ({name}) has ended, and nobody has collected its exit status", zombie.pid));
        }
        for thread in process.threads.iter().filter(|thread| !is_unknown(thread)) {
            self.thread(process, thread);
        }
        self.natives(process);
        self.tasks(process);
    }

    /// Lists the threads without known frames, by name.
    fn natives(&mut self, process: &ProcessDump) {
        let mut names: Vec<(&str, u64)> = Vec::new();
        for thread in process.threads.iter().filter(|thread| is_unknown(thread)) {
            match names.iter_mut().find(|(name, _)| *name == thread.name) {
                Some((_, count)) => *count += 1,
                None => names.push((&thread.name, 1)),
            }
        }
        if !names.is_empty() {
            let named = names.iter().map(|(name, count)| format!("{count} × {}", escape::line(name, NAME)));
            let named: Vec<String> = named.collect();
            self.line(&format!("  Threads without Python: {}", named.join(", ")));
        }
    }

    fn thread(&mut self, process: &ProcessDump, thread: &ThreadDump) {
        let name = escape::line(thread.python_name.as_ref().unwrap_or(&thread.name), NAME);
        let main = if thread.role == Role::Main { " (main)" } else { "" };
        let torn = match thread.stack_state {
            StackState::Torn => "; torn: it ran while its frames were read",
            StackState::Unreadable => "; its frames cannot be read",
            StackState::Consistent | StackState::None => "",
        };
        let native = match thread.native_stack {
            Some(NativeState::Partial) => "; native frames are missing",
            Some(NativeState::Complete) | None => "",
        };
        self.line(&format!("  Thread {} {name}{main}: {}{torn}{native}", thread.tid, self.state(process, thread)));
        thread.stack.iter().rev().for_each(|frame| self.frame(frame));
    }

    fn frame(&mut self, frame: &DumpFrame) {
        self.frame_at("    ", frame);
    }

    fn frame_at(&mut self, indent: &str, DumpFrame { frame, source }: &DumpFrame) {
        let file = frame.file.as_deref().or(frame.module.as_deref()).unwrap_or("?");
        let place = frame.line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"));
        let (place, function) = (escape::tail(&place, PLACE), escape::line(&frame.function, FUNCTION));
        let source = source.as_deref().map(|source| escape::line(source, SOURCE)).unwrap_or_default();
        self.line(&format!("{indent}{place:<PLACE$}  {function:<FUNCTION$}  {source}"));
    }

    /// `asleep for 3.2 s in futex (futex_do_wait), waits for the GIL, which thread 4242 holds at app.py:12`
    fn state(&self, process: &ProcessDump, thread: &ThreadDump) -> String {
        let mut words = match (thread.state, thread.cpu) {
            (State::Running, Some(cpu)) => format!("running on CPU {cpu}"),
            (State::Uninterruptible, _) => "asleep where no signal wakes it (state D)".to_owned(),
            (State::Stopped, _) => "stopped by a signal; `kill -CONT` lets it go on".to_owned(),
            (State::Traced, _) => "stopped by a debugger".to_owned(),
            (State::Throttled, _) => "throttled: its control group has used up its CPU limit".to_owned(),
            (state, _) => state.name().to_owned(),
        };
        if let Some(asleep) = thread.asleep_s {
            _ = write!(words, " for {}", time(Nanos::from_secs_f64(asleep)));
        }
        let call = thread.call.as_deref().or(thread.reason.map(|_| "a page fault"));
        if let Some(call) = call {
            _ = write!(words, " in {}", escape::line(call, NAME));
        }
        if let Some(function) = &thread.kernel_function {
            _ = write!(words, " ({})", escape::line(function, NAME));
        }
        if let Some(awaited) = &thread.awaits {
            _ = write!(words, ", {}", self.awaited(process, awaited));
        }
        if thread.holds_gil {
            words += ", holds the GIL";
        }
        words
    }

    fn awaited(&self, process: &ProcessDump, awaited: &Awaited) -> String {
        let name = awaited.name.as_deref().map(|name| format!(" {}", escape::line(name, NAME))).unwrap_or_default();
        let what = match awaited.what {
            What::Child => "a child to end",
            What::Thread => "a thread to end",
            what => what.phrase(),
        };
        let holders: Vec<String> = awaited.holders.iter().map(|holder| self.holder(process, *holder)).collect();
        let holders = holders.join(" and ");
        match awaited.what {
            _ if holders.is_empty() => format!("waits for {what}{name}"),
            What::Child | What::Thread => format!("waits for {holders} to end"),
            What::Pipe | What::Socket => format!("waits for {what}{name}, whose other end {holders} has"),
            _ => format!("waits for {what}{name}, which {holders} holds"),
        }
    }

    fn holder(&self, process: &ProcessDump, holder: Holder) -> String {
        let of = self.dump.processes.iter().find(|process| process.pid == holder.pid);
        let Some(tid) = holder.tid else {
            let command = of.map(|process| format!(" ({})", escape::line(&process.command, NAME))).unwrap_or_default();
            return format!("process {}{command}", holder.pid);
        };
        let thread = of.and_then(|process| process.threads.iter().find(|thread| thread.tid == tid));
        let at = thread.and_then(ThreadDump::line).map(|frame| {
            let file = frame.file.as_deref().unwrap_or("?");
            let file = escape::tail(file.rsplit('/').next().unwrap_or(file), PLACE).into_owned();
            frame.line.map_or_else(|| format!(" at {file}"), |line| format!(" at {file}:{line}"))
        });
        let other = if holder.pid == process.pid { String::new() } else { format!(" of process {}", holder.pid) };
        format!("thread {tid}{other}{}", at.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pyobs_model::dump::{self, TaskDump, TaskState};
    use pyobs_model::report::FrameOut;
    use pyobs_model::{FrameKind, Pid, Tid, WaitReason};

    use super::*;

    fn frame(function: &str, line: u32) -> DumpFrame {
        let frame = FrameOut {
            kind: FrameKind::Python,
            function: Arc::from(function),
            module: None,
            file: Some(Arc::from("/srv/app.py")),
            line: Some(line),
        };
        DumpFrame { frame, source: Some(format!("{function}()\u{1b}[2J")) }
    }

    fn thread(tid: u32, role: Role) -> ThreadDump {
        ThreadDump {
            tid: Tid(tid),
            name: "python".to_owned(),
            python_name: None,
            role,
            state: State::Asleep,
            cpu: Some(1),
            reason: Some(WaitReason::Lock),
            call: Some("futex".to_owned()),
            kernel_function: Some("futex_do_wait".to_owned()),
            asleep_s: Some(1.5),
            holds_gil: false,
            awaits: None,
            stack: vec![frame("main", 1), frame("inner", 2)],
            stack_state: StackState::Consistent,
            native_stack: None,
        }
    }

    fn task(id: &str, awaits: &[&str], awaited_by: &[&str]) -> TaskDump {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        TaskDump {
            id: id.to_owned(),
            name: Some(format!("T{id}")),
            tid: None,
            state: TaskState::Waiting,
            awaits: ids(awaits),
            awaited_by: ids(awaited_by),
            stack: vec![frame("work", 7)],
            stack_state: StackState::Consistent,
        }
    }

    fn dump(threads: Vec<ThreadDump>, tasks: Vec<TaskDump>) -> Dump {
        let process = ProcessDump {
            pid: Pid(9),
            ppid: Pid(1),
            command: "python app.py".to_owned(),
            python: Arc::from("3.12.1"),
            cgroup: None,
            container: None,
            cpu_limit: None,
            memory_limit: None,
            threads,
            tasks: Some(tasks),
            zombies: Vec::new(),
        };
        Dump {
            version: dump::VERSION,
            host: "h".to_owned(),
            kernel: String::new(),
            taken: "now".to_owned(),
            took_s: 0.012,
            processes: vec![process],
            findings: Vec::new(),
            notes: vec!["A note.".to_owned()],
        }
    }

    fn squeezed(dump: &Dump) -> String {
        let lines = text(dump)
            .lines()
            .map(|line| {
                let indent = line.len() - line.trim_start().len();
                " ".repeat(indent) + &line.split_whitespace().collect::<Vec<_>>().join(" ")
            })
            .collect::<Vec<_>>();
        lines.join("\n")
    }

    #[test]
    fn a_thread_says_what_it_waits_for_and_who_has_it() {
        let holder = Holder { pid: Pid(9), tid: Some(Tid(10)) };
        let mut waiter = thread(9, Role::Main);
        waiter.awaits = Some(Awaited { what: What::Lock, name: Some("0x7f".to_owned()), holders: vec![holder] });
        let mut running = thread(10, Role::Python);
        running.state = State::Running;
        (running.reason, running.call, running.kernel_function, running.asleep_s) = (None, None, None, None);
        (running.holds_gil, running.python_name) = (true, Some("worker".to_owned()));
        let natives = [11, 12].map(|tid| ThreadDump { stack: Vec::new(), ..thread(tid, Role::Native) });
        let expected = "\
h, now: 1 Python process, 4 threads, in 12.0 ms

Process 9 (CPython 3.12.1, parent 1): python app.py
  Thread 9 python (main): asleep for 1.50 s in futex (futex_do_wait), waits for the lock 0x7f, which thread 10 at app.py:2 holds
    /srv/app.py:2 inner inner()\u{fffd}[2J
    /srv/app.py:1 main main()\u{fffd}[2J
  Thread 10 worker: running on CPU 1, holds the GIL
    /srv/app.py:2 inner inner()\u{fffd}[2J
    /srv/app.py:1 main main()\u{fffd}[2J
  Threads without Python: 2 × python

A note.";
        assert_eq!(squeezed(&dump([vec![waiter, running], natives.into()].concat(), Vec::new())), expected);
    }

    #[test]
    fn tasks_are_a_tree_and_those_in_a_circle_are_shown_once() {
        let tasks = vec![
            task("1", &["2", "3"], &[]),
            task("2", &[], &["1"]),
            task("3", &[], &["1"]),
            task("4", &["5"], &["5"]),
            task("5", &["4"], &["4"]),
        ];
        let expected = "\
h, now: 1 Python process, 0 threads, in 12.0 ms

Process 9 (CPython 3.12.1, parent 1): python app.py
  asyncio has 5 tasks, 0 running:
    T1, waiting
      /srv/app.py:7 work work()\u{fffd}[2J
      2 tasks, waiting: T2, T3
        /srv/app.py:7 work work()\u{fffd}[2J
    Tasks that await each other in a circle:
      T4, waiting
        /srv/app.py:7 work work()\u{fffd}[2J
        T5, waiting
          /srv/app.py:7 work work()\u{fffd}[2J
          awaits T4, shown elsewhere

A note.";
        assert_eq!(squeezed(&dump(Vec::new(), tasks)), expected);
    }
}
