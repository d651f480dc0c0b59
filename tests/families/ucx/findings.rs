//! Findings on UCXX itself: a program that provokes each (workloads/ucxx_findings.py), and the same program done right.

use pyobs_tests::{Case, Recording, case, command, json, needs, workload};
use serde_json::Value;

use super::{interpreter, record};

/// The program's scene, the finding, and a check of the finding's details.
type Scene = (&'static str, &'static str, fn(&Recording, &Value));

const SCENES: [Scene; 7] = [
    ("polls", "ucx/busy-poll", polls),
    ("hogs", "ucx/slow-notify", hogs),
    ("grows", "ucx/queue-grows", grows),
    ("connects", "ucx/gil-on-progress-thread", connects),
    ("resends", "ucx/resend", resends),
    ("leaves", "ucx/unfinished", leaves),
    ("killed", "ucx/unfinished", killed),
];
/// The shortest scenes.
const QUICK: [&str; 3] = ["resends", "leaves", "killed"];

pub(super) fn cases() -> Vec<Case> {
    let of = |(scene, id, says): Scene| {
        [true, false].map(|is_provoked| {
            let name = format!("{scene}_{}", if is_provoked { "is_found" } else { "done_right_is_not_found" });
            let case = case(&name, move || played(scene, is_provoked, id, says));
            let case = case.needs(needs::root()).needs(interpreter());
            if QUICK.contains(&scene) { case } else { case.needs(needs::all()) }
        })
    };
    SCENES.into_iter().flat_map(of).collect()
}

fn played(scene: &str, is_provoked: bool, id: &str, says: fn(&Recording, &Value)) {
    let mut python = command(interpreter().unwrap());
    python.args(["-B", "-u"]).arg(workload("ucxx_findings.py"));
    python.args([scene, if is_provoked { "provoked" } else { "honest" }]);
    let recording = record("cpu,ucx,gil").command(python).run();
    assert!(recording.stdout.contains("done"), "{}{}", recording.stdout, recording.stderr);
    let findings = json::list(&recording.report, "/findings");
    let found: Vec<&Value> = findings.iter().filter(|finding| finding["id"] == id).collect();
    match (&found[..], is_provoked) {
        ([finding], true) => says(&recording, finding),
        ([], false) => {}
        _ => panic!("{findings:#?}"),
    }
}

/// The finding's thread in the list of workers.
fn worker<'report>(recording: &'report Recording, finding: &Value, role: &str) -> &'report Value {
    let tid = json::count(finding, "/evidence/tid");
    let workers = json::list(&recording.report, "/workers");
    let own = workers.iter().find(|worker| json::count(worker, "/tid") == tid);
    let own = own.unwrap_or_else(|| panic!("{finding:#}{workers:#?}"));
    assert_eq!(own["role"], role, "{own:#}");
    own
}

/// The progress thread is set to poll, although one message is sent in five seconds.
fn polls(recording: &Recording, finding: &Value) {
    assert_eq!(worker(recording, finding, "progress")["mode"], "thread-polling");
    assert!(json::number(finding, "/evidence/busy") > 0.9, "{finding:#}");
}

/// The holder of the GIL is the function that runs in the event loop for 20 ms at a time.
fn hogs(recording: &Recording, finding: &Value) {
    let workers = json::list(&recording.report, "/workers");
    let notifier = workers.iter().find(|worker| worker["role"] == "notifier").unwrap();
    assert!(json::number(notifier, "/gil_wait_s") > 0.02, "{notifier:#}");
    assert!(json::text(finding, "/evidence/holder_line").starts_with("burn ("), "{finding:#}");
    // The event loop runs Python code; the progress thread runs C++.
    let python = |role: &str| {
        let shares = workers.iter().filter(|worker| worker["role"] == role).filter_map(|it| it["python"].as_f64());
        shares.fold(0.0, f64::max)
    };
    assert!(python("event_loop") > 0.2, "{workers:#?}");
    assert!(python("progress") < 0.05, "{workers:#?}");
    assert!(json::count(finding, "/evidence/wakes") >= 80, "{finding:#}");
}

/// 200 sends and as many receives at once, after one of each.
fn grows(recording: &Recording, finding: &Value) {
    let last = json::count(finding, "/evidence/last");
    assert!((32..=400).contains(&last), "{finding:#}");
    assert!(json::count(finding, "/evidence/first") <= 4, "{finding:#}");
    // How many were registered but not submitted, by the transfers' own times.
    let mut changes = Vec::new();
    for transfer in json::list(&recording.report, "/transfers").iter().filter(|it| it["delayed"] == true) {
        changes.push((json::number(transfer, "/registered_s"), 1));
        changes.push((json::number(transfer, "/submitted_s"), -1));
    }
    changes.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let mut depth = 0_i64;
    let depths = changes.iter().map(|(_, change)| {
        depth += change;
        depth.unsigned_abs()
    });
    let depths: Vec<u64> = depths.collect();
    let deepest = |part: &[u64]| part.iter().copied().max();
    assert_eq!(deepest(&depths[depths.len() - depths.len() / 4..]), Some(last), "{finding:#}");
    let workers = json::list(&recording.report, "/workers").iter();
    assert_eq!(workers.map(|worker| json::count(worker, "/queue_max")).max(), deepest(&depths));
    let queues = json::list(&recording.report, "/transfer_queues").iter();
    let reported = queues.flat_map(|queue| json::list(queue, "/depths")).filter_map(Value::as_u64);
    assert_eq!(reported.max(), deepest(&depths));
}

/// UCX calls Python for each of 40 connections, while two threads compute.
fn connects(recording: &Recording, finding: &Value) {
    let progress = worker(recording, finding, "progress");
    assert!(json::number(progress, "/gil_wait_s") > 0.0, "{progress:#}");
    assert!(json::count(finding, "/evidence/waits") >= 40, "{finding:#}");
    // UCX's callback for a new connection.
    let line = json::text(finding, "/evidence/line");
    assert!(line.starts_with("ucp_cm_server_conn_request_progress ("), "{finding:#}");
}

fn resends(_: &Recording, finding: &Value) {
    let evidence = ["/evidence/sends", "/evidence/bytes"].map(|key| json::count(finding, key));
    assert_eq!(evidence, [6, 65536], "{finding:#}");
}

fn leaves(_: &Recording, finding: &Value) {
    let evidence = ["/evidence/unfinished", "/evidence/bytes"].map(|key| json::count(finding, key));
    assert_eq!(evidence, [1, 4321], "{finding:#}");
}

/// SIGKILL ends the program a third of a second after it requested its transfers.
fn killed(recording: &Recording, finding: &Value) {
    let evidence = ["/evidence/unfinished", "/evidence/bytes"].map(|key| json::count(finding, key));
    assert_eq!(evidence, [3, 4321 + 1234 + (4 << 20)], "{finding:#}");
    let line = json::text(finding, "/evidence/line");
    // Tasks of the event loop requested them. The only line of the program in their stacks is the one that runs the loop.
    assert!(line.starts_with("<module> (") && line.contains("ucxx_findings.py:"), "{line}");
    let summary = json::text(finding, "/summary");
    assert!(summary.contains("2 tag_recv") && summary.contains("1 tag_send"), "{summary}");
    let open = json::list(&recording.report, "/transfers").iter().filter(|it| it["completed_s"].is_null());
    let mut open: Vec<(&str, u64)> = open.map(|it| (json::text(it, "/operation"), json::count(it, "/bytes"))).collect();
    open.sort_unstable();
    assert_eq!(open, [("tag_recv", 1234), ("tag_recv", 4321), ("tag_send", 4 << 20)]);
}
