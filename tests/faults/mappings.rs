//! Tests a process with more mappings than pyobs reads: every snapshot of it must end, be counted, and cost little.

use pyobs_tests::{Case, Record, Workload, case, compare, json, needs, workload};

use crate::python;

const MAPPINGS: usize = 100_000;
const SECONDS: f64 = 8.0;
/// The part of one CPU that pyobs may use, averaged over the recording, beyond start-up. Its first snapshots cost about
/// 0.3 s in a debug build.
const COST: f64 = 0.2;

pub fn cases() -> Vec<Case> {
    // These families read the map for different purposes: segments, arenas and arrays.
    let of = |name: &str, probes: &'static str, allocator: &'static str| {
        let body = move || many(probes, allocator);
        case(format!("mappings/a_hundred_thousand_of_them_cost_{name}_little"), body)
            .needs(needs::root())
            .needs(room())
            .needs(python())
    };
    vec![
        of("segments", "cpu,shm", "pymalloc"),
        of("arenas", "cpu,arena", "pymalloc"),
        of("arrays", "cpu,redundancy", "pymalloc"),
    ]
}

/// Whether the kernel's limit of mappings per process is high enough.
fn room() -> Result<(), String> {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    match text.trim().parse::<usize>() {
        Ok(most) if most > MAPPINGS + 1000 => Ok(()),
        _ => Err(format!("vm.max_map_count is {}: it takes {}", text.trim(), MAPPINGS + 1001)),
    }
}

fn many(probes: &str, allocator: &str) {
    let mut command = python().unwrap().script(workload("many_mappings.py"));
    command.args([MAPPINGS.to_string(), SECONDS.to_string()]).env("PYTHONMALLOC", allocator);
    let mut target = Workload::start(command);
    let count: usize = target.line().parse().unwrap();
    assert!(count > MAPPINGS, "{count} mappings");
    target.wait_for("ready");
    let recording = Record::new().rate(99).argument("--probe").argument(probes).pid(target.pid()).start();
    let ended = target.wait();
    let recording = recording.stop();
    let duration = json::number(&recording.report, "/recording/duration_s");
    let cost = |key: &str| json::number(&recording.report, &format!("/cost/{key}"));
    let steady = cost("bpf_s") + cost("cpu_s") - cost("startup_s");
    println!("  {probes}: {steady:.3} s, start-up {:.3} s, of {duration:.2} s", cost("startup_s"));
    println!("  lost: {}", recording.report["loss"]);
    assert!(json::count(&recording.report, "/loss/map_cut_short") > 0, "{}", recording.report["loss"]);
    assert!(steady < COST * duration, "{steady:.3} s of {duration:.3} s: {}", recording.report["cost"]);
    let spent = json::number(&json::parse(ended.stdout.lines().last().unwrap()), "/cpu_s");
    // The program began to burn while pyobs was attaching.
    let sampled: f64 = json::list(&recording.report, "/processes").iter().map(|row| json::number(row, "/cpu_s")).sum();
    compare::at_least("CPU seconds sampled", sampled, spent * 0.6);
}
