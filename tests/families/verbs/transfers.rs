//! Tests the rows of the family `ucx` on a real recording of UCXX's asyncio driver.

use pyobs_tests::{Record, command, json, needs, workload};

use super::frame_shape;
use super::shape::Shape;

const OPERATIONS: [&str; 10] = [
    "tag_send",
    "tag_recv",
    "stream_send",
    "stream_recv",
    "am_send",
    "am_recv",
    "put",
    "get",
    "multi_send",
    "multi_recv",
];
const LIBRARIES: Shape = Shape::OneOf(&["ucx", "ucxx"]);

fn counts(keys: &[&'static str]) -> impl Iterator<Item = (&'static str, Shape)> {
    keys.iter().map(|key| (*key, Shape::Count))
}

fn operation() -> Shape {
    Shape::OneOf(&OPERATIONS)
}

fn transfer() -> Shape {
    let maybe = |key, shape| (key, Shape::nullable(shape));
    let region = [("kind", Shape::OneOf(&["arena", "segment"])), ("id", Shape::Text)];
    Shape::object([
        ("pid", Shape::Count),
        ("tid", Shape::Count),
        ("library", LIBRARIES),
        ("operation", operation()),
        ("bytes", Shape::Count),
        maybe("tag", Shape::Text),
        ("immediate", Shape::Flag),
        ("delayed", Shape::Flag),
        maybe("registered_s", Shape::Number),
        ("submitted_s", Shape::Number),
        maybe("completed_s", Shape::Number),
        maybe("notified_s", Shape::Number),
        maybe("woken_s", Shape::Number),
        maybe("status", Shape::Number),
        maybe("parent", Shape::Text),
        ("id", Shape::Text),
        ("buffer", Shape::Text),
        maybe("region", Shape::object(region).with("born_at", Shape::nullable(frame_shape()))),
        ("stack", Shape::list(frame_shape())),
    ])
    // These keys were added to the contract later.
    .with("protocol", Shape::nullable(Shape::OneOf(&["eager", "rendezvous"])))
    .with("endpoint", Shape::Text)
    .with("submit_tid", Shape::nullable(Shape::Count))
    .with("complete_tid", Shape::nullable(Shape::Count))
    .with("wake_tid", Shape::nullable(Shape::Count))
}

fn worker() -> Shape {
    Shape::object([
        ("pid", Shape::Count),
        ("tid", Shape::Count),
        ("role", Shape::OneOf(&["progress", "notifier", "event_loop"])),
        ("mode", Shape::OneOf(&["polling", "blocking", "thread", "thread-polling"])),
        ("busy", Shape::Number),
        ("progress_per_s", Shape::nullable(Shape::Number)),
        ("queue_max", Shape::Count),
        ("gil_wait_s", Shape::Number),
    ])
    .with("python", Shape::nullable(Shape::Number))
}

/// These rows are not in the contract (docs/families/ucx.md).
fn count() -> Shape {
    let counted = counts(&["pid", "count", "bytes", "immediate", "failed", "unfollowed", "told_every"]);
    Shape::object(counted).with("library", LIBRARIES).with("operation", operation()).with("total_s", Shape::Number)
}

fn stage() -> Shape {
    let bucket = Shape::object([("from_s", Shape::Number), ("count", Shape::Count)]);
    let times = ["p50_s", "p90_s", "p99_s", "max_s"].map(|key| (key, Shape::Number));
    Shape::object(counts(&["pid", "count"]).chain(times))
        .with("stage", Shape::OneOf(&["queued", "pending", "completed", "notified"]))
        .with("histogram", Shape::list(bucket))
}

fn queue() -> Shape {
    let times = ["from_s", "to_s"].map(|key| (key, Shape::Number));
    Shape::object(counts(&["pid"]).chain(times)).with("depths", Shape::list(Shape::Count))
}

pub fn rows() {
    let driver = workload("ucxx_async_driver.py");
    let mut python = command(ucxx().unwrap());
    python.args(["-B", "-u"]).arg(driver).args(["--mode", "thread", "--delayed", "1", "--future", "1"]);
    python.args(["--api", "multi", "--iters", "10", "--hold", "0.5"]).env("UCX_WARN_UNUSED_ENV_VARS", "n");
    let recording = Record::new().argument("--probe").argument("+ucx").command(python).run();
    let report = &recording.report;
    let lists = [
        ("/transfers", transfer()),
        ("/transfer_counts", count()),
        ("/transfer_stages", stage()),
        ("/transfer_queues", queue()),
        ("/workers", worker()),
    ];
    for (pointer, shape) in lists {
        assert!(json::list(report, pointer).len() > 1, "{pointer} has too few rows: {}", recording.stderr);
        Shape::list(shape).check(report.pointer(pointer).unwrap());
    }
    for transfer in json::list(report, "/transfers") {
        for key in ["/id", "/buffer", "/endpoint"] {
            assert!(json::text(transfer, key).starts_with("0x"), "{key} is not an address: {transfer:#}");
        }
        let parent = &transfer["parent"];
        let is_there = parent.is_null() || json::list(report, "/transfers").iter().any(|it| it["id"] == *parent);
        assert!(is_there, "{parent} is not a transfer's id");
    }
    let depths = json::list(report, "/transfer_queues").iter().map(|queue| json::list(queue, "/depths").len());
    assert!(depths.clone().all(|length| length == 100), "{:?}", depths.collect::<Vec<_>>());
}

pub fn ucxx() -> Result<std::path::PathBuf, String> {
    needs::executable_with("ucxx", "PYOBS_UCXX")
}
