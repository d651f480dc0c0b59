//! Tests UCXX in the middle of its traffic when the recording begins (workloads/ucxx_midway.py).

use std::collections::{BTreeMap, BTreeSet};

use pyobs_tests::{Case, case, command, json, needs, workload};
use serde_json::Value;

use super::{in_the_middle, interpreter};

/// How many of the program's receives begin before the recording and end within it, and their smallest size.
const LATE: u64 = 5;
const LATE_BYTES: u64 = 60_000;

pub(super) fn cases() -> Vec<Case> {
    let of = |name, test: fn()| case(name, test).needs(needs::root()).needs(interpreter());
    vec![
        of("transfers_at_the_attach_are_not_made_up_and_later_ones_are_all_reported", attached),
        of("receives_of_several_buffers_begun_before_the_attach_are_half_seen", several),
    ]
}

/// How many of the program's receives of several buffers begin before the recording and after it, and the bytes of
/// each.
const EARLY: u64 = 3;
const AFTER: u64 = 5;
const SEVERAL_BYTES: u64 = 1000 + 2000 + 3000 + 4000;

fn several() {
    let mut python = command(interpreter().unwrap());
    python.args(["-B", "-u"]).arg(workload("ucxx_midway_several.py"));
    let (recording, ended) = in_the_middle(python);
    assert!(ended.stdout.ends_with("received 8\n"), "{ended:?}");
    let transfers = json::list(&recording.report, "/transfers");
    let of = |operation: &str| -> Vec<&Value> {
        transfers.iter().filter(|it| json::text(it, "/operation") == operation).collect()
    };
    let (sent, received) = (of("multi_send"), of("multi_recv"));
    assert_eq!((sent.len() as u64, received.len() as u64), (EARLY + AFTER, AFTER), "{transfers:#?}");
    for whole in sent.iter().chain(&received) {
        assert_eq!(json::count(whole, "/bytes"), SEVERAL_BYTES, "{whole:#}");
        assert_eq!(whole["status"], 0, "{whole:#}");
    }
    // A part belongs to a known transfer or to none.
    let known: BTreeSet<&str> = sent.iter().chain(&received).map(|whole| json::text(whole, "/id")).collect();
    assert!(transfers.iter().filter_map(|it| it["parent"].as_str()).all(|parent| known.contains(parent)));
    let half = recording.report["loss"]["transfer_half_seen"].as_u64().unwrap_or(0);
    // For each, the announcement and the transfer itself.
    assert_eq!(half, 2 * EARLY, "{}", recording.report["loss"]);
}

fn attached() {
    let mut python = command(interpreter().unwrap());
    python.args(["-B", "-u"]).arg(workload("ucxx_midway.py"));
    let (recording, ended) = in_the_middle(python);
    let words: Vec<&str> = ended.stdout.split_whitespace().collect();
    let ["ready", "begun", begun, "last", last] = words[..] else { panic!("{ended:?}") };
    let [begun, last] = [begun, last].map(|word| word.parse::<u64>().unwrap());

    let (mut sent, mut received): (BTreeMap<u64, &Value>, BTreeMap<u64, &Value>) = Default::default();
    for transfer in json::list(&recording.report, "/transfers") {
        let (operation, bytes) = (json::text(transfer, "/operation"), json::count(transfer, "/bytes"));
        let side = if operation == "tag_send" { &mut sent } else { &mut received };
        assert!(operation == "tag_send" || operation == "tag_recv", "{transfer:#}");
        assert!(side.insert(bytes, transfer).is_none(), "twice: {transfer:#}");
    }
    let late: BTreeSet<u64> = (LATE_BYTES..LATE_BYTES + LATE).collect();
    let all: BTreeSet<u64> = (1000..1000 + last).collect();
    let certain = 1000 + begun..1000 + last;
    for (side, more) in [(&sent, late), (&received, BTreeSet::new())] {
        let known: BTreeSet<u64> = side.keys().copied().collect();
        assert!(known.is_subset(&all.union(&more).copied().collect()), "{known:?}");
        assert!(certain.clone().all(|bytes| known.contains(&bytes)) && known.is_superset(&more), "{known:?}");
        for transfer in certain.clone().chain(more).map(|bytes| side[&bytes]) {
            let moments = ["registered_s", "submitted_s", "completed_s", "notified_s", "woken_s"];
            let moments: Vec<f64> = moments.iter().filter_map(|key| transfer[*key].as_f64()).collect();
            assert!(moments.len() == 5 && moments.is_sorted(), "{transfer:#}");
            assert_eq!((&transfer["library"], &transfer["status"]), (&"ucxx".into(), &0.into()), "{transfer:#}");
        }
        let is_over = |transfer: &&Value| transfer["completed_s"].is_number();
        assert!(side.values().all(is_over), "not all of them ended: {side:#?}");
    }
    let counts = json::list(&recording.report, "/transfer_counts").iter();
    let counted: u64 = counts.map(|count| json::count(count, "/count")).sum();
    assert_eq!(counted, (sent.len() + received.len()) as u64);
    let half = recording.report["loss"]["transfer_half_seen"].as_u64().unwrap_or(0);
    assert!(half >= LATE, "{}", recording.report["loss"]);
    // At most one for each transfer that was under way.
    assert!(half <= 2 * begun - (counted - LATE - 2 * (last - begun)) + LATE, "{}", recording.report["loss"]);
}
