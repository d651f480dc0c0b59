//! Tests processes that start, end and change faster than pyobs can examine them.

use std::collections::{BTreeMap, BTreeSet};

use pyobs_tests::{Case, Folder, Record, Recording, Workload, case, command, json, needs, workload};
use serde_json::Value;

use crate::garbage::outcomes;
use crate::python;
use crate::verb::is_calm;

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("churn/a_process_that_executes_over_and_over_is_followed", || {
            let mut looping = python().unwrap().script(workload("fault_exec_loop.py"));
            looping.arg("40");
            let recording = Record::new().rate(999).command(looping).run();
            assert!(recording.status.success(), "{recording:?}");
            is_calm(&recording.stderr);
            assert_eq!(recording.stdout, "done\n");
            // 40 images of 50 ms of CPU each.
            let samples = samples_of(&recording.report, "hot_in_every_image");
            let expected = 40.0 * 0.05 * 999.0;
            assert!(samples > expected * 0.8, "{samples} of {expected} samples: {:#}", recording.report["stacks"]);
        }),
        case("churn/a_thousand_short_processes_do_no_harm", || {
            let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
            spin.wait_for("ready");
            let mut shell = command("sh");
            shell.args(["-c", "for i in $(seq 1000); do /bin/true; done; echo through"]);
            let running = Record::new().rate(499).start();
            let mut burst = Workload::start(shell);
            burst.wait_for("through");
            let recording = running.stop();
            assert!(recording.status.success(), "{recording:?}");
            is_calm(&recording.stderr);
            let outcomes = outcomes(&recording).remove(&spin.pid()).unwrap_or_default();
            let (all, complete) = (outcomes.values().sum::<u64>(), outcomes.get("complete").copied().unwrap_or(0));
            assert!(all > 20 && complete * 100 >= all * 99, "samples of an unrelated program: {outcomes:?}");
        }),
        case("churn/the_command_may_be_a_burst_itself", || {
            let mut shell = command("sh");
            shell.args(["-c", "for i in $(seq 1000); do /bin/true; done; exit 42"]);
            let recording = Record::new().command(shell).run();
            assert_eq!(recording.status.code(), Some(42), "{recording:?}");
            is_calm(&recording.stderr);
        }),
        case("churn/three_hundred_children_at_once_are_all_named", || {
            let mut children = python().unwrap().script(workload("fault_children.py"));
            children.arg("300");
            let recording = Record::new().rate(499).command(children).run();
            assert!(recording.status.success(), "{recording:?}");
            is_calm(&recording.stderr);
            let pids: BTreeSet<u64> = recording.stdout.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
            assert_eq!(pids.len(), 300);
            let hot: BTreeSet<u64> =
                rows_of(&recording.report, "hot_in_a_child").map(|row| json::count(row, "/pid")).collect();
            let missing = pids.difference(&hot).count();
            assert_eq!(
                missing, 0,
                "{missing} of 300 children have no samples of their common function: {:#}",
                recording.report["loss"]
            );
            let named =
                json::list(&recording.report, "/processes").iter().filter(|process| process["python"].is_string());
            assert!(named.count() > 300, "some are not known to be Python");
        })
        .needs(needs::all()),
        case("churn/a_script_that_is_rewritten_and_deleted_keeps_its_lines", || {
            let folder = Folder::new();
            let mut rewritten = python().unwrap().script(workload("fault_rewritten.py"));
            rewritten.arg(&*folder);
            let mut rewritten = Workload::start(rewritten);
            rewritten.wait_for("ready");
            assert!(!folder.join("rewritten.py").exists());
            let recording = Record::new().rate(499).pid(rewritten.pid()).seconds(2.0).run();
            is_calm(&recording.stderr);
            let lines: BTreeSet<u64> = rows_of(&recording.report, "hot_of_the_old_file")
                .filter_map(|row| row["frame"]["line"].as_u64())
                .collect();
            assert!(lines.contains(&6) && lines.iter().all(|line| (4..=6).contains(line)), "{lines:?}");
            is_whole(&recording, &["hot_of_the_old_file"]);
        }),
        case("churn/code_in_freed_memory_does_not_get_the_old_name", || {
            let folder = Folder::new();
            let log = folder.join("slots.txt");
            let mut slots = python().unwrap().script(workload("fault_slots.py"));
            slots.arg(&log).arg("alike");
            let mut slots = Workload::start(slots);
            slots.wait_for("ready");
            let slots_so_far = || std::fs::read_to_string(&log).unwrap().lines().count();
            let running = Record::new().rate(499).pid(slots.pid()).start();
            let before = slots_so_far();
            std::thread::sleep(std::time::Duration::from_secs(4));
            let between = slots_so_far() - before;
            let recording = running.stop();
            let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
            for row in json::list(&recording.report, "/frames") {
                let function = json::text(row, "/frame/function");
                if function.starts_with("slot_") {
                    *seen.entry(function).or_default() += json::count(row, "/total");
                }
            }
            let (all, most) = (seen.values().sum::<u64>(), seen.values().max().copied().unwrap_or(0));
            let lost = &recording.report["loss"];
            let shown = format!("of {between} slots of about equal length: {seen:?}, lost {lost}");
            // A frame without a known name must count as a loss with a reason, and every reported name must be right.
            assert!(seen.len() + 1 >= between || lost.as_object().is_some_and(|lost| !lost.is_empty()), "{shown}");
            assert!(most * 4 < all, "one slot has the samples of others: {shown}");
        }),
        case("churn/two_recordings_see_the_same_process", || {
            let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
            spin.wait_for("ready");
            let first = Record::new().rate(499).pid(spin.pid()).seconds(4.0).start();
            let second = Record::new().rate(499).pid(spin.pid()).seconds(3.0).start();
            for recording in [second.wait(), first.wait()] {
                assert!(recording.status.success(), "{recording:?}");
                is_calm(&recording.stderr);
                is_whole(&recording, &["hot_function"]);
                let samples = json::count(&recording.report, "/stacks/samples");
                assert!(samples > 100, "only {samples} samples");
            }
        }),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python())).collect()
}

fn rows_of<'a>(report: &'a Value, function: &'a str) -> impl Iterator<Item = &'a Value> {
    json::list(report, "/frames").iter().filter(move |row| row["frame"]["function"] == function)
}

fn samples_of(report: &Value, function: &str) -> f64 {
    rows_of(report, function).map(|row| json::number(row, "/total")).sum()
}

/// Asserts that nearly all Python samples are complete, and that they contain these functions.
#[track_caller]
fn is_whole(recording: &Recording, functions: &[&str]) {
    let stacks = &recording.report["stacks"];
    let (samples, complete) = (json::number(stacks, "/samples"), json::number(stacks, "/complete"));
    assert!(complete >= samples * 0.99, "{stacks:#}");
    for function in functions {
        assert!(
            rows_of(&recording.report, function).next().is_some(),
            "there is no {function}: {:#}",
            recording.report["frames"]
        );
    }
}
