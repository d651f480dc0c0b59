//! Tests what is not watched, or no longer.

use pyobs_tests::{Case, Folder, json};
use serde_json::Value;

use super::{known, run};

pub fn cases() -> Vec<Case> {
    vec![
        known("a_thread_s_stack_is_not_watched", || is_not_watched("stack")),
        known("a_thread_s_own_data_is_not_watched", || is_not_watched("own")),
        known("reference_counts_are_not_compared", counts),
        known("untouched_watchpoints_are_replaced_or_time_out", stream),
    ]
}

fn seen(mode: &str, seconds: &str) -> Value {
    run(&Folder::new(), &[mode, "0", seconds]).report["redundancy"].take()
}

fn is_not_watched(mode: &str) {
    let seen = seen(mode, "2");
    let (samples, armed) = (json::count(&seen, "/samples"), json::count(&seen, "/armed"));
    // The library's caller has data too.
    assert!(samples > 100 && armed * 50 < samples, "{armed} watchpoints at {samples} samples");
}

fn counts() {
    let seen = seen("counts", "2");
    let samples = json::count(&seen, "/samples");
    let known: u64 = json::list(&seen, "/lines").iter().map(|line| json::count(line, "/metadata")).sum();
    assert!(samples > 100 && known * 20 < samples, "{known} of {samples} are of object metadata");
    let pairs = json::list(&seen, "/pairs").iter().filter(|pair| pair["memory"] == "metadata");
    let compared: u64 = pairs.map(|pair| json::count(pair, "/compared")).sum();
    // The call itself causes a few.
    assert!(compared * 20 < samples, "{compared} pairs of {samples} samples");
}

/// A watchpoint times out after 200 ms.
fn stream() {
    const SECONDS: u64 = 4;
    let seen = seen("stream", "4");
    let [armed, timed_out] = ["/armed", "/timed_out"].map(|key| json::count(&seen, key));
    let pairs = json::list(&seen, "/pairs");
    // Each of the four would be set five times a second if none were replaced earlier.
    assert!(timed_out > 0 && armed > 3 * 4 * 5 * SECONDS / 2, "{armed} set, {timed_out} timed out");
    assert!(pairs.is_empty(), "{pairs:#?}");
}
