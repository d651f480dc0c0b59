//! Dask over UCXX: checks that the transfers between its workers match what the program has them compute.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;

use pyobs_tests::{Case, case, json, needs};
use serde_json::Value;

use super::{record, script};

const VARIABLE: &str = "PYOBS_UCXX_DASK";
/// The program's rounds. In each, one worker adds up arrays of both; this many come from the other worker.
const ROUNDS: usize = 5;
const OF_THE_OTHER: usize = 3;
const MIB: u64 = 2;

pub(super) fn cases() -> Vec<Case> {
    let case = case("arrays_sent_between_workers_of_dask_are_seen", arrays).needs(needs::root());
    vec![case.needs(needs::all()).needs(interpreter())]
}

fn interpreter() -> Result<PathBuf, String> {
    let named = env::var_os(VARIABLE).map(PathBuf::from);
    named.ok_or_else(|| "there is no Dask here; `cargo xtask test --all` makes an environment with it".to_owned())
}

fn arrays() {
    let mut python = script(&interpreter().unwrap(), "dask_ucxx.py");
    python.arg(MIB.to_string());
    let recording = record("ucx").command(python).run();
    // The program prints each round's sum: 6 * round + 15.
    for round in 0..ROUNDS {
        let line = format!("{round} {}", 6 * round + 15);
        assert!(recording.stdout.lines().any(|printed| printed == line), "{}{}", recording.stdout, recording.stderr);
    }
    let transfers = json::list(&recording.report, "/transfers");
    let of = |operation: &str| -> Vec<&Value> {
        let own = transfers.iter().filter(|it| it["operation"] == operation && json::count(it, "/bytes") == MIB << 20);
        own.collect()
    };
    let (sent, received) = (of("tag_send"), of("tag_recv"));
    assert_eq!((sent.len(), received.len()), (ROUNDS * OF_THE_OTHER, ROUNDS * OF_THE_OTHER));
    let set = |all: &[&Value], key: &str| all.iter().map(|it| it[key].to_string()).collect::<BTreeSet<_>>();
    assert_eq!(set(&sent, "tag"), set(&received, "tag"));
    let (senders, receivers) = (set(&sent, "pid"), set(&received, "pid"));
    assert_eq!((senders.len(), receivers.len()), (1, 1));
    assert_ne!(senders, receivers);
    for transfer in sent.iter().chain(&received) {
        assert_eq!((&transfer["library"], &transfer["status"]), (&"ucxx".into(), &0.into()), "{transfer:#}");
        assert!(transfer["completed_s"].is_number(), "{transfer:#}");
    }
    // Not all of a thousand transfers have a stack.
    let stacks = sent.iter().chain(&received).map(|it| json::list(it, "/stack")).filter(|stack| !stack.is_empty());
    let is_dask = |frame: &Value| frame["file"].as_str().is_some_and(|file| file.contains("distributed_ucxx"));
    let from_dask: Vec<bool> = stacks.map(|stack| stack.iter().any(is_dask)).collect();
    assert!(!from_dask.is_empty() && from_dask.iter().all(|is_dask| *is_dask), "{sent:#?}");
    assert!(!recording.report["loss"].as_object().unwrap().contains_key("transfer_table_full"));
}
