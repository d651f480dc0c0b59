//! Tests transfers of several buffers by UCXX, which announces up to a hundred at a time.

use std::collections::BTreeMap;

use pyobs_tests::{Case, case, json, needs};
use serde_json::Value;

use super::{interpreter, record, script};

/// The size of the message that announces the parts (cpp/include/ucxx/header.h).
const HEADER_BYTES: u64 = 1209;
const ROUNDS: u64 = 6;

/// The number of buffers, the size of the first (the others are multiples of it), and the number of announcing
/// messages.
const KINDS: [(u64, u64, usize); 4] = [(150, 16, 2), (100, 16, 1), (101, 16, 2), (4, HEADER_BYTES, 1)];

pub(super) fn cases() -> Vec<Case> {
    let of = |(frames, size, headers)| {
        let name = format!("{frames}_buffers_from_{size}_bytes_on_are_parts_of_one");
        let case = case(name, move || grouped(frames, size, headers));
        let case = case.needs(needs::root()).needs(interpreter());
        if frames == KINDS[0].0 { case } else { case.needs(needs::all()) }
    };
    KINDS.into_iter().map(of).collect()
}

fn grouped(frames: u64, size: u64, headers: usize) {
    let mut python = script(&interpreter().unwrap(), "ucxx_async_driver.py");
    python.args(["--mode", "thread", "--delayed", "1", "--future", "1", "--api", "multi", "--hold", "0.5"]);
    // The gap keeps the rate low enough to report each transfer.
    python.args(["--iters", &ROUNDS.to_string(), "--gap", "0.3"]);
    python.args(["--frames", &frames.to_string(), "--size", &size.to_string()]);
    let recording = record("ucx").command(python).run();
    assert!(recording.stdout.contains("us_per_rt"), "{}{}", recording.stdout, recording.stderr);
    let transfers = json::list(&recording.report, "/transfers");
    let mut wholes: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    for whole in transfers.iter().filter(|it| json::text(it, "/operation").starts_with("multi")) {
        let operation = json::text(whole, "/operation");
        *wholes.entry((json::count(whole, "/pid"), operation)).or_default() += 1;
        assert_eq!(json::count(whole, "/bytes"), size * (1..=frames).sum::<u64>(), "{whole:#}");
        let parts: Vec<&Value> = transfers.iter().filter(|it| it["parent"] == whole["id"]).collect();
        for part in &parts {
            assert_eq!(json::text(part, "/operation"), operation.replace("multi", "tag"), "{part:#}");
            assert_eq!((&part["pid"], &part["status"]), (&whole["pid"], &0.into()), "{part:#}");
            assert_eq!(part["stack"], whole["stack"], "{part:#}");
            for (within, without) in [("registered_s", "registered_s"), ("completed_s", "registered_s")] {
                assert!(json::number(part, &format!("/{within}")) >= json::number(whole, &format!("/{without}")));
            }
            assert!(json::number(part, "/completed_s") <= json::number(whole, "/completed_s"), "{part:#}{whole:#}");
        }
        let mut sizes: Vec<u64> = parts.iter().map(|part| json::count(part, "/bytes")).collect();
        let mut expected: Vec<u64> = (1..=frames).map(|number| number * size).collect();
        expected.extend(vec![HEADER_BYTES; headers]);
        sizes.sort_unstable();
        expected.sort_unstable();
        assert_eq!(sizes, expected, "{whole:#}");
    }
    assert!(wholes.len() == 4 && wholes.values().all(|count| *count == ROUNDS), "{wholes:?}");
    let is_part = |it: &&Value| json::text(it, "/operation").starts_with("tag");
    assert!(transfers.iter().filter(is_part).all(|it| it["parent"].is_string()), "a part without a parent");
}
