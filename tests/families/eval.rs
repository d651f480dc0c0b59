//! Tests the family `eval`: calls must be counted exactly, and timed. The reference is the interpreter itself: the same
//! program runs once more under `sys.setprofile`, which reports "call" for each start of a function and each resumption
//! of a generator.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeMap;
use std::process::ExitCode;

use pyobs_tests::{Case, Python, Record, Recording, Workload, case, compare, json, needs, workload};
use serde_json::Value;

fn main() -> ExitCode {
    let mut cases = Vec::new();
    for python in Python::all() {
        let name = python.name();
        if python.minor() > NEWEST {
            let body = move || reports_unseen_calls(python);
            let case = case(format!("{name}/calls_that_cannot_be_seen_are_reported"), body);
            cases.push(case.needs(needs::root()).needs(needs::every(python)));
            continue;
        }
        cases.push(
            case(format!("{name}/counts_match_setprofile"), move || counts(python))
                .needs(needs::root())
                .needs(needs::every(python)),
        );
        if python.minor() >= 11 {
            let body = move || numbers_of_instructions(python);
            cases.push(case(format!("{name}/instruction_numbers_match_the_table"), body));
        }
    }
    for version in ["3.10", "3.12"] {
        cases.push(with_python(version, "only_chosen_functions_are_reported", chosen));
        cases.push(with_python(version, "times_match_what_the_program_measured", times));
        cases.push(with_python(version, "children_are_counted", children));
        cases.push(with_python(version, "a_command_is_counted", command));
        let slow = if version == "3.12" { Ok(()) } else { needs::all() };
        cases.push(with_python(version, "the_most_called_functions_stay_within_the_budget", windows).needs(slow));
        cases.push(with_python(version, "an_explicit_budget_binds_chosen_functions", bound).needs(needs::all()));
    }
    pyobs_tests::run(cases)
}

fn with_python(version: &'static str, name: &str, body: fn(&Python)) -> Case {
    let run = move || body(&needs::python(version).unwrap());
    case(format!("python{version}/{name}"), run).needs(needs::root()).needs(needs::python(version))
}

/// The newest minor version whose evaluation loop pyobs knows.
const NEWEST: u32 = 14;
const ROUNDS: &str = "10";
const FILE: &str = "/every_call.py";

/// Calls by function and first line, of the functions in one file.
type Counts = BTreeMap<(String, u64), u64>;

fn counted(recording: &Recording, file: &str) -> Counts {
    let mut counts = Counts::new();
    for row in json::list(&recording.report, "/calls") {
        if row["file"].as_str().is_some_and(|name| name.ends_with(file)) {
            let key = (json::text(row, "/function").to_owned(), json::count(row, "/line"));
            *counts.entry(key).or_default() += json::count(row, "/count");
        }
    }
    counts
}

fn of<'a>(counts: &'a Counts, function: &'a str) -> u64 {
    counts.iter().filter(|((name, _), _)| name.rsplit('.').next() == Some(function)).map(|(_, count)| *count).sum()
}

fn expected(python: &Python) -> Counts {
    let mut command = python.script(workload("every_call.py"));
    command.args(["count", ROUNDS]);
    let output = Workload::start(command).wait();
    assert!(output.status.success(), "{}", output.stderr);
    let rows: Vec<(String, String, u64, u64)> = serde_json::from_str(output.stdout.trim()).unwrap();
    let mut counts = Counts::new();
    for (function, _, line, calls) in rows.into_iter().filter(|(_, file, _, _)| file.ends_with(FILE)) {
        *counts.entry((function, line)).or_default() += calls;
    }
    counts
}

/// Records a program that does all its work while it is watched.
fn watched(python: &Python, probe: &str) -> Recording {
    let mut command = python.script(workload("every_call.py"));
    command.args(["wait", ROUNDS]);
    let mut program = Workload::start(command);
    program.wait_for("ready");
    let recording = Record::new().pid(program.pid()).argument("--probe").argument(probe).start();
    program.signal(libc::SIGUSR1);
    let ended = program.wait();
    assert!(ended.status.success(), "{}", ended.stderr);
    recording.wait()
}

fn counts(python: &Python) {
    let expected = expected(python);
    let recording = watched(python, "eval=every_call.py:*");
    let counted = counted(&recording, FILE);
    let calls: u64 = counted.values().sum();
    eprintln!("  {} functions, {calls} calls; {}", counted.len(), recording.report["loss"]);
    assert!(expected.len() >= 35 && calls > 20_000, "the program calls too little: {expected:?}");
    assert_eq!(counted, expected, "{}", recording.stderr);
    let timed = timed(&recording);
    if recording.stderr.contains("that an exception ends have no times") {
        let unseen = json::count(&recording.report, "/loss/call_unseen");
        assert!(timed < calls && unseen > 0 && calls - timed < calls / 100, "{timed} of {calls} are timed, {unseen}");
    } else {
        assert_eq!(timed, calls, "calls that were seen to return");
        assert_eq!(recording.report.pointer("/loss/call_unseen"), None);
    }
}

fn reports_unseen_calls(python: &Python) {
    let recording = watched(python, "eval=every_call.py:*");
    assert!(recording.stderr.contains("are not seen"), "{}", recording.stderr);
    assert!(counted(&recording, FILE).is_empty(), "{}", recording.report["calls"]);
}

/// How many calls of the workload's functions have a time.
fn timed(recording: &Recording) -> u64 {
    let rows = json::list(&recording.report, "/calls").iter();
    let own = rows.filter(|row| row["file"].as_str().is_some_and(|file| file.ends_with(FILE)));
    own.map(|row| json::count(row, "/timed")).sum()
}

fn numbers_of_instructions(python: &Python) {
    let mut command = python.inline(include_str!("../../xtask/src/opcodes.py"));
    command.env("PYTHONWARNINGS", "ignore");
    let output = Workload::start(command).wait();
    assert!(output.status.success(), "{}", output.stderr);
    let numbers: BTreeMap<String, u64> = serde_json::from_str(output.stdout.trim()).unwrap();
    let table = include_str!("../../userspace/capture/src/cpython/opcodes.toml");
    let start = format!("of = [3, {}]\n", python.minor());
    let version = table.split("[[version]]").find(|part| part.contains(&start));
    let version = version.unwrap_or_else(|| panic!("the table has no CPython 3.{}", python.minor()));
    let lines = version.lines().filter_map(|line| line.split_once(" = ")).filter_map(|(name, number)| {
        let number: u64 = number.parse().ok()?;
        Some((name, number))
    });
    let mut compared = 0;
    for (name, number) in lines {
        // An interpreter without its headers may not list every instruction.
        if let Some(own) = numbers.get(name) {
            assert_eq!(*own, number, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 3, "{compared} numbers compared");
}

fn chosen(python: &Python) {
    let expected = expected(python);
    let recording = watched(python, "eval=__main__:Node.method,every_call:generator,every_call.py:no_such_function");
    let counted = counted(&recording, FILE);
    let names: Vec<&str> = counted.keys().map(|(name, _)| name.rsplit('.').next().unwrap()).collect();
    let all = json::list(&recording.report, "/calls");
    assert_eq!(all.len(), counted.len(), "{all:#?}");
    // Before 3.11 the class of a method is unknown.
    assert!(names.contains(&"method") && names.contains(&"generator"), "{names:?}");
    assert!(names.iter().all(|name| ["method", "generator"].contains(name)), "{names:?}");
    assert_eq!(of(&counted, "generator"), of(&expected, "generator"));
}

/// A program whose functions take known times.
const TIMES: &str = "
import json, signal, time
spent = {'nap': [], 'outer': []}
def nap(seconds):
    time.sleep(seconds)
def outer(count):
    for _ in range(count):
        nap(0.01)
def generator():
    time.sleep(0.02)
    yield 1
    time.sleep(0.03)
    yield 2
def failing():
    time.sleep(0.01)
    raise ValueError
def measured(function, *arguments):
    start = time.perf_counter()
    try:
        function(*arguments)
    except ValueError:
        pass
    spent.setdefault(function.__name__, []).append(time.perf_counter() - start)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('ready', flush=True)
signal.sigwait([signal.SIGUSR1])
for _ in range(10):
    measured(nap, 0.02)
    measured(outer, 5)
    measured(failing)
steps = generator()
next(steps)
time.sleep(0.1)
list(steps)
time.sleep(0.5)
print(json.dumps({name: [sum(times), max(times)] for name, times in spent.items() if times}))
";

fn times(python: &Python) {
    let mut program = Workload::start(python.inline(TIMES));
    program.wait_for("ready");
    let recording = Record::new().pid(program.pid()).argument("--probe").argument("eval=__main__:*").start();
    program.signal(libc::SIGUSR1);
    let measured = json::parse(program.wait().stdout.lines().last().unwrap());
    let recording = recording.wait();
    let row = |function: &str| {
        let rows = json::list(&recording.report, "/calls");
        let found = rows.iter().find(|row| row["function"] == function);
        found.unwrap_or_else(|| panic!("{function} is not among {rows:#?}")).clone()
    };
    for function in ["outer", "failing"] {
        let row = row(function);
        assert_eq!(row["count"], 10);
        let known = |index: usize| measured[function][index].as_f64().unwrap();
        compare::within(&format!("seconds in {function}"), known(0), json::number(&row, "/total_s"), 0.02);
        compare::within(&format!("longest {function}"), known(1), json::number(&row, "/max_s"), 0.05);
    }
    assert_eq!(row("nap")["count"], 60);
    // Each resumption is timed by itself, without the sleep between them.
    let generator = row("generator");
    assert_eq!(generator["count"], 3);
    compare::within("seconds in the generator", 0.05, json::number(&generator, "/total_s"), 0.1);
}

/// Children are forked while their parent is watched, and wait until they are watched too.
const CHILDREN: &str = "
import os, signal, sys, time
def work(count):
    for _ in range(count):
        step()
def step():
    pass
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('ready', flush=True)
signal.sigwait([signal.SIGUSR1])
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        time.sleep(1)
        work(1000 * (number + 1))
        time.sleep(0.5)
        os._exit(0)
    children.append(child)
work(500)
for child in children:
    os.waitpid(child, 0)
";

fn children(python: &Python) {
    let mut program = Workload::start(python.inline(CHILDREN));
    program.wait_for("ready");
    let recording = Record::new().pid(program.pid()).argument("--probe").argument("eval=__main__:step").start();
    program.signal(libc::SIGUSR1);
    assert!(program.wait().status.success());
    let recording = recording.wait();
    let rows = json::list(&recording.report, "/calls");
    let mut counts: Vec<u64> = rows.iter().map(|row| json::count(row, "/count")).collect();
    counts.sort_unstable();
    assert_eq!(counts, [500, 1000, 2000, 3000], "{rows:#?}");
}

fn command(python: &Python) {
    let program = "
import time
def step():
    pass
time.sleep(1)
for _ in range(1234):
    step()
time.sleep(0.5)
";
    let probe = Record::new().argument("--probe").argument("+eval=__main__:step");
    let recording = probe.command(python.inline(program)).run();
    let rows = json::list(&recording.report, "/calls");
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert_eq!((&rows[0]["function"], &rows[0]["count"]), (&"step".into(), &1234.into()), "{rows:#?}");
}

/// A program that does nothing but call functions.
const BUSY: &str = "
import signal, time
def leaf(value):
    return value
def branch(value):
    return leaf(value) + leaf(value)
def main(seconds):
    end = time.time() + seconds
    while time.time() < end:
        for value in range(1000):
            branch(value)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('ready', flush=True)
signal.sigwait([signal.SIGUSR1])
main(15)
";

fn busy(python: &Python, arguments: &[&str]) -> Recording {
    let mut program = Workload::start(python.inline(BUSY));
    program.wait_for("ready");
    let mut record = Record::new().pid(program.pid());
    for argument in arguments {
        record = record.argument(*argument);
    }
    let recording = record.start();
    program.signal(libc::SIGUSR1);
    recording.wait()
}

fn shed(recording: &Recording) -> Vec<&str> {
    let sentences = json::list(&recording.report, "/cost/shed").iter().filter_map(Value::as_str);
    sentences.filter(|sentence| sentence.contains("calls cost more than")).collect()
}

/// Inside a window every call counts. A function that is called twice as often is counted twice as often, except for
/// the calls that a window's ends cut off.
fn windows(python: &Python) {
    let recording = busy(python, &["--probe", "eval"]);
    let counted = counted(&recording, "<string>");
    let (leaf, branch) = (of(&counted, "leaf"), of(&counted, "branch"));
    assert!(branch > 1000, "{counted:?}");
    compare::close("calls of leaf for one of branch", 2.0, leaf as f64 / branch as f64, 0.01);
    let cost = json::number(&recording.report, "/cost/bpf_s");
    let length = json::number(&recording.report, "/recording/duration_s");
    eprintln!("  {leaf} calls of leaf; {cost:.3} s of {length:.1} s; {:?}", shed(&recording));
    // The budget is one percent of all CPUs.
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    assert!(cost < 0.02 * cpus * length, "calls cost {cost} s of {length} s");
    assert!(!shed(&recording).is_empty(), "gaps were not reported");
}

fn bound(python: &Python) {
    let recording = busy(python, &["--probe", "eval=__main__:branch", "--budget", "2"]);
    let counted = counted(&recording, "<string>");
    assert_eq!(counted.len(), 1, "{counted:?}");
    assert!(of(&counted, "branch") > 1000, "{counted:?}");
    assert!(!shed(&recording).is_empty(), "gaps were not reported");
}
