//! Tests the family `gil` against programs that know how long they waited for it.

use std::process::ExitCode;

use pyobs_tests::{Case, Python, Record, Recording, case, compare, json, needs, workload};
use serde_json::Value;

const RATE: u32 = 499;
const SECONDS: &str = "3";
const SHARE: f64 = 0.05;
/// Tolerance for sampled figures, in standard deviations.
const DEVIATIONS: f64 = 3.0;

fn main() -> ExitCode {
    let mut cases: Vec<Case> = Vec::new();
    for python in Python::all() {
        let has_gil = if python.version.ends_with('t') { Err("it has no GIL".to_owned()) } else { Ok(()) };
        let every = needs::every(python);
        let of_this = |what: &str, body: fn(&Python)| {
            let (name, python) = (format!("{}::{what}", python.name()), python.clone());
            case(name, move || body(&python)).needs(needs::root()).needs(has_gil.clone()).needs(every.clone())
        };
        cases.push(of_this("two_computing_threads_wait_for_each_other", two_compute));
        cases.push(of_this("threads_of_c_code_wait_before_their_first_frame", before_the_first_frame));
        cases.push(of_this("a_single_thread_never_waits", one_alone).needs(needs::few(python)));
        cases.push(of_this("a_reader_beside_a_computing_thread_is_a_convoy", convoy));
        cases.push(of_this("a_holder_that_sleeps_is_reported", asleep).needs(needs::few(python)));
        cases.push(of_this("without_contention_there_is_no_convoy", calm).needs(needs::few(python)));
    }
    pyobs_tests::run(cases)
}

fn record(python: &Python, mode: &str) -> (Recording, Vec<Value>) {
    let mut command = python.script(workload("gil.py"));
    command.args([mode, SECONDS]);
    let recording = Record::new().rate(RATE).command(command).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    let truth = json::parse(recording.stdout.lines().last().unwrap_or_default());
    let threads = json::list(&truth, "/threads").to_vec();
    (recording, threads)
}

/// A thread that C code made waits in `PyGILState_Ensure`. Its thread state has no frame yet.
fn before_the_first_frame(python: &Python) {
    let recording = Record::new().rate(RATE).command(python.script(workload("gil_ensure.py"))).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    let truth = json::parse(recording.stdout.lines().last().unwrap_or_default());
    let is_of_c = |row: &&Value| row["tid"] != row["pid"];
    let rows: Vec<&Value> = json::list(&recording.report, "/offcpu").iter().filter(is_of_c).collect();
    let of = |reason: &str| rows.iter().filter(|row| row["reason"] == reason).copied().collect::<Vec<_>>();
    let (gil, lock) = (seconds(&of("gil")), seconds(&of("lock")));
    let waited = json::number(&truth, "/waited_s");
    println!("  waited {waited:.3} s: {gil:.3} s for the GIL, {lock:.3} s for other locks");
    // Time for the GIL includes the way to the call, and from taking the GIL to the first instruction.
    compare::within("seconds of waits for the GIL", waited, gil, 0.1);
    assert!(lock < waited * 0.05, "{lock:.3} s for other locks");
}

fn thread<'a>(threads: &'a [Value], function: &str) -> &'a Value {
    let found = threads.iter().find(|thread| thread["function"] == function);
    found.unwrap_or_else(|| panic!("no thread runs {function}: {threads:#?}"))
}

fn waits_of<'a>(recording: &'a Recording, thread: &Value) -> Vec<&'a Value> {
    json::list(&recording.report, "/gil").iter().filter(|row| row["waiter"]["tid"] == thread["tid"]).collect()
}

fn seconds(rows: &[&Value]) -> f64 {
    rows.iter().map(|row| json::number(row, "/total_s")).sum()
}

fn convoys(recording: &Recording) -> Vec<&Value> {
    json::list(&recording.report, "/findings").iter().filter(|finding| finding["id"] == "gil/convoy").collect()
}

/// Whether the innermost Python frame is on a line of the thread's loop.
fn is_in_loop(stack: &Value, thread: &Value) -> bool {
    let mut frames = stack.as_array().into_iter().flatten();
    let innermost = frames.rfind(|frame| frame["kind"] == "python");
    innermost.is_some_and(|frame| {
        let lines = json::count(thread, "/lines/0")..=json::count(thread, "/lines/1");
        frame["function"] == thread["function"] && frame["line"].as_u64().is_some_and(|line| lines.contains(&line))
    })
}

fn two_compute(python: &Python) {
    let (recording, threads) = record(python, "two");
    for (function, other) in [("spin_a", "spin_b"), ("spin_b", "spin_a")] {
        let (waiter, holder) = (thread(&threads, function), thread(&threads, other));
        let rows = waits_of(&recording, waiter);
        let total = seconds(&rows);
        is_between(&format!("seconds that {function} waited"), total, &waiter["waited_s"]);
        let of_process = json::list(&gil_of(&recording, waiter)["gil"], "/threads");
        let wanted = of_process.iter().find(|row| row["tid"] == waiter["tid"]).expect("the thread that waits");
        is_between(
            &format!("seconds that {function} wanted it"),
            json::number(wanted, "/wanted_s"),
            &waiter["waited_s"],
        );
        let behind: Vec<&Value> = rows.iter().filter(|row| row["holder"]["tid"] == holder["tid"]).copied().collect();
        let taking = |row: &&Value| row["holder"]["stack"].as_array().is_some_and(Vec::is_empty);
        let (taking, held): (Vec<&Value>, Vec<&Value>) = behind.into_iter().partition(taking);
        let seen: Vec<&Value> = held.into_iter().filter(|row| is_in_loop(&row["holder"]["stack"], holder)).collect();
        let (seen, taking) = (seconds(&seen), seconds(&taking));
        println!("  {function} waited {total:.3} s: {seen:.3} s behind {other}, {taking:.3} s for it to take the GIL");
        // The attribution rests on a random sample of stacks.
        let stacks: u64 = rows.iter().map(|row| json::count(row, "/stacks")).sum();
        let least = total * (1.0 - SHARE - DEVIATIONS * (SHARE * (1.0 - SHARE) / stacks as f64).sqrt());
        let behind_other = seen + taking;
        assert!(behind_other >= least, "{behind_other} s are behind {other}, less than {least} s: {rows:#?}");
        compare::at_least(&format!("seconds behind a line of {other}"), seen, total * 0.75);
        let asking: Vec<&Value> =
            rows.iter().filter(|row| is_in_loop(&row["waiter"]["stack"], waiter)).copied().collect();
        compare::at_least(&format!("seconds of {function} in its loop"), seconds(&asking), least);
    }
    assert!(convoys(&recording).is_empty(), "a convoy although both threads compute: {:#?}", convoys(&recording));
    held_all_the_time(&recording, &threads);
    let all: Vec<&Value> = json::list(&recording.report, "/gil").iter().collect();
    compare::within("seconds exported", recording.exported_s("gil"), seconds(&all), 0.001);
}

/// A thread that computes holds the GIL. While it is off the CPU it may or may not hold it.
fn held_all_the_time(recording: &Recording, threads: &[Value]) {
    let sum = |key: &str| threads.iter().map(|thread| json::number(thread, key)).sum::<f64>();
    let (cpu, wall) = (sum("/cpu_s"), json::number(&threads[0], "/wall_s"));
    let gil = &gil_of(recording, &threads[0])["gil"];
    let held = json::number(gil, "/held_s");
    let most = json::number(gil, "/observed_s").min(wall + 0.5);
    assert!(
        held >= cpu * (1.0 - SHARE) && held <= most * (1.0 + SHARE),
        "the GIL was held for {held:.3} s: {cpu:.3} s of CPU time in {wall:.3} s, {gil}"
    );
    for thread in threads {
        let row = json::list(gil, "/threads").iter().find(|row| row["tid"] == thread["tid"]).cloned();
        let held = row.map_or(0.0, |row| json::number(&row, "/held_s"));
        compare::within(&format!("seconds that {thread} held it"), held, json::number(thread, "/cpu_s"), 2.0 * SHARE);
    }
}

/// The report's row of the process that has this thread.
#[track_caller]
fn gil_of<'a>(recording: &'a Recording, thread: &Value) -> &'a Value {
    let processes = json::list(&recording.report, "/processes");
    let has = |row: &&Value| json::list(row, "/threads").iter().any(|one| one["tid"] == thread["tid"]);
    processes.iter().find(has).unwrap_or_else(|| panic!("no process has the thread {thread}"))
}

#[track_caller]
fn is_between(what: &str, value: f64, bounds: &Value) {
    let (least, most) = (json::number(bounds, "/0"), json::number(bounds, "/1"));
    assert!(
        value >= least * (1.0 - SHARE) && value <= most * (1.0 + SHARE),
        "{what}: {value:.4}, but the program measured {least:.4} to {most:.4}"
    );
}

fn one_alone(python: &Python) {
    let (recording, threads) = record(python, "single");
    let rows: Vec<&Value> = json::list(&recording.report, "/gil").iter().collect();
    assert!(seconds(&rows) < 0.02, "a wait without another thread: {rows:#?}");
    assert!(convoys(&recording).is_empty(), "{:#?}", convoys(&recording));
    held_all_the_time(&recording, &threads);
}

fn convoy(python: &Python) {
    let (recording, threads) = record(python, "convoy");
    let (reader, computer) = (thread(&threads, "byte_by_byte"), thread(&threads, "spin_a"));
    let waits = waits_of(&recording, reader);
    is_between("seconds that byte_by_byte waited", seconds(&waits), &reader["waited_s"]);
    let found = convoys(&recording);
    let [finding] = found[..] else { panic!("expected one finding, got {found:#?}; {:#}", gil_of(&recording, reader)) };
    assert_eq!(finding["evidence"]["waiter_tid"], reader["tid"], "{finding:#}");
    assert_eq!(finding["evidence"]["holder_tid"], computer["tid"], "{finding:#}");
    let line =
        |text: &Value| text.as_str().and_then(|text| text.trim_end_matches(')').rsplit(':').next()?.parse().ok());
    for (key, of) in [("waiter_line", reader), ("holder_line", computer)] {
        let lines = json::count(of, "/lines/0")..=json::count(of, "/lines/1");
        let named: Option<u64> = line(&finding["evidence"][key]);
        assert!(named.is_some_and(|line| lines.contains(&line)), "{key} is not in {lines:?}: {finding:#}");
    }
}

fn asleep(python: &Python) {
    let (recording, threads) = record(python, "asleep");
    let (waiter, holder) = (thread(&threads, "now_and_then"), thread(&threads, "asleep_with_it"));
    let found = convoys(&recording);
    let [finding] = found[..] else { panic!("expected one finding, got {found:#?}; {:#}", gil_of(&recording, waiter)) };
    assert_eq!(finding["evidence"]["waiter_tid"], waiter["tid"], "{finding:#}");
    assert_eq!(finding["evidence"]["holder_tid"], holder["tid"], "{finding:#}");
    let detail = json::text(finding, "/detail");
    assert!(detail.contains("in code that keeps the GIL") && !detail.contains("switch interval ("), "{detail}");
}

fn calm(python: &Python) {
    let (recording, threads) = record(python, "calm");
    assert!(convoys(&recording).is_empty(), "{:#?}", convoys(&recording));
    let wall = json::number(&threads[0], "/wall_s");
    let waits: Vec<&Value> = threads.iter().flat_map(|thread| waits_of(&recording, thread)).collect();
    assert!(seconds(&waits) < wall * SHARE, "waits without contention: {waits:#?}");
}
