//! Control groups with limits, compared with the kernel's accounts of them.

use std::fs;
use std::time::Instant;

use pyobs_tests::control_group::{self, ControlGroup};
use pyobs_tests::{Case, Record, Recording, Workload, case, compare, json, needs};
use serde_json::Value;

use super::places::{start_command_in, start_in};
use super::python;

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("time_that_a_limit_takes_away_is_a_wait_of_its_own", throttled),
        case("a_holder_of_the_gil_that_a_limit_holds_up_is_named", holder),
        case("memory_near_its_limit_is_found_and_so_are_kills", memory),
    ];
    let cases = cases.into_iter().map(|case| case.needs(control_group::root()));
    let cases = cases.chain([case("the_load_of_the_machine_has_unwatched_programs_too", load)]);
    cases.map(|case| case.needs(needs::root()).needs(needs::python("3.12"))).collect()
}

/// Seconds for which a thread ran.
fn ran_s(program: &Workload) -> f64 {
    let text = fs::read_to_string(format!("/proc/{0}/task/{0}/schedstat", program.pid())).unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Seconds that a thread waited, by whether its limit was the reason.
fn waits(recording: &Recording, tid: u32) -> (f64, f64) {
    let rows = json::list(&recording.report, "/offcpu").iter().filter(|row| row["tid"] == tid);
    rows.fold((0.0, 0.0), |(throttled, other), row| {
        let total = json::number(row, "/total_s");
        if row["reason"] == "throttled" { (throttled + total, other) } else { (throttled, other + total) }
    })
}

#[track_caller]
fn finding<'a>(recording: &'a Recording, id: &str) -> &'a Value {
    let mut found = json::list(&recording.report, "/findings").iter().filter(|finding| finding["id"] == id);
    found.next().unwrap_or_else(|| panic!("{:#}", recording.report["findings"]))
}

fn throttled() {
    let id = format!("{:064x}", std::process::id());
    let group = ControlGroup::limited(&format!("docker-{id}.scope"));
    let program = start_in(Some(&group), "computes");
    let [before, ran_before] = [group.throttled_s(), ran_s(&program)];
    let begun = Instant::now();
    let periods_before = group.throttled()[0];
    let recording = Record::new().pid(program.pid()).seconds(4.0).run();
    let [most, ran] = [group.throttled_s() - before, ran_s(&program) - ran_before];
    let share_ran = ran / begun.elapsed().as_secs_f64();
    let periods = group.throttled()[0] - periods_before;

    let duration = json::number(&recording.report, "/recording/duration_s");
    let (throttled, other) = waits(&recording, program.pid());
    compare::within("seconds throttled", throttled, duration * (1.0 - share_ran), 0.05);
    assert!(other < 0.01 * duration, "{other} s of other waits: {:#}", recording.report["offcpu"]);
    let rows = json::list(&recording.report, "/offcpu").iter().filter(|row| row["reason"] == "throttled");
    let is_named = |row: &&Value| json::list(row, "/stack").iter().any(|frame| frame["function"] == "computes");
    let named: f64 = rows.filter(is_named).map(|row| json::number(row, "/total_s")).sum();
    compare::at_least("seconds in the function that computes", named, 0.9 * throttled);

    let [limit] = json::list(&recording.report, "/limits") else { panic!("{:#}", recording.report["limits"]) };
    assert_eq!(json::text(limit, "/container/id"), id);
    assert_eq!(limit["pids"], serde_json::json!([program.pid()]));
    assert_eq!(json::number(limit, "/cpu/cpus"), 0.2);
    assert!(limit["memory"].is_null());
    let counted = json::count(limit, "/cpu/throttled_periods");
    assert!((30..=periods).contains(&counted), "{counted} of {periods} periods");
    let counted = json::number(limit, "/cpu/throttled_s");
    assert!(counted <= most && counted > 0.8 * throttled, "{counted} s of {most} s, and {throttled} s by thread");
    compare::within("seconds waited", json::number(limit, "/waited_s"), throttled, 0.001);

    let finding = finding(&recording, "container/throttled");
    assert_eq!(finding["severity"], "serious");
    assert_eq!(finding["pid"], program.pid());
    let summary = json::text(finding, "/summary");
    assert!(summary.starts_with(&format!("container {} is limited to 0.2 CPUs ", &id[..12])), "{summary}");
    assert!(json::text(finding, "/evidence/line").contains("/burn.py:"), "{finding:#}");
    assert!(recording.words().contains("throttled"), "{}", recording.words());
}

/// The main thread computes, and so holds the GIL while it is throttled.
const HOLDS: &str = "
import threading, time
def ticks():
    while True: time.sleep(0.02)
threading.Thread(target=ticks, daemon=True).start()
print('ready', flush=True)
while True: sum(range(1000))
";

fn holder() {
    let group = ControlGroup::limited("pyobs-holder");
    let program = start_command_in(Some(&group), python().inline(HOLDS));
    let recording = Record::new().pid(program.pid()).seconds(4.0).run();
    let finding = finding(&recording, "gil/convoy");
    let detail = json::text(finding, "/detail");
    assert!(detail.contains("its control group had used up its CPU limit"), "{detail}");
    assert!(json::text(finding, "/advice").contains("CPU limit"), "{finding:#}");
}

const LIMIT: u64 = 96 << 20;

/// Holds 10 MiB.
const KEEPS: &str = "
import time
kept = b'x' * (10 << 20)
print('ready', flush=True)
time.sleep(60)
";
/// Needs more than the limit.
const GROWS: &str = "
print('ready', flush=True)
kept = b'x' * (200 << 20)
";

fn memory() {
    let group = ControlGroup::with_memory("pyobs-memory", LIMIT);
    let program = start_command_in(Some(&group), python().inline(KEEPS));
    let recording = Record::new().pid(program.pid()).seconds(0.5).run();
    let [limit] = json::list(&recording.report, "/limits") else { panic!("{:#}", recording.report["limits"]) };
    assert_eq!(json::count(limit, "/memory/limit_bytes"), LIMIT);
    let used = json::count(limit, "/memory/used_bytes");
    assert!((10 << 20..40 << 20).contains(&used), "{used} bytes");
    assert!(limit["cpu"].is_null());
    assert!(json::list(&recording.report, "/findings").is_empty(), "{:#}", recording.report["findings"]);

    let running = Record::new().pid(program.pid()).seconds(3.0).start();
    let killed = start_command_in(Some(&group), python().inline(GROWS)).wait();
    assert_eq!(killed.status.code(), None, "it was not killed");
    let recording = running.wait();
    let finding = finding(&recording, "container/memory");
    assert_eq!(finding["severity"], "serious");
    assert_eq!(json::count(finding, "/evidence/limit_bytes"), LIMIT);
    assert_eq!(json::count(finding, "/evidence/killed"), 1);
    drop(program);
}

/// Seconds for which the machine's CPUs were in use: user, nice, system, irq and softirq of /proc/stat.
fn used_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let fields: Vec<f64> = stat.lines().next().unwrap().split_whitespace().skip(1).flat_map(str::parse).collect();
    // SAFETY: sysconf reads no memory of this process.
    let second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    [0, 1, 2, 5, 6].iter().map(|field| fields[*field]).sum::<f64>() / second
}

fn load() {
    let mut other = pyobs_tests::command("sh");
    other.args(["-c", "while :; do :; done"]);
    let (other, program) = (Workload::start(other), start_in(None, "watched"));
    let running = Record::new().pid(program.pid()).seconds(3.0).start();
    std::thread::sleep(std::time::Duration::from_secs(1));
    let (begun, before) = (Instant::now(), used_s());
    let recording = running.wait();
    let truth = (used_s() - before) / begun.elapsed().as_secs_f64();
    let busy = json::number(&recording.report, "/recording/machine_cpus");
    compare::within("CPUs that are busy", busy, truth, 0.1);
    let [process] = json::list(&recording.report, "/processes") else { panic!("{:#}", recording.report["processes"]) };
    let watched = json::number(process, "/cpu_s") / json::number(&recording.report, "/recording/duration_s");
    assert!(busy > watched + 0.5, "{busy} CPUs, {watched} by the watched program");
    assert!(recording.words().contains(&format!("All programs of the machine kept {busy:.2} busy.")));
    drop((other, program));
}
