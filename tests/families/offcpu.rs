//! Tests the family `offcpu` against programs that know their own waits.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use pyobs_tests::{Case, Python, Record, Workload, case, compare, json, needs, workload};
use serde_json::Value;

/// The scenarios that run on every interpreter.
const COMMON: [&str; 4] = ["sleep", "lock", "queue_get", "pipe"];
const OTHERS: [&str; 8] =
    ["event_with_timeout", "socket_recv", "socket_with_timeout", "selected", "polled", "epolled", "child", "fsync"];
const SHARE: f64 = 0.05;
/// Shorter waits are within the error of measurement.
const LEAST_S: f64 = 0.005;

fn main() -> ExitCode {
    let mut cases: Vec<Case> = Python::all().iter().map(common).collect();
    for version in ["3.8", "3.12"] {
        let python = needs::python(version);
        let of_this = |name: &str, body: fn(&Python)| {
            let (python, name) = (python.clone(), format!("python{version}::{name}"));
            case(name, {
                let python = python.clone();
                move || body(&python.clone().unwrap())
            })
            .needs(needs::root())
            .needs(python)
        };
        cases.extend(python.iter().flat_map(|python| OTHERS.map(|scenario| waits(python, scenario, vec![scenario]))));
        cases.push(of_this("kernel_frames_match_what_the_kernel_shows", kernel_frames_match).needs(kernel_stacks()));
        cases.push(of_this("ten_thousand_short_sleeps_add_up", |python| check(python, &["short_sleeps"])));
        cases.push(of_this("a_thread_that_keeps_sleeping_is_reported", sleeps_on));
        cases.push(of_this("a_thread_that_sleeps_until_the_program_ends_is_reported", sleeps_to_the_end));
        cases.push(of_this("totals_are_exact_when_stacks_are_shed", exact_totals));
        cases.push(of_this("a_place_with_many_stacks_gives_fewer", few_stacks).needs(once(version)));
        cases.push(of_this("equal_lines_have_equal_shares_beside_noisy_sleepers", equal_lines).needs(once(version)));
    }
    pyobs_tests::run(cases)
}

/// Cases that take up to twenty seconds run with one version by default.
fn once(version: &str) -> Result<(), String> {
    if version == "3.12" { Ok(()) } else { needs::all() }
}

/// Needs CONFIG_STACKTRACE.
fn kernel_stacks() -> Result<(), String> {
    fs::read("/proc/self/stack").map(drop).map_err(|error| format!("the kernel shows no stacks of threads: {error}"))
}

fn common(python: &Python) -> Case {
    waits(python, "common", COMMON.to_vec()).needs(needs::few(python))
}

fn waits(python: &Python, what: &str, scenarios: Vec<&'static str>) -> Case {
    let name = format!("{}::waits_match_what_the_program_measured::{what}", python.name());
    let python = python.clone();
    case(name, move || check(&python, &scenarios)).needs(needs::root())
}

fn check(python: &Python, scenarios: &[&str]) {
    let mut command = python.script(workload("waits.py"));
    command.args(scenarios);
    let recording = Record::new().argument("--probe").argument("offcpu,gil").command(command).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    let truth = json::parse(recording.stdout.lines().last().unwrap_or_default());
    let rows = json::list(&recording.report, "/offcpu");
    let waits = json::list(&truth, "/waits");
    assert_eq!(waits.len(), scenarios.len());
    let wrong: Vec<String> = waits.iter().flat_map(|wait| differences(rows, wait)).collect();
    assert!(wrong.is_empty(), "{}\nloss: {}", wrong.join("\n"), recording.report["loss"]);
    let reported = seconds(&rows.iter().collect::<Vec<_>>());
    compare::within("seconds exported", recording.exported_s("offcpu"), reported, 0.001);
}

/// Four lines that sleep in turn, beside threads that sleep all the time. Each thread prints how long it slept: at
/// least the time in which it neither ran nor was ready to, by the kernel's account, and at most the time in the calls,
/// by its clock. The first also prints the time at each line.
const FOUR: &str = "\
import json, sys, threading, time
SECONDS = float(sys.argv[1])
slept, at_line = {}, [0.0] * 4
def account():
    ran, ready = open('/proc/thread-self/schedstat').read().split()[:2]
    return time.monotonic() - (int(ran) + int(ready)) / 1e9
def four(end):
    while time.monotonic() < end:
        turn = [time.monotonic()]
        time.sleep(0.0005)
        turn.append(time.monotonic())
        time.sleep(0.0005)
        turn.append(time.monotonic())
        time.sleep(0.0005)
        turn.append(time.monotonic())
        time.sleep(0.0005)
        turn.append(time.monotonic())
        for n in range(4): at_line[n] += turn[n + 1] - turn[n]
    return sum(at_line)
def noisy(end):
    called = 0
    while time.monotonic() < end:
        called -= time.monotonic()
        time.sleep(0.00005)
        called += time.monotonic()
    return called
def run(body):
    since = account()
    called = body(time.monotonic() + SECONDS)
    slept[threading.get_native_id()] = [account() - since, called]
threads = [threading.Thread(target=run, args=(body,)) for body in [four] + 3 * [noisy]]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({'slept': slept, 'four': threads[0].native_id, 'at_line': at_line}))
";
/// Shares must be right within this, or within what the number of stacks allows for.
const POINTS: f64 = 0.03;
/// By chance, one of 2000 such figures is further off.
const DEVIATIONS: f64 = 3.5;
const EXACT: f64 = 0.02;

fn four(python: &Python, budget: &[&str], seconds: &str) -> (Value, Value) {
    let record = budget.iter().fold(Record::new(), |record, argument| record.argument(*argument));
    let mut command = python.inline(FOUR);
    command.arg(seconds);
    let recording = record.command(command).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    (json::parse(recording.stdout.lines().last().unwrap_or_default()), recording.report)
}

fn of_thread(report: &Value, tid: u64) -> Vec<&Value> {
    json::list(report, "/offcpu").iter().filter(|row| row["tid"] == tid).collect()
}

fn equal_lines(python: &Python) {
    let (truth, report) = four(python, &[], "20");
    let tid = json::count(&truth, "/four");
    let rows: Vec<&Value> = of_thread(&report, tid).into_iter().filter(|row| row["reason"] == "sleep").collect();
    let mut lines: BTreeMap<u64, (f64, u64)> = BTreeMap::new();
    for row in &rows {
        let line = python_frames(row).next_back().map_or(0, |frame| frame["line"].as_u64().unwrap_or(0));
        let sum = lines.entry(line).or_default();
        *sum = (sum.0 + json::number(row, "/total_s"), sum.1 + json::count(row, "/stacks"));
    }
    let mut most: Vec<(u64, (f64, u64))> = lines.into_iter().filter(|(_, (total, _))| *total > 0.1).collect();
    most.sort_by_key(|(line, _)| *line);
    assert_eq!(most.len(), 4, "{most:?}");
    let (total, stacks) = most.iter().fold((0.0, 0), |sum, (_, of)| (sum.0 + of.0, sum.1 + of.1));
    let at_line: Vec<f64> = json::list(&truth, "/at_line").iter().filter_map(Value::as_f64).collect();
    let all: f64 = at_line.iter().sum();
    for ((line, (spent, of_line)), at_line) in most.iter().zip(&at_line) {
        let (share, truth) = (spent / total, at_line / all);
        let deviation = (truth * (1.0 - truth) / stacks as f64).sqrt();
        println!("  line {line}: {share:.3}, by the program's clock {truth:.3}; {of_line} of {stacks} stacks");
        compare::close(&format!("share of line {line}"), share, truth, POINTS.max(DEVIATIONS * deviation));
    }
}

/// Sleeps at one line, and prints how often.
const ONE: &str = "\
import time
end, count = time.monotonic() + 8, 0
while time.monotonic() < end:
    time.sleep(0.001)
    count += 1
print(count)
";

/// Expected are 64 stacks at full pace, then one in 80 ms: about 150. At full pace throughout there would be 400.
fn few_stacks(python: &Python) {
    let recording = Record::new().argument("--budget").argument("50").command(python.inline(ONE)).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    let rows = json::list(&recording.report, "/offcpu").iter().filter(|row| row["reason"] == "sleep");
    let (mut count, mut stacks) = (0, 0);
    for row in rows {
        (count, stacks) = (count + json::count(row, "/count"), stacks + json::count(row, "/stacks"));
    }
    let known: u64 = recording.stdout.trim().parse().unwrap();
    println!("  {stacks} stacks of {count} sleeps; the program counted {known}");
    compare::within("sleeps", count as f64, known as f64, EXACT);
    assert!((64..220).contains(&stacks), "{stacks} stacks of {count} sleeps");
}

fn exact_totals(python: &Python) {
    let (truth, report) = four(python, &["--budget", "0.01"], "8");
    let duration = json::number(&report, "/recording/duration_s");
    let threads = truth["slept"].as_object().unwrap();
    assert_eq!(threads.len(), 4);
    for (tid, slept) in threads {
        let rows = of_thread(&report, tid.parse().unwrap());
        let (total, stacks) = (seconds(&rows), rows.iter().map(|row| json::count(row, "/stacks")).sum::<u64>());
        let counted: u64 = rows.iter().map(|row| json::count(row, "/count")).sum();
        assert!(stacks < counted / 4, "nothing was shed: {stacks} stacks of {counted} sleeps");
        let (least, most) = (json::number(slept, "/0"), json::number(slept, "/1"));
        let is_right = (least * (1.0 - EXACT)..=most * (1.0 + EXACT)).contains(&total);
        assert!(is_right, "{tid} slept for {total:.4} s, but the program measured {least:.4} to {most:.4} s");
        assert!(total <= duration, "{tid} waited for {total} s of {duration} s");
        for row in rows {
            let mean = json::number(row, "/total_s") / (json::count(row, "/count").max(1) as f64);
            compare::at_least("the longest", json::number(row, "/max_s"), mean * 0.999_999);
        }
    }
}

/// Sleeps in read(2) again and again.
const READER: &str = "\
import os, threading, time
r, w = os.pipe()
def feed():
    while True:
        time.sleep(0.05)
        os.write(w, b'x')
threading.Thread(target=feed, daemon=True).start()
def wait_here(): os.read(r, 1)
print('ready', flush=True)
while True: wait_here()
";

/// The kernel's stack of a sleeping thread, leaf first, without the scheduler; empty if the kernel does not show it.
fn kernel_stack(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split(' ').nth(1)?.split('+').next());
    names.map(str::to_owned).collect()
}

fn kernel_frames_match(python: &Python) {
    let mut program = Workload::start(python.inline(READER));
    program.wait_for("ready");
    let pid = program.pid();
    // With two observers of thread switches, the kernel calls them through a function of its own.
    let another = Record::new().argument("--probe").argument("offcpu").pid(pid).seconds(2.0).start();
    let recording = Record::new().argument("--probe").argument("offcpu").pid(pid).seconds(2.0).start();
    let reads = |stack: &Vec<String>| stack.iter().any(|name| name == "ksys_read");
    let expected = (0..1000).map(|_| kernel_stack(pid)).find(reads).expect("the thread sleeps in read(2)");
    let recording = recording.wait();
    another.wait();
    program.kill();
    let rows = json::list(&recording.report, "/offcpu");
    let of_main = rows.iter().filter(|row| row["tid"] == pid && is_inside(row, "wait_here"));
    let (alike, others): (Vec<&Value>, Vec<&Value>) = of_main.partition(|row| {
        let kernel = json::list(row, "/stack").iter().rev().filter(|frame| frame["kind"] == "kernel");
        let names = kernel.map(|frame| json::text(frame, "/function"));
        names.skip_while(|name| name.contains("schedule")).eq(expected.iter().map(String::as_str))
    });
    assert!(!alike.is_empty(), "no stack is {expected:?}: {others:#?}");
    let (alike, others) = (seconds(&alike), seconds(&others));
    // The thread can also be taken off the CPU elsewhere.
    compare::at_least("seconds in the kernel's own stack", alike, (alike + others) * (1.0 - SHARE));
}

/// Describes how the rows differ from what the program measured for one of its waits.
fn differences(rows: &[Value], wait: &Value) -> Vec<String> {
    let (name, tid) = (json::text(wait, "/name"), json::count(wait, "/tid"));
    let of_it = rows.iter().filter(|row| row["tid"] == tid && is_inside(row, json::text(wait, "/inside")));
    let (rows, others): (Vec<&Value>, Vec<&Value>) =
        of_it.filter(|row| row["reason"] != "gil").partition(|row| row["reason"] == wait["reason"]);
    let mut wrong = Vec::new();
    let mut require = |is_right: bool, what: String| {
        if !is_right {
            wrong.push(format!("{name}: {what}"));
        }
    };
    let total = seconds(&rows);
    let (least, most) = (json::number(wait, "/waited_s/0"), json::number(wait, "/waited_s/1"));
    let is_right = total >= least * (1.0 - SHARE) - LEAST_S && total <= most * (1.0 + SHARE) + LEAST_S;
    require(
        is_right,
        format!("{total:.4} s for {}, but the program measured {least:.4} to {most:.4} s", wait["reason"]),
    );
    let other = seconds(&others);
    require(other <= most * SHARE + LEAST_S, format!("{other:.4} s for other reasons: {others:#?}"));

    let (at_the_line, elsewhere): (Vec<&Value>, Vec<&Value>) =
        rows.iter().partition(|row| is_innermost(row, &wait["innermost"]));
    let stray = seconds(&elsewhere);
    require(stray <= total * SHARE + LEAST_S, format!("{stray:.4} s not at {}: {elsewhere:#?}", wait["innermost"]));

    let counted: u64 = at_the_line.iter().map(|row| json::count(row, "/count")).sum();
    if let Some(count) = wait["count"].as_u64() {
        let is_right = counted.abs_diff(count) as f64 <= count as f64 * SHARE;
        require(is_right, format!("{counted} waits, not {count}"));
    }
    let wakers = || rows.iter().flat_map(|row| json::list(row, "/wakers"));
    match wait["waker"].as_u64() {
        Some(waker) => {
            let by_it: f64 = wakers().filter(|row| row["tid"] == waker).map(|row| json::number(row, "/total_s")).sum();
            let all: Vec<&Value> = wakers().collect();
            require(by_it >= total * 0.9, format!("{by_it:.4} s of {total:.4} s were ended by {waker}: {all:?}"));
        }
        None if wait["reason"] == "sleep" => {
            require(wakers().count() == 0, "a sleep that ended by time has a waker".to_owned());
        }
        None => {}
    }
    wrong
}

fn seconds(rows: &[&Value]) -> f64 {
    // Without rows, the sum would be -0.
    rows.iter().map(|row| json::number(row, "/total_s")).sum::<f64>() + 0.0
}

fn python_frames(row: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    json::list(row, "/stack").iter().filter(|frame| frame["kind"] == "python")
}

fn is_inside(row: &Value, function: &str) -> bool {
    python_frames(row).any(|frame| frame["function"] == function)
}

/// Compares with `[function, file's base name, line or null]`.
fn is_innermost(row: &Value, known: &Value) -> bool {
    python_frames(row).next_back().is_some_and(|frame| {
        let file = frame["file"].as_str().unwrap_or_default();
        frame["function"] == known[0]
            && file.rsplit('/').next() == known[1].as_str()
            && (known[2].is_null() || frame["line"] == known[2])
    })
}

/// The thread slept, awake in between, before the recording began, and sleeps on after it.
fn sleeps_on(python: &Python) {
    let mut command = python.script(workload("sleepers.py"));
    // Attaching takes longer on a busy machine, and a sleep that began before it is not seen.
    command.args(["60", "3"]);
    let mut program = Workload::start(command);
    let tids = json::parse(&program.line());
    let recording = Record::new().pid(program.pid()).seconds(6.2).run();
    let duration = json::number(&recording.report, "/recording/duration_s");
    let wrong: Vec<String> = [("main", "main"), ("other", "sleeps_on")]
        .into_iter()
        .filter_map(|(thread, function)| {
            let slept = slept(&recording.report, json::count(&tids, &format!("/{thread}")), function);
            // Nothing is counted until pyobs has attached.
            let is_right = (duration - 0.5..=duration).contains(&slept);
            (!is_right).then(|| format!("the thread {thread} slept {slept:.3} s of {duration:.3} s"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The program ends before the thread wakes.
fn sleeps_to_the_end(python: &Python) {
    let mut command = python.script(workload("sleepers.py"));
    command.args(["2.6", "0.5"]);
    let recording = Record::new().command(command).run();
    let lines: Vec<Value> = recording.stdout.lines().map(json::parse).collect();
    let slept = slept(&recording.report, json::count(&lines[0], "/other"), "sleeps_on");
    compare::within("seconds asleep", slept, json::number(&lines[1], "/slept_s"), SHARE);
}

fn slept(report: &Value, tid: u64, function: &str) -> f64 {
    let rows = json::list(report, "/offcpu").iter();
    let rows: Vec<&Value> =
        rows.filter(|row| row["tid"] == tid && row["reason"] == "sleep" && is_inside(row, function)).collect();
    seconds(&rows)
}
