//! Tests how the progress mode is detected. The drivers are idle most of the time.

use std::collections::BTreeSet;

use pyobs_tests::{Case, case, json, needs};
use serde_json::Value;

use super::{interpreter, record, script};

type Words = &'static [&'static str];

struct Mode {
    name: &'static str,
    driver: &'static str,
    words: Words,
    /// The mode that pyobs reports.
    mode: &'static str,
    roles: Words,
}

const ASYNCIO: &str = "ucxx_async_driver.py";
const SYNCHRONOUS: &str = "ucxx_sync_driver.py";
const ALL: Words = &["event_loop", "notifier", "progress"];
const PROGRESS: Words = &["progress"];

const MODES: [Mode; 6] = [
    Mode {
        name: "polling_by_asyncio_is_seen",
        driver: ASYNCIO,
        words: &["--mode", "polling"],
        mode: "polling",
        roles: PROGRESS,
    },
    // From the first connection on, the library's file is always ready, so the event loop never sleeps.
    Mode {
        name: "blocking_by_asyncio_is_seen_to_poll",
        driver: ASYNCIO,
        words: &["--mode", "blocking"],
        mode: "polling",
        roles: PROGRESS,
    },
    Mode {
        name: "a_thread_of_asyncio_is_seen",
        driver: ASYNCIO,
        words: &["--mode", "thread", "--future", "1"],
        mode: "thread",
        roles: ALL,
    },
    Mode {
        name: "a_thread_of_asyncio_that_polls_is_seen",
        driver: ASYNCIO,
        words: &["--mode", "thread-polling", "--future", "1"],
        mode: "thread-polling",
        roles: ALL,
    },
    Mode {
        name: "blocking_by_the_synchronous_interface_is_seen",
        driver: SYNCHRONOUS,
        words: &["--progress", "blocking", "--delayed", "0"],
        mode: "blocking",
        roles: PROGRESS,
    },
    Mode {
        name: "a_thread_of_the_synchronous_interface_is_seen",
        driver: SYNCHRONOUS,
        words: &["--progress", "thread", "--delayed", "1"],
        mode: "thread",
        roles: PROGRESS,
    },
];

pub(super) fn cases() -> Vec<Case> {
    let of = |mode: Mode| {
        let case = case(mode.name, move || seen(&mode)).needs(needs::all());
        case.needs(needs::root()).needs(interpreter())
    };
    MODES.into_iter().map(of).collect()
}

fn seen(Mode { driver, words, mode, roles, .. }: &Mode) {
    let mut python = script(&interpreter().unwrap(), driver);
    // One driver idles after its messages, the other before them.
    let rest: &[&str] = if *driver == ASYNCIO { &["--hold", "0.5", "--idle", "6"] } else { &["--hold", "6"] };
    python.args(*words).args(["--iters", "20"]).args(rest);
    let recording = record("ucx").command(python).run();
    assert!(recording.stdout.contains("us_per_rt"), "{}{}", recording.stdout, recording.stderr);
    let workers = json::list(&recording.report, "/workers");
    let pids: BTreeSet<u64> = workers.iter().map(|worker| json::count(worker, "/pid")).collect();
    assert_eq!(pids.len(), 2, "{workers:#?}");
    for pid in pids {
        let own: Vec<&Value> = workers.iter().filter(|worker| json::count(worker, "/pid") == pid).collect();
        let played: BTreeSet<&str> = own.iter().map(|worker| json::text(worker, "/role")).collect();
        assert!(played.iter().eq(roles.iter()), "{own:#?}");
        assert!(own.iter().all(|worker| worker["mode"] == *mode), "it is {mode}: {own:#?}");
        let progress = own.iter().find(|worker| worker["role"] == "progress").unwrap();
        let (busy, polls) = (json::number(progress, "/busy"), mode.ends_with("polling"));
        assert!(if polls { busy > 0.9 } else { busy < 0.5 }, "{progress:#}");
        // A progress thread of its own has another tid than the process.
        let is_apart = json::count(progress, "/tid") != pid;
        assert_eq!(is_apart, mode.starts_with("thread"), "{progress:#}");
    }
}
