//! Tests the GIL's holder and waiters, read from live interpreters as the kernel side reads them, against what the
//! kernel says about the threads.

use std::path::Path;
use std::time::{Duration, Instant};

use pyobs_abi::process::NONE;
use pyobs_capture::cpython::attached::Attachment;
use pyobs_capture::cpython::find::{FixedGil, Interpreter, inspect};
use pyobs_capture::cpython::mapped::attach_to;
use pyobs_capture::cpython::offsets::Gil;
use pyobs_capture::memory::{Memory as _, ProcessMemory};
use pyobs_tests::{Case, Folder, Python, Workload, case, command, needs};

use crate::interpreters::minor_of_name;
use crate::offsets::has_debug_information;
use crate::thread_state::modules;
use crate::{for_every_python, generator};

pub fn cases() -> Vec<Case> {
    let mut cases = for_every_python("gil", "the_holder_runs_and_the_waiter_sleeps_on_the_condition", contended);
    cases.extend(for_every_python("gil", "it_has_no_holder_while_the_only_thread_sleeps", released));
    let own = "an_interpreter_with_a_gil_of_its_own_points_to_it";
    cases.extend(Python::all().iter().filter(|python| python.root.is_none() && python.minor() >= 12).map(|python| {
        let have = if is_free_threaded(python) { Err("it runs without a GIL".to_owned()) } else { Ok(()) };
        case(format!("gil/{}::{own}", python.name()), || own_gils(python)).needs(have)
    }));
    let confirmed = "gil/python3.13::the_debug_offsets_match_the_debug_information";
    cases.push(case(confirmed, table_of_3_13).needs(needs::python("3.13")).needs(debug_information_of_3_13()));
    let stripped = "gil/in_a_stripped_interpreter_it_is_found_by_code_except_in_3_6";
    cases.push(case(stripped, strip_all).needs(needs::program("strip")));
    cases
}

fn is_free_threaded(python: &Python) -> bool {
    python.version.ends_with('t')
}

/// A thread as its program reports it.
#[derive(Debug)]
struct Thread {
    ident: u64,
    tid: u32,
}

/// A program whose threads have reached their final state.
struct Process {
    workload: Workload,
    memory: ProcessMemory,
}

const TELL: &str = "
import os, sys, threading, time
def tell():
    native = getattr(threading, 'get_native_id', lambda: int(os.readlink('/proc/thread-self').split('/')[2]))
    sys.stdout.write('%d %d\\n' % (threading.get_ident(), native()))
    sys.stdout.flush()
";

impl Process {
    fn start(python: &Python, program: &str, argument: &str) -> Self {
        let mut command = python.command();
        command.args(["-S", "-E", "-c", &format!("{TELL}{program}"), argument]);
        let workload = Workload::start(command);
        Self { memory: ProcessMemory::new(workload.pid()), workload }
    }

    fn thread(&mut self) -> Thread {
        let line = self.workload.line();
        let (ident, tid) = line.split_once(' ').unwrap();
        Thread { ident: ident.parse().unwrap(), tid: tid.parse().unwrap() }
    }

    fn attach(&self) -> Attachment {
        attach_to(self.workload.pid()).unwrap().unwrap().unwrap_or_else(|why| panic!("{why:?}"))
    }

    fn word(&self, base: u64, offset: u32) -> u64 {
        self.memory.read_u64(base + u64::from(offset)).unwrap_or_else(|error| panic!("{base:#x}+{offset}: {error}"))
    }

    /// The system call that a thread is in, as the kernel reports it: number and first argument. `None` if the thread
    /// runs.
    fn system_call(&self, thread: &Thread) -> Option<(u32, u64)> {
        let path = format!("/proc/{}/task/{}/syscall", self.workload.pid(), thread.tid);
        let text = std::fs::read_to_string(path).unwrap();
        let mut words = text.split_whitespace();
        let (number, argument) = (words.next()?.parse().ok()?, words.next()?);
        Some((number, u64::from_str_radix(argument.strip_prefix("0x")?, 16).unwrap()))
    }

    /// Waits until a thread is in such a system call; before that it may wait for other things.
    #[track_caller]
    fn wait_for_call(&self, thread: &Thread, is_it: impl Fn(libc::c_long, u64) -> bool) {
        let since = Instant::now();
        loop {
            let call = self.system_call(thread);
            if call.is_some_and(|(number, argument)| is_it(number.into(), argument)) {
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(20), "{thread:?} stays in {call:x?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The interpreters and thread states of a thread, from the lists that debuggers walk.
    fn states(&self, attachment: &Attachment, thread: &Thread) -> Vec<(u64, u64)> {
        let layout = &attachment.attached.layout;
        let found = modules(self.workload.pid()).into_iter().find_map(|(path, base)| {
            let facts = inspect(&std::fs::read(path).unwrap()).ok().flatten()?;
            Some(base + facts.interpreters_head.unwrap())
        });
        let (mut interpreter, mut states) = (self.word(found.unwrap(), 0), Vec::new());
        while interpreter != 0 {
            let mut state = self.word(interpreter, layout.interpreter.threads_head);
            while state != 0 {
                if self.word(state, layout.thread_state.thread_id) == thread.ident {
                    states.push((interpreter, state));
                }
                state = self.word(state, layout.thread_state.next);
            }
            interpreter = self.word(interpreter, layout.interpreter.next);
        }
        states
    }

    /// The interpreter and thread state of a thread that has exactly one.
    #[track_caller]
    fn state(&self, attachment: &Attachment, thread: &Thread) -> (u64, u64) {
        let states = self.states(attachment, thread);
        let [state] = states[..] else { panic!("{thread:?} has the states {states:x?}") };
        state
    }

    /// `locked`, the GIL's holder, and the range of its condition, found from a thread state as the kernel side does
    /// it.
    fn gil(&self, attachment: &Attachment, state: u64) -> (i32, u64, std::ops::Range<u64>) {
        let (process, layout) = (&attachment.process, &attachment.layout);
        let gil = match process.gil {
            0 => self.word(self.word(state, layout.thread_interpreter), layout.interpreter_gil),
            gil => gil,
        };
        let at = |offset: u32| gil.wrapping_add_signed(offset.cast_signed().into());
        let condition = at(layout.gil_condition);
        (
            self.memory.read_u32(at(layout.gil_locked)).unwrap().cast_signed(),
            self.word(at(layout.gil_holder), 0),
            condition..condition + u64::from(layout.gil_condition_size),
        )
    }
}

/// The final holder keeps the GIL, because the other thread waits a thousand seconds before it asks for it.
const CONTENDED: &str = "
told, go, runs = threading.Event(), threading.Event(), threading.Lock()
runs.acquire()
def second():
    tell()
    told.set()
    go.wait()
    if sys.argv[1] == 'second':
        runs.release()
        while True: pass
    runs.acquire()
thread = threading.Thread(target=second, daemon=True)
thread.start()
told.wait()
tell()
sys.setswitchinterval(1000)
go.set()
if sys.argv[1] == 'second':
    runs.acquire()
while True: pass
";

fn contended(python: &Python) {
    for holder in ["first", "second"] {
        let mut process = Process::start(python, CONTENDED, holder);
        let mut threads = [process.thread(), process.thread()];
        // The main thread's tid is the pid.
        threads.sort_by_key(|thread| (thread.tid == process.workload.pid()) != (holder == "first"));
        let [holder, waiter] = threads;
        let context = format!("{} with {holder:?} and {waiter:?}", python.name());
        if is_free_threaded(python) {
            assert_eq!(process.attach().layout.gil_condition_size, 0, "{context}");
            continue;
        }
        let attachment = process.attach();
        let [(interpreter, state), (_, other)] = [&holder, &waiter].map(|thread| process.state(&attachment, thread));
        assert_ne!(state, other, "{context}");
        let condition = process.gil(&attachment, other).2;
        process.wait_for_call(&waiter, |number, futex| number == libc::SYS_futex && condition.contains(&futex));
        assert_eq!(process.system_call(&holder), None, "{context}");
        assert_eq!(process.gil(&attachment, state), (1, state, condition), "{context}");

        let layout = &attachment.layout;
        assert_eq!(process.word(state, layout.thread_interpreter), interpreter, "{context}");
        assert_eq!(layout.thread_native == NONE, python.minor() <= 10, "{context}");
        for (thread, state) in [(&holder, state), (&waiter, other)] {
            if layout.thread_native != NONE {
                assert_eq!(process.word(state, layout.thread_native), u64::from(thread.tid), "{context}");
            }
            let tid = thread.ident + u64::from(attachment.process.pthread_tid);
            assert_eq!(process.memory.read_u32(tid).unwrap(), thread.tid, "{context}");
        }
    }
}

/// CPython 3.6 creates its GIL with the first thread.
const RELEASED: &str = "
thread = threading.Thread(target=time.sleep, args=(0,))
thread.start()
thread.join()
tell()
time.sleep(1000)
";

fn released(python: &Python) {
    let mut process = Process::start(python, RELEASED, "");
    let thread = process.thread();
    let sleeps = [libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_select, libc::SYS_pselect6];
    process.wait_for_call(&thread, |number, _| sleeps.contains(&number));
    let attachment = process.attach();
    if is_free_threaded(python) {
        assert_eq!(attachment.layout.gil_condition_size, 0);
        return;
    }
    let (_, state) = process.state(&attachment, &thread);
    let (locked, last_holder, condition) = process.gil(&attachment, state);
    // The last holder is still named.
    assert_eq!((locked, last_holder), (0, state), "{}", python.name());
    assert!(!condition.is_empty());
}

/// The thread creates its interpreter itself. In 3.12 the state that it runs on names its creator, not the running
/// thread.
const OWN: &str = "
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
def other():
    interpreter = interpreters.create()
    interpreters.run_string(interpreter, sys.argv[1] + 'tell()\\nwhile True: pass\\n')
thread = threading.Thread(target=other, daemon=True)
tell()
thread.start()
while True: pass
";

fn own_gils(python: &Python) {
    let mut process = Process::start(python, OWN, TELL);
    let threads = [process.thread(), process.thread()];
    std::thread::sleep(Duration::from_millis(200));
    let attachment = process.attach();
    let seen = threads.each_ref().map(|thread| {
        // Each runs in an interpreter of its own, and neither waits for the other.
        assert_eq!(process.system_call(thread), None);
        // The other thread also has a state in the main interpreter.
        let states = process.states(&attachment, thread);
        let with_gil = |(interpreter, state): &(u64, u64)| {
            let (locked, holder, condition) = process.gil(&attachment, *state);
            (locked == 1 && holder == *state).then_some((*interpreter, condition))
        };
        let found: Vec<_> = states.iter().filter_map(with_gil).collect();
        let [found] = &found[..] else { panic!("{found:x?} of {states:x?} of {thread:?} in {}", python.name()) };
        found.clone()
    });
    assert_ne!(seen[0].0, seen[1].0);
    assert_ne!(seen[0].1, seen[1].1);
}

fn is_3_13_with_debug_information(path: &Path) -> bool {
    minor_of_name(path) == Some(13) && has_debug_information(path)
}

fn debug_information_of_3_13() -> Result<(), String> {
    let found = generator::find_interpreters().iter().any(|path| is_3_13_with_debug_information(path));
    if found { Ok(()) } else { Err("there is no CPython 3.13 with debug information here".to_owned()) }
}

/// The debug offsets in memory cover some of these fields; the debug information is the source of the rest.
fn table_of_3_13() {
    let files =
        generator::find_interpreters().into_iter().filter(|path| is_3_13_with_debug_information(path)).collect();
    let (generated, skipped) = generator::generate(files);
    let fields = &generated.get(&13).unwrap_or_else(|| panic!("{skipped:#?}")).fields;
    let python = needs::python("3.13").unwrap();
    let mut process = Process::start(&python, "tell()\ntime.sleep(1000)\n", "");
    process.thread();
    let layout = process.attach().attached.layout;
    let number = |structure: &str, field: &str| u32::try_from(fields[structure][field].as_integer().unwrap()).unwrap();
    let expected = Gil {
        size: number("gil", "size"),
        interval: None,
        holder: number("gil", "holder"),
        locked: number("gil", "locked"),
        condition: number("gil", "condition"),
        condition_size: number("gil", "condition_size"),
        enabled: None,
    };
    assert_eq!((layout.gil, layout.interpreter.gil), (Some(expected), Some(number("interpreter", "gil"))));
}

fn strip_all() {
    let folder = Folder::new();
    let mut seen = 0;
    for path in generator::find_interpreters() {
        let facts = |path: &Path| -> Option<Interpreter> { inspect(&std::fs::read(path).unwrap()).unwrap() };
        let Some(whole) = facts(&path) else { continue };
        let copy = folder.join("stripped");
        let done = command("strip").arg("-o").arg(&copy).arg(&path).status().unwrap();
        assert!(done.success(), "strip {}", path.display());
        let gil = facts(&copy).unwrap().gil;
        let expected: Option<FixedGil> = whole.gil.filter(|_| whole.version.since(7));
        assert_eq!(gil, expected, "{}", path.display());
        assert_eq!(gil.is_some(), whole.version.since(7) && !whole.version.since(12), "{}", path.display());
        seen += 1;
    }
    assert!(seen > 0, "no interpreter was found");
}
