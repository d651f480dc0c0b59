//! Tests threads and sub-interpreters of all origins on every interpreter.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::fs;
use std::process::ExitCode;

use pyobs_tests::{
    Case, Folder, Python, Record, Recording, Stack, Workload, case, compare, json, needs, shared_library, workload,
};
use serde_json::Value;

const RATE: u32 = 999;

fn main() -> ExitCode {
    let mut cases = Vec::new();
    for python in Python::all() {
        cases.push(threads(python, false));
        cases.push(sub_interpreters(python, "itself", &["_interpreters", "_xxsubinterpreters", "_testcapi"]));
        cases.push(sub_interpreters(python, "another", &["_interpreters", "_xxsubinterpreters"]));
    }
    if let Some(python) = Python::all().iter().rfind(|python| python.root.is_none()) {
        cases.push(threads(python, true));
        cases.push(sleeping(python));
    }
    pyobs_tests::run(cases.into_iter().map(Case::beside).collect())
}

/// Tests threads of Python, of C code that calls Python, and one that never does.
fn threads(python: &Python, with_native: bool) -> Case {
    let python = python.clone();
    let what = if with_native {
        "a_thread_outside_python_is_not_a_failure"
    } else {
        "every_thread_has_its_own_stacks_and_name"
    };
    let name = format!("{}::{what}", python.name());
    let body = move || {
        let folder = Folder::new();
        let mut command = python.script(workload("threads.py"));
        command.arg("0.5");
        if with_native {
            command.arg(shared_library(&workload("native.c"), &folder));
        }
        let recording = Record::new().rate(RATE).command(command).run();
        assert!(recording.status.success(), "{}", recording.stderr);
        let truth = json::parse(recording.stdout.lines().last().unwrap());
        for thread in json::list(&truth, "/threads") {
            is_as_the_program_says(&recording, thread, &truth);
        }
        recording.lost_only_what_died(0.05);
    };
    let case = case(name, body).needs(needs::root());
    if with_native { case.needs(needs::program("cc")) } else { case }
}

const SLEEPERS: &str = "
import threading, time
for number in range(5): threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
print('ready', flush=True)
time.sleep(300)
";

/// Threads that do nothing while they are watched must still be in the report, as `/proc` lists them.
fn sleeping(python: &Python) -> Case {
    let python = python.clone();
    let body = move || {
        let mut program = Workload::start(python.inline(SLEEPERS));
        program.wait_for("ready");
        let recording = Record::new().argument("--probe").argument("cpu").pid(program.pid()).seconds(1.0).run();
        let known = fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap();
        let mut known: Vec<u64> =
            known.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
        let threads = json::list(recording.process(program.pid()), "/threads").iter();
        let mut reported: Vec<u64> = threads.map(|thread| json::count(thread, "/tid")).collect();
        known.sort_unstable();
        reported.sort_unstable();
        assert_eq!(reported, known, "{}", recording.stderr);
    };
    case("threads_that_always_sleep_are_known", body).needs(needs::root())
}

fn is_as_the_program_says(recording: &Recording, thread: &Value, truth: &Value) {
    let tid = json::count(thread, "/tid");
    let stacks = recording.stacks_selected(&["--tid", &tid.to_string()]);
    let own = thread["function"].as_str();
    let samples = |wanted: &dyn Fn(&Stack) -> bool| -> u64 {
        stacks.iter().filter(|stack| wanted(stack)).map(|stack| stack.samples).sum()
    };
    for other in json::list(truth, "/threads").iter().filter_map(|other| other["function"].as_str()) {
        if own != Some(other) {
            assert_eq!(samples(&|stack| stack.has(other)), 0, "{other} was sampled in the thread {thread}");
        }
    }
    let seen = match own {
        Some(function) => samples(&|stack| stack.has(function)),
        None => {
            assert_eq!(
                samples(&|stack| !stack.python().is_empty()),
                0,
                "Python frames in the thread {thread}: {stacks:#?}"
            );
            samples(&|_| true)
        }
    };
    compare::at_least(
        &format!("samples of {thread}"),
        seen as f64,
        json::number(thread, "/cpu_s") * f64::from(RATE) * 0.5,
    );

    let rows = json::list(&recording.report, "/processes/0/threads");
    let row = rows.iter().find(|row| row["tid"] == tid).unwrap_or_else(|| panic!("no thread {tid} in {rows:#?}"));
    assert_eq!(row["name"], thread["name"], "the name of the thread {thread}");
    // Each folded stack is rounded separately.
    let of_row = json::number(row, "/cpu_s") * f64::from(RATE);
    compare::at_least("CPU time of the thread's row, in samples", of_row, seen as f64 * 0.97);
}

/// Tests sub-interpreters run by the thread that made them, or by another.
fn sub_interpreters(python: &Python, maker: &'static str, modules: &[&str]) -> Case {
    let python = python.clone();
    let maker_thread = if maker == "itself" { "the_thread_itself" } else { "another_thread" };
    let name = format!("{}::sub_interpreters_made_by_{maker_thread}_are_seen", python.name());
    let can = modules.iter().any(|module| python.imports(&[module]));
    let has = if can { Ok(()) } else { Err(format!("it has none of the modules {}", modules.join(", "))) };
    let body = move || {
        let mut command = python.script(workload("subinterpreters.py"));
        command.args(["0.5", maker]);
        let recording = Record::new().rate(RATE).command(command).run();
        assert!(recording.status.success(), "{}", recording.stderr);
        let stacks = recording.stacks();
        let (mut seen, mut subs) = (0, 0);
        for truth in recording.stdout.lines().map(json::parse) {
            let known: Vec<&str> = json::list(&truth, "/functions").iter().map(|name| name.as_str().unwrap()).collect();
            let as_known = |stack: &&Stack| {
                let functions: Vec<&str> = stack.python().iter().map(|frame| frame.0).collect();
                functions.ends_with(&known)
                    && functions.iter().filter(|name| known.contains(name)).count() >= known.len()
            };
            let samples: u64 = stacks.iter().filter(as_known).map(|stack| stack.samples).sum();
            let least = json::number(&truth, "/cpu_s") * f64::from(RATE) * 0.5;
            compare::at_least(&format!("samples of {truth}"), samples as f64, least);
            seen += samples;
            subs += 1;
        }
        assert_eq!(subs, 2, "{}", recording.stdout);
        assert!(
            stacks.iter().any(|stack| stack.has("in_main_interpreter")),
            "the main interpreter was not sampled: {seen}"
        );
        recording.lost_only_what_died(0.05);
    };
    case(name, body).needs(needs::root()).needs(has)
}
