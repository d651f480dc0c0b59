//! Tests rates at which not all transfers can be reported or followed: the sums must still cover all of them.

use pyobs_tests::{Case, Recording, case, json, needs};
use serde_json::Value;

use super::strange::{Built, by_tag};
use super::{interpreter, printed, record, script};

/// The functions start with an instruction that the kernel can emulate, as in UCX, so a probe costs less than with
/// single-stepping.
const AS_BUILT: [&str; 2] = ["-fpatchable-function-entry=1", "-fcf-protection=none"];

pub(super) fn cases() -> Vec<Case> {
    let own = |name: &str, body: fn()| case(name, body).needs(needs::root()).needs(needs::program("cc"));
    let ucxx = case("many_long_transfers_of_ucxx_are_counted", window).needs(needs::root());
    vec![
        own("transfers_too_many_to_follow_are_counted", many),
        own("of_many_transfers_some_are_reported_and_all_are_counted", paced),
        own("transfers_beyond_the_budget_for_following_are_counted", within).needs(needs::compiler(&AS_BUILT)),
        own("transfers_beyond_the_budget_for_counting_are_given_up", beyond).needs(needs::compiler(&AS_BUILT)),
        ucxx.needs(interpreter()).needs(needs::all()),
    ]
}

fn sheds(recording: &Recording, words: &str) -> bool {
    let shed = json::list(&recording.report, "/cost/shed");
    shed.iter().any(|what| what.as_str().is_some_and(|what| what.contains(words)))
}

/// Sends as fast as it can for three seconds, then 800 slowly. The last of these are followed again.
fn many() {
    let recording = Built::new(&[]).run("many");
    let (called, sent) = (printed(&recording, "called"), printed(&recording, "sent"));
    let [count] = json::list(&recording.report, "/transfer_counts") else {
        panic!("{:#}", recording.report["transfer_counts"])
    };
    let unfollowed = json::count(count, "/unfollowed");
    assert_eq!((json::count(count, "/count"), json::count(count, "/bytes")), (called, sent), "{count:#}");
    assert!(unfollowed > called / 2 && unfollowed < called, "{count:#}");
    assert_eq!(recording.report["loss"], serde_json::json!({}));
    assert!(sheds(&recording, "are counted when they are submitted"), "{}", recording.report["cost"]);
    let all = json::list(&recording.report, "/transfers").iter();
    let slow = all.filter(|it| json::count(it, "/bytes") >= 2600 && it["completed_s"].is_number()).count();
    assert_eq!(slow, 200, "each of the last 200 is reported with its end");
}

/// At 7000 a second each transfer is followed: the rate lies between reporting every one and only counting.
fn paced() {
    let recording = Built::new(&[]).run("paced");
    let (called, sent) = (printed(&recording, "called"), printed(&recording, "sent"));
    let [count] = json::list(&recording.report, "/transfer_counts") else {
        panic!("{:#}", recording.report["transfer_counts"])
    };
    assert_eq!((json::count(count, "/count"), json::count(count, "/bytes")), (called, sent), "{count:#}");
    assert_eq!((json::count(count, "/failed"), json::count(count, "/immediate")), (0, 0), "{count:#}");
    assert_eq!(recording.report["loss"], serde_json::json!({}));
    let every = json::count(count, "/told_every");
    assert!(every >= 6 && sheds(&recording, &format!("one in {every} is reported singly")), "{}", recording.report);
    // The rate is known after a quarter of a second. The tags are the numbers of the sends.
    let later = by_tag(&recording, None).range(called / 2..).count() as u64;
    assert!((called / 2 / (every * 2)..called / 2 / 3).contains(&later), "{later} of {called}, {count:#}");
}

/// At 10,000 a second for eight seconds, following all of them would cost a quarter of a core.
fn fast(budget: &str) -> Recording {
    let bound = record("ucx").argument("--budget").argument(budget);
    let recording = Built::new(&AS_BUILT).run_by(bound, "fast");
    assert_eq!(printed(&recording, "called"), 80_000, "{}{}", recording.stdout, recording.stderr);
    recording
}

fn within() {
    let recording = fast("2.5");
    let (called, sent) = (printed(&recording, "called"), printed(&recording, "sent"));
    let [count] = json::list(&recording.report, "/transfer_counts") else {
        panic!("{:#}", recording.report["transfer_counts"])
    };
    assert_eq!((json::count(count, "/count"), json::count(count, "/bytes")), (called, sent), "{count:#}");
    assert!(json::count(count, "/unfollowed") > called / 2, "{count:#}");
    let cost = &recording.report["cost"];
    assert!(sheds(&recording, "are counted when they are submitted"), "{cost}");
    assert!(!sheds(&recording, "are not followed any more"), "{cost}");
    assert_eq!(recording.report["loss"], serde_json::json!({}));
}

fn beyond() {
    let recording = fast("0.05");
    let cost = &recording.report["cost"];
    assert!(sheds(&recording, "are counted when they are submitted"), "{cost}");
    assert!(sheds(&recording, "transfers are not followed any more"), "{cost}");
    let counts = json::list(&recording.report, "/transfer_counts").iter();
    let counted: u64 = counts.map(|count| json::count(count, "/count")).sum();
    assert!(counted > 0 && counted < printed(&recording, "called"), "{counted}");
}

/// Both sides send and receive 64 at once, for more than two seconds.
fn window() {
    const ROUNDS: u64 = 300;
    const WINDOW: u64 = 64;
    const SIZE: u64 = 64;
    let mut python = script(&interpreter().unwrap(), "ucxx_async_driver.py");
    python.args(["--mode", "thread", "--delayed", "1", "--future", "1", "--hold", "0.5", "--size", &SIZE.to_string()]);
    python.args(["--iters", &ROUNDS.to_string(), "--window", &WINDOW.to_string()]).env("UCXX_LOG_LEVEL", "error");
    let recording = record("ucx").command(python).run();
    assert!(recording.stdout.contains("\"round_trips\": 300"), "{}{}", recording.stdout, recording.stderr);
    let counts = json::list(&recording.report, "/transfer_counts").iter();
    let tags: Vec<&Value> = counts.filter(|it| json::text(it, "/operation").starts_with("tag")).collect();
    assert!(tags.iter().all(|it| it["library"] == "ucxx"), "{tags:#?}");
    let sums: Vec<_> = tags.iter().map(|it| ["/count", "/bytes", "/failed"].map(|key| json::count(it, key))).collect();
    assert_eq!(sums, [[ROUNDS * WINDOW, ROUNDS * WINDOW * SIZE, 0]; 4], "{tags:#?}");
    for count in tags {
        let unfollowed = json::count(count, "/unfollowed");
        assert!(unfollowed > 0 && unfollowed < ROUNDS * WINDOW, "{count:#}");
    }
    assert!(sheds(&recording, "are counted when they are submitted"), "{}", recording.report["cost"]);
    let workers = json::list(&recording.report, "/workers");
    let progress: Vec<&Value> = workers.iter().filter(|worker| worker["role"] == "progress").collect();
    // At this rate it may never wait.
    let is_apart = |worker: &&Value| json::text(worker, "/mode").starts_with("thread");
    assert!(progress.len() == 2 && progress.iter().all(is_apart), "{workers:#?}");
    let reported = json::list(&recording.report, "/transfers").iter();
    let reported = reported.filter(|it| json::text(it, "/operation").starts_with("tag")).count() as u64;
    assert!(reported > 0 && reported < 4 * ROUNDS * WINDOW, "{reported}");
    assert_eq!(recording.report["loss"], serde_json::json!({}));
}
