//! The weight `bytes`: held memory, by the stack that allocated it.

mod common;

use common::perfetto::timeline;
use common::{ModelBuilder, checked_speedscope, exported, frame, meta, parsed_svg};
use pyobs_export::{Error, Format, Options, Weight, export};
use pyobs_model::FrameKind::Python;
use pyobs_model::*;
use serde_json::Value;

const MIB: u64 = 1 << 20;

fn families_on() -> Meta {
    Meta { probes: Family::names(), ..meta("build-host") }
}

fn at(second: u64) -> Nanos {
    Nanos(second * 1_000_000_000)
}

/// One arena from before the recording; two by `load` at 1 s, one of which dies at 3 s; a segment and a MemInfo by `share` at
/// 2 s.
fn example() -> Model {
    let mut it = ModelBuilder::new("h");
    it.model = Model::new(families_on(), History::All);
    it.process(0, 4242, "/usr/bin/python3.12 main.py", &[(4242, "MainThread")]);
    let load = it.stack(&[frame(Python, "load", "/srv/app/load.py", 7, 5)]);
    let share = it.stack(&[frame(Python, "share", "/srv/app/share.py", 9, 8)]);
    let process = ProcessRef(0);
    for (id, address, born) in [(0, 0x1000_0000, true), (1, 0x2000_0000, true), (2, 0x3000_0000, false)] {
        let arena = Arena { process, kind: "pymalloc".into(), address, bytes: MIB, born, parent: None };
        let (at, id) = (at(if born { 1 } else { 0 }), ArenaId(id));
        it.model.apply(&Event::Arena { at, id, change: ArenaChange::Begun(arena) });
        if born {
            it.model.apply(&Event::Arena { at, id, change: ArenaChange::Born(load) });
        }
    }
    let (kind, name, creator) = (SegmentKind::Shm, Some("one".into()), Some(Pid(4242)));
    let segment = Segment { dev: 27, ino: 5, generation: 0, kind, name, linked: true, bytes: 5 << 30, creator };
    let holds = SegmentChange::Holds { pid: Pid(4242), fds: 1, mappings: 1 };
    for change in [SegmentChange::Begun(segment), SegmentChange::Born(share), holds] {
        it.model.apply(&Event::Segment { at: at(2), id: SegmentId(0), change });
    }
    let change = MemInfoChange::Born { process, bytes: 4096, data: 0x4000_0000, stack: share };
    it.model.apply(&Event::MemInfo { at: at(2), id: MemInfoId(0), change });
    it.model.apply(&Event::Arena { at: at(3), id: ArenaId(1), change: ArenaChange::Died });
    it.model.apply(&Event::ProcessEnd { id: process, at: at(4) });
    it.model
}

fn options() -> Options {
    Options { weight: Weight::Bytes, ..Options::default() }
}

#[test]
fn held_memory_is_shown_by_the_stack_that_allocated_it() {
    let held = (5_u64 << 30) + 4096;
    let text = exported(&example(), Format::Folded, &options());
    let expected = format!(
        "python3.12 (4242) 1048576\npython3.12 (4242);load (load.py) 1048576\npython3.12 (4242);share (share.py) {held}\n"
    );
    assert_eq!(text, expected, "the dead arena is left out, and one arena is older than the recording");
    let before = Selection { to: Some(at(2)), ..Selection::default() };
    let text = exported(&example(), Format::Folded, &Options { selection: before, ..options() });
    assert_eq!(
        text, "python3.12 (4242) 1048576\npython3.12 (4242);load (load.py) 2097152\n",
        "both arenas were alive at that time"
    );
    let other = Selection { tid: Some(Tid(4250)), ..Selection::default() };
    assert_eq!(exported(&example(), Format::Folded, &Options { selection: other, ..options() }), "");
}

#[test]
fn every_format_has_bytes_as_the_unit() {
    let total = (5_u64 << 30) + 4096 + 2 * MIB;
    let text = exported(&example(), Format::Speedscope, &options());
    let profiles = checked_speedscope(&text);
    assert!(matches!(&profiles[..], [(bytes, _)] if (*bytes - total as f64).abs() < 1.0), "{profiles:?}");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["profiles"][0]["unit"], "bytes");
    let texts = parsed_svg(&exported(&example(), Format::Svg, &options()));
    assert!(texts.iter().any(|text| text == "Memory that is held on build-host"), "{texts:#?}");
    assert!(texts.iter().any(|text| text == "load (load.py) (1,048,576 bytes, 0.02%)"), "{texts:#?}");
    let profile: Value = serde_json::from_str(&exported(&example(), Format::Firefox, &options())).unwrap();
    let samples = &profile["threads"][0]["samples"];
    assert_eq!(samples["weightType"], "bytes");
    let weights = samples["weight"].as_array().unwrap();
    assert_eq!(weights.iter().map(|weight| weight.as_u64().unwrap()).sum::<u64>(), total);
}

/// The values of a counter, with their times in seconds.
fn counted(model: &Model, name: &str) -> Vec<(f64, i64)> {
    let all = timeline(model, &Options::default());
    all.counters[name].iter().map(|(micros, bytes)| (micros / 1e6, *bytes)).collect()
}

#[test]
fn counters_of_a_timeline_are_the_live_bytes() {
    let mut model = example();
    // A second segment at 3 s. The first one is released at 5 s.
    let creator = Some(Pid(4242));
    let (dev, ino, generation, kind, name, linked) = (27, 6, 0, SegmentKind::Memfd, None, false);
    let segment = Segment { dev, ino, generation, kind, name, linked, bytes: MIB, creator };
    model.apply(&Event::Segment { at: at(3), id: SegmentId(1), change: SegmentChange::Begun(segment) });
    model.apply(&Event::Segment { at: at(5), id: SegmentId(0), change: SegmentChange::Released });
    let arenas = [(0.0, 1), (1.0, 2), (1.0, 3), (3.0, 2), (4.0, 1), (4.0, 0)];
    assert_eq!(counted(&model, "arenas"), arenas.map(|(at, mib)| (at, mib << 20)), "all end with their process");
    let segments = [(2.0, 5 << 10), (3.0, (5 << 10) + 1), (5.0, 1)].map(|(at, mib)| (at, mib << 20));
    assert_eq!(counted(&model, "segments"), segments);
}

#[test]
fn bytes_need_one_of_four_families() {
    for family in ["heap", "arena", "shm", "nrt"] {
        let model = Model::new(Meta { probes: vec![family.into()], ..meta("h") }, History::All);
        assert_eq!(exported(&model, Format::Folded, &options()), "");
    }
    let model = Model::new(meta("h"), History::All);
    let refused = export(&model, Format::Folded, &options(), &mut Vec::new()).unwrap_err();
    assert!(matches!(refused, Error::NoData(Weight::Bytes)));
    assert!(refused.to_string().contains("its probes `heap`, `arena`, `shm`, `nrt` were off"), "{refused}");
}
