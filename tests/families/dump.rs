//! Tests `pyobs dump` against what programs know of their own threads, and what faulthandler prints of them.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "dump/container.rs"]
mod container;
#[path = "dump/native.rs"]
mod native;
#[path = "dump/stacks.rs"]
mod stacks;
#[path = "dump/tasks.rs"]
mod tasks;
#[path = "dump/waits.rs"]
mod waits;

use std::process::ExitCode;

use pyobs_tests::{Case, Python, Workload, case, command, json, needs, pyobs, schema, workload};
use serde_json::Value;

type Body = fn(&Python);

fn main() -> ExitCode {
    let mut cases = Vec::new();
    for python in Python::all() {
        let for_this = |what: &str, body: Body| {
            let python = python.clone();
            case(format!("{}::{what}", python.name()), move || body(&python)).needs(needs::root())
        };
        cases.push(for_this("sleeping_threads_are_where_faulthandler_finds_them", stacks::sleeping_threads));
        let is_known = match python.minor() {
            ..=13 if python.root.is_none() => stacks::py_spy().map(|_| ()),
            _ => Err("py-spy does not know it".to_owned()),
        };
        cases.push(for_this("sleeping_threads_are_where_py_spy_finds_them", stacks::as_py_spy).needs(is_known));
        cases.push(for_this("stacks_of_a_running_thread_are_possible", stacks::running_thread));
        let natives = for_this("native_frames_are_as_gdb_finds_them", native::natives);
        // gdb looks for files where we do.
        let is_here = python.root.is_none().then_some(()).ok_or("gdb does not find its files".to_owned());
        cases.push(natives.needs(needs::program("gdb")).needs(is_here));
        cases.push(for_this("a_thread_that_sleeps_with_the_gil_is_named", waits::gil));
        if python.minor() >= 8 && !python.version.ends_with('t') {
            cases.push(for_this("tasks_are_as_asyncio_has_them", tasks::tasks));
            let has_ps = if python.minor() >= 14 { Ok(()) } else { Err("its asyncio has no `ps`".to_owned()) };
            cases.push(for_this("tasks_are_as_asyncio_ps_lists_them", tasks::listed).needs(has_ps));
            cases.push(for_this("deadlocks_are_found_with_their_lines", waits::deadlocks));
        }
    }
    let few: [(&str, Body); 10] = [
        ("locks_taken_in_one_order_are_no_deadlock", waits::order),
        ("a_full_pipe_and_a_wait_for_the_child_are_a_deadlock", waits::pipe),
        ("a_connection_has_its_other_end", waits::socket),
        ("a_unix_socket_has_its_other_end", waits::unix),
        ("a_file_lock_has_its_holder", waits::file_lock),
        ("a_semaphore_has_its_name", waits::semaphore),
        ("ended_and_stopped_children_are_named", waits::children),
        ("a_sleep_that_no_signal_ends_is_named", waits::uninterruptible),
        ("threads_in_a_pid_namespace_have_their_frames", stacks::namespace),
        ("the_text_says_the_same", text),
    ];
    let of_3_12 = |name: &str, body: Body| {
        let body = move || body(&needs::python("3.12").unwrap());
        case(name, body).needs(needs::root()).needs(needs::python("3.12"))
    };
    cases.extend(few.map(|(name, body)| of_3_12(name, body)));
    let container = of_3_12("a_container_is_named_and_its_limit_is_a_finding", container::container);
    cases.push(container.needs(pyobs_tests::control_group::root()));
    cases.push(case("a_process_that_does_not_exist_is_an_error", absent));
    pyobs_tests::run(cases.into_iter().map(Case::beside).collect())
}

/// Starts a mode of the program, and returns what it printed.
fn start(python: &Python, arguments: &[&str]) -> (Workload, Value) {
    let mut program = python.script(workload("dump.py"));
    program.args(arguments);
    let mut program = Workload::start(program);
    let facts = json::parse(&program.line());
    (program, facts)
}

/// The dump of a program and its descendants.
fn dump(pid: u32) -> Value {
    dump_with(pid, &[])
}

fn dump_with(pid: u32, options: &[&str]) -> Value {
    let mut pyobs = command(pyobs());
    pyobs.args(["dump", "--json", "--pid", &pid.to_string()]).args(options);
    let ended = Workload::start(pyobs).wait();
    assert!(ended.status.success(), "{ended:?}");
    let dump = json::parse(&ended.stdout);
    schema::check_dump(&dump);
    dump
}

fn process(dump: &Value, pid: u64) -> &Value {
    let processes = json::list(dump, "/processes").iter();
    processes.into_iter().find(|process| json::count(process, "/pid") == pid).unwrap_or_else(|| panic!("{dump:#}"))
}

fn thread(dump: &Value, pid: u64, tid: u64) -> &Value {
    let threads = json::list(process(dump, pid), "/threads").iter();
    threads.into_iter().find(|thread| json::count(thread, "/tid") == tid).unwrap_or_else(|| panic!("{dump:#}"))
}

/// The thread of this name in the program's own list.
fn named<'a>(dump: &'a Value, facts: &Value, name: &str) -> &'a Value {
    thread(dump, json::count(facts, "/pid"), json::count(facts, &format!("/tids/{name}")))
}

/// The thread's frames as faulthandler prints them: innermost first, with the plain name of each function.
fn frames(thread: &Value) -> Vec<(String, u64, String)> {
    let frame = |frame: &Value| {
        let function = json::text(frame, "/function");
        let plain = function.rsplit('.').next().unwrap_or(function);
        (json::text(frame, "/file").to_owned(), json::count(frame, "/line"), plain.to_owned())
    };
    json::list(thread, "/stack").iter().rev().map(frame).collect()
}

/// The holders that a thread waits for.
fn holders(thread: &Value) -> Vec<u64> {
    let holders = thread.pointer("/awaits/holders").and_then(Value::as_array);
    holders.into_iter().flatten().filter_map(|holder| holder["tid"].as_u64().or(holder["pid"].as_u64())).collect()
}

fn text(python: &Python) {
    let (program, facts) = start(python, &["locks"]);
    let mut pyobs = command(pyobs());
    pyobs.args(["dump", "--pid", &program.pid().to_string()]);
    let ended = Workload::start(pyobs).wait();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    for name in ["with_one", "waiter"] {
        let (tid, line) =
            (json::count(&facts, &format!("/tids/{name}")), json::count(&facts, &format!("/lines/{name}")));
        let head = format!("  Thread {tid} ");
        let mut lines = ended.stdout.lines().skip_while(|line| !line.starts_with(&head));
        let state = lines.next().unwrap_or_else(|| panic!("{}", ended.stdout));
        assert!(
            state.contains("asleep for ") && state.contains(" in futex") && state.contains("waits for the lock 0x"),
            "{state}"
        );
        let frame = lines.next().unwrap();
        assert!(frame.contains(&format!("dump.py:{line} ")) && frame.contains("# waits here"), "{frame}");
    }
    assert_eq!(ended.stdout.lines().filter(|line| line.starts_with("! ")).count(), 4, "{}", ended.stdout);
}

fn absent() {
    let mut pyobs = command(pyobs());
    pyobs.args(["dump", "--pid", "4194303"]);
    let ended = Workload::start(pyobs).wait();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.starts_with("pyobs: there is no process 4194303"), "{}", ended.stderr);
}
