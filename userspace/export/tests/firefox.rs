//! Profiles for the Firefox Profiler, read by the documentation of the processed format.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{ModelBuilder, exported, frame, gil_wait, meta};
use pyobs_export::{Format, Options, Weight};
use pyobs_model::*;
use serde_json::Value;

fn numbers(column: &Value) -> Vec<u64> {
    column.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

/// Folded stacks, and their weights.
fn stacks(thread: &Value) -> BTreeMap<String, u64> {
    let text = |at: u64| thread["stringArray"][at as usize].as_str().unwrap();
    let (prefixes, frames) = (&thread["stackTable"]["prefix"], numbers(&thread["stackTable"]["frame"]));
    let (functions, names) = (numbers(&thread["frameTable"]["func"]), numbers(&thread["funcTable"]["name"]));
    let mut sums = BTreeMap::new();
    let samples = &thread["samples"];
    let weights = samples["weight"].as_array().unwrap();
    assert_eq!(samples["stack"].as_array().unwrap().len(), weights.len());
    for (stack, weight) in samples["stack"].as_array().unwrap().iter().zip(weights) {
        let mut path = Vec::new();
        let mut at = stack.as_u64();
        while let Some(stack) = at {
            let stack = stack as usize;
            path.push(text(names[functions[frames[stack] as usize] as usize]));
            at = prefixes[stack].as_u64();
            assert!(at.is_none_or(|next| (next as usize) < stack), "a prefix comes before its stacks");
        }
        path.reverse();
        *sums.entry(path.join(";")).or_default() += weight.as_u64().unwrap();
    }
    sums
}

/// `name: detail`, with the beginning and the end in milliseconds.
fn markers(thread: &Value) -> Vec<(String, f64, Option<f64>)> {
    let text = |at: &Value| thread["stringArray"][at.as_u64().unwrap() as usize].as_str().unwrap();
    let table = &thread["markers"];
    let of = |at: usize| {
        let name = format!("{}: {}", text(&table["name"][at]), text(&table["data"][at]["detail"]));
        (name, table["startTime"][at].as_f64().unwrap(), table["endTime"][at].as_f64())
    };
    (0..table["length"].as_u64().unwrap() as usize).map(of).collect()
}

fn profile(model: &Model, weight: Weight) -> Value {
    let text = exported(model, Format::Firefox, &Options { weight, ..Options::default() });
    serde_json::from_str(&text).unwrap()
}

fn sleep(stack: StackId, at: u64, total: u64) -> Event {
    Event::Sleep(Sleep {
        from: Nanos(at).saturating_sub(Nanos(total)),
        stacks: 2,
        at: Nanos(at),
        process: ProcessRef(0),
        tid: Tid(4250),
        stack,
        reason: WaitReason::Lock,
        length: Nanos(total),
        count: 2,
        total: Nanos(total),
        waker: Some(Waker { pid: Pid(4242), tid: Tid(4242), name: Arc::from("MainThread") }),
    })
}

fn example() -> Model {
    use FrameKind::{Kernel, Python};
    let mut it = ModelBuilder::new("host");
    let probes = ["cpu", "offcpu", "gil", "arena", "shm"].map(str::to_owned).into();
    it.model = Model::new(Meta { probes, ..meta("host") }, History::All);
    it.process(0, 4242, "/usr/bin/python3.12 main.py", &[(4242, "MainThread"), (4250, "worker")]);
    let main = frame(Python, "<module>", "/srv/app/main.py", 31, 1);
    it.samples(0, 4242, 6, Outcome::Complete, &[main.clone(), frame(Python, "insert", "/srv/app/tree.py", 42, 40)]);
    it.samples(0, 4242, 4, Outcome::Complete, &[main.clone(), frame(Kernel, "sys_read", "vmlinux", 0, 0)]);
    let waits = it.stack(&[main]);
    it.model.apply(&sleep(waits, 500_000_000, 1_700_000));
    it.model.apply(&sleep(waits, 600_000_000, 1_700_000));
    it.model.apply(&gil_wait(waits, 700_000_000, 5_000_000));
    it.model
}

#[test]
fn each_thread_has_a_track_with_its_samples() {
    let profile = profile(&example(), Weight::Cpu);
    assert_eq!((&profile["meta"]["interval"], &profile["meta"]["product"]), (&10.0.into(), &"pyobs".into()));
    assert_eq!(profile["meta"]["startTime"], 1_767_323_045_000.0);
    let threads = profile["threads"].as_array().unwrap();
    let names: Vec<_> = threads.iter().map(|it| (&it["processName"], &it["pid"], &it["tid"])).collect();
    assert_eq!(names.len(), 2, "one thread has only waits");
    let main = threads.iter().find(|it| it["isMainThread"] == true).unwrap();
    assert_eq!((&main["processName"], &main["pid"]), (&"python3.12 main.py".into(), &"4242".into()));
    let insert = "<module> (main.py);insert (tree.py)".to_owned();
    let read = "<module> (main.py);sys_read [kernel]".to_owned();
    assert_eq!(stacks(main), BTreeMap::from([(insert, 60), (read, 40)]), "milliseconds");
    let categories: Vec<_> = numbers(&main["frameTable"]["category"])
        .into_iter()
        .map(|at| profile["meta"]["categories"][at as usize]["name"].as_str().unwrap())
        .collect();
    assert_eq!(categories, ["Python", "Python", "Kernel"]);
    assert_eq!(main["funcTable"]["isJS"], serde_json::json!([true, true, false]));
}

#[test]
fn waits_are_markers_with_their_stack() {
    let profile = profile(&example(), Weight::Cpu);
    let threads = profile["threads"].as_array().unwrap();
    let worker = threads.iter().find(|it| it["tid"] == "4250").unwrap();
    let lock = "Sleep: lock: 1.70 ms, woken by MainThread 4242, one of 2 that were 1.70 ms together";
    let gil = "Wait for the GIL: 5.00 ms, behind MainThread 4242 at <module> (main.py:31)";
    let expected = [(lock, 498.3, Some(500.0)), (lock, 598.3, Some(600.0)), (gil, 695.0, Some(700.0))];
    assert_eq!(markers(worker), expected.map(|(name, from, to)| (name.to_owned(), from, to)));
    assert!(worker["markers"]["data"][0]["cause"]["stack"].is_u64());
}

#[test]
fn weights_of_times_are_whole_milliseconds() {
    let profile = profile(&example(), Weight::OffCpu);
    let worker = &profile["threads"][0];
    assert_eq!(worker["samples"]["weightType"], "tracing-ms");
    assert_eq!(worker["samples"]["weight"], serde_json::json!([1, 2]), "3.4 ms");
}

/// Two processes had the creator's pid. The marker belongs to the one that was alive at the time.
#[test]
fn a_segment_is_a_marker_of_its_creator() {
    let mut it = ModelBuilder::new("host");
    it.process(0, 4242, "parent", &[]);
    it.model.apply(&Event::ProcessEnd { id: ProcessRef(0), at: Nanos(1) });
    it.process(1, 4242, "loader", &[]);
    let (kind, name, creator) = (SegmentKind::Shm, Some("tensor".into()), Some(Pid(4242)));
    let segment = Segment { dev: 1, ino: 2, generation: 3, kind, name, linked: true, bytes: 4096, creator };
    it.model.apply(&Event::Segment { at: Nanos(2), id: SegmentId(0), change: SegmentChange::Begun(segment) });
    let profile = profile(&it.model, Weight::Cpu);
    let [thread] = &profile["threads"].as_array().unwrap()[..] else { panic!("{profile:#}") };
    assert_eq!(thread["processName"], "loader");
    assert!(markers(thread)[0].0.starts_with("Segment: tensor, 4,096 B"), "{:?}", markers(thread));
}

#[test]
fn hostile_names_and_numbers_do_no_harm() {
    let name = "\u{1b}[31m;\n\"<script>]]>&\u{202e}\0".repeat(4000);
    let mut it = ModelBuilder::new(&name);
    let probes = vec!["cpu".into(), "offcpu".into()];
    it.model = Model::new(Meta { rate_hz: 0, started: name.clone(), probes, ..meta(&name) }, History::All);
    // Both processes have the same pid.
    it.process(0, u32::MAX, &name, &[(u32::MAX, &name), (4250, &name)]);
    it.process(1, u32::MAX, &name, &[(u32::MAX, &name)]);
    let kinds = [FrameKind::Python, FrameKind::Native, FrameKind::Kernel];
    let frames = kinds.map(|kind| frame(kind, &name, &name, u32::MAX, u32::MAX));
    it.samples(0, u32::MAX, 3, Outcome::Complete, &frames);
    it.samples(1, u32::MAX, 3, Outcome::Complete, &frames);
    let stack = it.stack(&frames);
    for (at, total) in [(u64::MAX, u64::MAX), (0, u64::MAX), (5, 0)] {
        it.model.apply(&sleep(stack, at, total));
    }
    for weight in [Weight::Cpu, Weight::OffCpu] {
        let profile = profile(&it.model, weight);
        for thread in profile["threads"].as_array().unwrap() {
            stacks(thread);
            markers(thread);
        }
    }
}
