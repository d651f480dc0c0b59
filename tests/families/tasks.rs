//! Tests the family `tasks` against programs that know which task they ran, and for how long.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use pyobs_tests::{Case, Python, Record, Recording, Workload, case, compare, json, needs, workload};
use serde_json::Value;

const RATE: u32 = 499;
const SECONDS: &str = "6";
/// Tolerance for blocked time, which is not sampled.
const BLOCKED: f64 = 0.05;
/// The least part of it that is known by the task's name.
const NAMED: f64 = 0.8;
/// Tolerance for shares of CPU time.
const POINTS: f64 = 0.02;
/// The limit on named tasks per coroutine function.
const NAMES_MAX: usize = 256;

fn main() -> ExitCode {
    let mut cases: Vec<Case> = Vec::new();
    for python in Python::all() {
        let every = needs::every(python);
        let of_this = |what: &str, body: fn(&Python)| {
            let (name, python) = (format!("{}::{what}", python.name()), python.clone());
            case(name, move || body(&python)).needs(needs::root()).needs(every.clone())
        };
        let minor = |least: u32| match python.minor() {
            minor if minor >= least => Ok(()),
            _ => Err(format!("it needs CPython 3.{least} or newer")),
        };
        let has_names = || if python.version.ends_with('t') { Err("it shows no names".to_owned()) } else { minor(8) };
        cases.push(of_this("a_server_knows_its_tasks", on_asyncio).needs(has_names()));
        let with_uvloop = with(python, "uvloop").map(|_| ());
        cases.push(of_this("a_server_on_uvloop_knows_its_tasks", on_uvloop).needs(has_names()).needs(with_uvloop));
        cases.push(of_this("tasks_that_all_wait_are_listed", idle).needs(has_names()).needs(needs::few(python)));
        cases.push(of_this("an_eager_task_counts_for_itself", eager).needs(minor(12)).needs(needs::few(python)));
        cases.push(of_this("short_tasks_are_summed_up", requests).needs(has_names()).needs(needs::few(python)));
        cases.push(
            of_this("a_task_that_computes_for_long_is_found", starving).needs(has_names()).needs(needs::few(python)),
        );
        for (module, needs_all) in [("greenlet", needs::few(python)), ("gevent", Ok(()))] {
            let body = {
                let python = python.clone();
                move || greenlets(&python, module)
            };
            let one = case(format!("{}::{module}_runs_what_its_greenlets_began_with", python.name()), body);
            cases.push(one.needs(needs::root()).needs(needs_all).needs(with(python, module).map(|_| ())));
        }
        cases.push(
            of_this("coroutines_without_a_loop_have_their_own_time", alone).needs(minor(6)).needs(needs::few(python)),
        );
    }
    pyobs_tests::run(cases)
}

/// The interpreter of an environment that has a module.
fn with(python: &Python, module: &str) -> Result<PathBuf, String> {
    let venv = python.venv.as_ref().filter(|venv| {
        let mut command = pyobs_tests::command(venv);
        command.args(["-c", &format!("import {module}")]).output().is_ok_and(|output| output.status.success())
    });
    venv.cloned().ok_or_else(|| format!("its environment has no {module}"))
}

fn record(python: &Python, mode: &str) -> (Recording, Value) {
    record_command(python.script(workload("tasks.py")), mode)
}

fn record_command(mut command: Command, mode: &str) -> (Recording, Value) {
    command.args([mode, SECONDS]);
    let recording = Record::new().rate(RATE).command(command).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    let truth = json::parse(recording.stdout.lines().last().unwrap_or_default());
    (recording, truth)
}

fn named<'a>(recording: &'a Recording, name: &str) -> &'a Value {
    let tasks = json::list(&recording.report, "/tasks");
    let found = tasks.iter().find(|task| task["name"] == name);
    found.unwrap_or_else(|| panic!("no task {name}: {tasks:#?}"))
}

/// The tasks of a coroutine function.
fn of_function<'a>(recording: &'a Recording, function: &str) -> Vec<&'a Value> {
    let is_it = |task: &&Value| json::text(task, "/coroutine/function") == function;
    json::list(&recording.report, "/tasks").iter().filter(is_it).collect()
}

fn sum(tasks: &[&Value], pointer: &str) -> f64 {
    tasks.iter().map(|task| json::number(task, pointer)).sum()
}

fn on_asyncio(python: &Python) {
    server(record(python, "asyncio"));
}

fn on_uvloop(python: &Python) {
    let mut command = pyobs_tests::command(with(python, "uvloop").unwrap());
    command.arg(workload("tasks.py"));
    server(record_command(command, "uvloop"));
}

/// Fifty tasks: some compute, two block the loop, and the others wait for an event or for each other.
fn server((recording, truth): (Recording, Value)) {
    let cpu = truth["cpu_s"].as_object().unwrap();
    let all: f64 = cpu.values().filter_map(Value::as_f64).sum();
    let seen: f64 = cpu.keys().map(|name| json::number(named(&recording, name), "/cpu_s")).sum();
    for (name, seconds) in cpu {
        let (truth, seen) = (seconds.as_f64().unwrap() / all, json::number(named(&recording, name), "/cpu_s") / seen);
        println!("  {name}: {:.1} % of the CPU time, {:.1} % seen", truth * 100.0, seen * 100.0);
        assert!((truth - seen).abs() < POINTS, "{name}: {truth:.3}, seen {seen:.3}");
    }
    compare::within("CPU seconds of all of them", all, seen, 0.1);
    for (name, seconds) in truth["blocked_s"].as_object().unwrap() {
        // The first sleep may come before the task's name is known.
        let all = sum(&of_function(&recording, name), "/blocked/total_s");
        compare::within(&format!("blocked by {name}"), seconds.as_f64().unwrap(), all, BLOCKED);
        let blocked = &named(&recording, name)["blocked"];
        compare::at_least(&format!("seconds under the name {name}"), json::number(blocked, "/total_s"), NAMED * all);
        assert!(json::number(blocked, "/max_s") > 0.055, "{blocked}");
    }
    let findings: Vec<&Value> =
        json::list(&recording.report, "/findings").iter().filter(|finding| finding["id"] == "tasks/blocked").collect();
    let others = json::list(&truth, "/all").len() - 1;
    for function in ["sleeper", "reader"] {
        // The line of the program: the call is in a lambda.
        let told = findings.iter().any(|finding| {
            let detail = json::text(finding, "/detail");
            detail.contains(&format!("{function} ({function})"))
                && detail.contains(&format!("{others} other tasks waited"))
        });
        assert!(told, "{function}: {findings:#?}");
    }
    are_listed(&recording, &truth);
}

/// Compares the tasks that are alive with `asyncio.all_tasks()`, and whom they await with what the program made of them.
#[track_caller]
fn are_listed(recording: &Recording, truth: &Value) {
    let alive = json::list(&recording.report, "/tasks").iter().filter(|task| !task["status"].is_null());
    let alive: BTreeSet<&str> = alive.map(|task| json::text(task, "/name")).collect();
    let known: BTreeSet<&str> = json::list(truth, "/all").iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(alive, known);
    for (name, other) in truth["awaits"].as_object().unwrap() {
        let awaits = json::text(&named(recording, name)["status"], "/awaits").to_owned();
        assert_eq!(awaits, format!("on_event ({})", other.as_str().unwrap()), "{name}");
    }
}

fn idle(python: &Python) {
    let mut command = python.script(workload("tasks.py"));
    command.args(["idle", SECONDS]);
    let program = Workload::start(command);
    let recording = Record::new().pid(program.pid()).start();
    let ended = program.wait();
    are_listed(&recording.wait(), &json::parse(ended.stdout.lines().last().unwrap_or_default()));
}

/// A task that starts another eagerly runs below it, but does not compute what that one does.
fn eager(python: &Python) {
    let (recording, truth) = record(python, "eager");
    let [parent, child] = ["parent", "child"].map(|name| json::number(&truth["cpu_s"], &format!("/{name}")));
    let seen = |function| sum(&of_function(&recording, function), "/cpu_s");
    let (of_parent, of_child) = (seen("eager_parent"), seen("eager_child"));
    println!("  parent {parent:.2} s, {of_parent:.2} s seen; child {child:.2} s, {of_child:.2} s seen");
    let (truth, seen) = (child / (parent + child), of_child / (of_parent + of_child));
    assert!((truth - seen).abs() < 2.0 * POINTS, "{truth:.3}, seen {seen:.3}");
}

/// Thousands of tasks of one function: the names of some are kept, the time of all is.
fn requests(python: &Python) {
    let (recording, truth) = record(python, "requests");
    let tasks = of_function(&recording, "request");
    let names = tasks.iter().filter(|task| !task["name"].is_null()).count();
    assert!(names <= NAMES_MAX, "{names} names");
    let nameless: Vec<&Value> = tasks.iter().copied().filter(|task| task["name"].is_null()).collect();
    assert_eq!(nameless.len(), 1, "{nameless:#?}");
    compare::within("CPU seconds of requests", json::number(&truth, "/cpu_s/requests"), sum(&tasks, "/cpu_s"), 0.15);
}

/// One task computes for 130 ms at a time, another all the rest of the time for 15 ms.
fn starving(python: &Python) {
    let (recording, truth) = record(python, "starving");
    let findings = json::list(&recording.report, "/findings").iter();
    let starved: Vec<&Value> = findings.filter(|finding| finding["id"] == "tasks/starved").collect();
    let [finding] = starved[..] else { panic!("{starved:#?}") };
    let line = json::text(finding, "/evidence/line");
    assert!(line.starts_with("grind") || line.starts_with("<genexpr>"), "{finding:#}");
    assert!(json::text(finding, "/detail").contains("hog (hog)"), "{finding:#}");
    // The first part may come before the event loop's function is known. A turn is seen from its first sample to its last,
    // and has the other task's part too.
    let count = json::count(&truth, "/starved/hog");
    let seen = json::count(finding, "/evidence/count");
    assert!((count - 2..=count).contains(&seen), "{seen} of {count} times");
    let mean = json::number(&truth, "/starved_s/hog") / count as f64;
    let seen_mean = json::number(finding, "/evidence/starved_s") / seen as f64;
    assert!((0.95 * mean..mean + 0.02).contains(&seen_mean), "{mean} s, seen {seen_mean} s");
    assert_eq!(json::count(finding, "/evidence/tasks_waiting"), json::list(&truth, "/all").len() as u64 - 1);
}

/// Greenlets that compute, and one that blocks the others.
fn greenlets(python: &Python, module: &str) {
    let mut command = pyobs_tests::command(with(python, module).unwrap());
    command.arg(workload("tasks.py"));
    let mode = if module == "gevent" { module } else { "greenlets" };
    let (recording, truth) = record_command(command, mode);
    let tasks = json::list(&recording.report, "/tasks");
    let functions: BTreeSet<&str> = tasks.iter().map(|task| json::text(task, "/coroutine/function")).collect();
    // The event loop and the thread's first greenlet are no tasks.
    assert_eq!(functions, BTreeSet::from(["first", "second", "sleeper", "third"]), "{tasks:#?}");
    assert!(tasks.iter().all(|task| task["kind"] == "greenlet" && task["name"].is_null()), "{tasks:#?}");
    let cpu = truth["cpu_s"].as_object().unwrap();
    let all: f64 = cpu.values().filter_map(Value::as_f64).sum();
    let of = |name: &str| sum(&of_function(&recording, name), "/cpu_s");
    let seen: f64 = cpu.keys().map(|name| of(name)).sum();
    for (name, seconds) in cpu {
        let (truth, seen) = (seconds.as_f64().unwrap() / all, of(name) / seen);
        println!("  {name}: {:.1} % of the CPU time, {:.1} % seen", truth * 100.0, seen * 100.0);
        assert!((truth - seen).abs() < POINTS, "{name}: {truth:.3}, seen {seen:.3}");
    }
    compare::within("CPU seconds of all of them", all, seen, 0.1);
    let blocked = sum(&of_function(&recording, "sleeper"), "/blocked/total_s");
    let truth = json::number(&truth, "/blocked_s/sleeper");
    println!("  blocked for {truth:.2} s, {blocked:.2} s seen");
    // The first sleep, of 60 ms, may come before the interpreter's unwind table is made.
    assert!(blocked > (1.0 - BLOCKED) * truth - 0.06 && blocked < (1.0 + BLOCKED) * truth);
    let findings = json::list(&recording.report, "/findings").iter();
    let found: Vec<&Value> = findings.filter(|finding| finding["id"] == "tasks/blocked").collect();
    let [finding] = found[..] else { panic!("{found:#?}") };
    assert!(json::text(finding, "/summary").contains("blocked the greenlets of its thread for "), "{finding:#}");
}

fn alone(python: &Python) {
    let (recording, truth) = record(python, "alone");
    let shares = |of: [f64; 2]| of[0] / (of[0] + of[1]);
    let truth = shares(["first", "third"].map(|name| json::number(&truth, &format!("/cpu_s/{name}"))));
    let seen = ["outer_a", "outer_b"].map(|function| {
        let tasks = of_function(&recording, function);
        let [task] = &tasks[..] else { panic!("{tasks:#?}") };
        assert!(task["kind"] == "coroutine" && task["name"].is_null(), "{task:#}");
        json::number(task, "/cpu_s")
    });
    println!("  {:.1} %, {:.1} % seen", truth * 100.0, shares(seen) * 100.0);
    assert!((truth - shares(seen)).abs() < POINTS, "{truth:.3}, seen {:.3}", shares(seen));
}
