//! Tests `ucx_perftest`, a program in C. Its two sides exchange some messages to set up; beyond these, the count must
//! match the requested number.

use pyobs_tests::{Case, case, command, json, needs};

use super::record;

/// A handler gets its probe some time after it was set, so earlier messages are missed.
const HANDLED: &str = "am_recv";

/// A test, and the operations of each of its messages on both sides.
type Test = (&'static str, &'static [&'static str]);

const TESTS: [Test; 5] = [
    ("tag_bw", &["tag_send", "tag_recv"]),
    ("stream_bw", &["stream_send", "stream_recv"]),
    ("ucp_am_bw", &["am_send", HANDLED]),
    ("ucp_put_bw", &["put"]),
    ("ucp_get", &["get"]),
];

const FEW: u64 = 1000;
const SIZE: u64 = 64;

pub(super) fn cases() -> Vec<Case> {
    let more = TESTS.map(|test| case(format!("each_{}_more_of_ucx_perftest_is_one_more", test.0), move || more(test)));
    let fast = case("none_of_half_a_million_of_ucx_perftest_is_missed", || fast(TESTS[0]));
    let needs = |case: Case| case.needs(needs::root()).needs(needs::program("ucx_perftest")).needs(needs::all());
    more.into_iter().chain([fast]).map(needs).collect()
}

/// For each operation: how many, their bytes, how many failed, and how many were not followed to their ends.
fn counted((test, operations): Test, messages: u64) -> Vec<[u64; 4]> {
    let mut shell = command("sh");
    let server = "ucx_perftest -p 13555 > /dev/null & sleep 1";
    let client = format!("ucx_perftest 127.0.0.1 -p 13555 -t {test} -s {SIZE} -w 0 -n {messages} > /dev/null; wait");
    shell.args(["-c", &format!("{server}; {client}")]);
    shell.envs([("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo"), ("UCX_WARN_UNUSED_ENV_VARS", "n")]);
    let recording = record("ucx").command(shell).run();
    let counts = json::list(&recording.report, "/transfer_counts");
    let sums = operations.iter().map(|operation| {
        let own = counts.iter().filter(|count| count["operation"] == *operation && count["library"] == "ucx");
        ["/count", "/bytes", "/failed", "/unfollowed"].map(|key| own.clone().map(|it| json::count(it, key)).sum())
    });
    sums.collect()
}

fn more(test: Test) {
    const MORE: u64 = 20_000;
    let (few, many) = (counted(test, FEW), counted(test, FEW + MORE));
    for (operation, (few, many)) in test.1.iter().zip(few.iter().zip(&many)) {
        if *operation == HANDLED {
            let [count, bytes, failed, _] = *many;
            assert!((MORE / 2..=FEW + MORE).contains(&count), "{many:?}");
            assert_eq!((bytes, failed), (count * SIZE, 0));
        } else {
            assert_eq!([0, 1, 2].map(|at| many[at] - few[at]), [MORE, MORE * SIZE, 0], "{operation} {few:?} {many:?}");
        }
    }
}

/// There are too many to follow. A receive then counts its buffer's size, which is the message's here.
fn fast(test: Test) {
    const MORE: u64 = 500_000;
    let (few, many) = (counted(test, FEW), counted(test, FEW + MORE));
    for (few, many) in few.iter().zip(&many) {
        assert_eq!([0, 1, 2].map(|at| many[at] - few[at]), [MORE, MORE * SIZE, 0], "{few:?} {many:?}");
        assert_eq!(few[3], 0, "{few:?}");
        assert!(many[3] > MORE / 4, "{many:?}");
    }
}
