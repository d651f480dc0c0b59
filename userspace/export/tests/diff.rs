//! `pyobs diff` as text, JSON and a picture.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::{ModelBuilder, fills, frame, is_kept, meta, parsed_svg};
use pyobs_export::{Error, Options, Weight, diff, escape};
use pyobs_model::*;
use serde_json::Value;

fn model(pid: u32, hot: u64, cold: u64, name: &str) -> Model {
    let function = |function: &str| frame(FrameKind::Python, function, "/srv/app/main.py", 3, 1);
    let mut it = ModelBuilder::new("host");
    it.process(0, pid, "/usr/bin/python3.12 main.py", &[(pid, "MainThread")]);
    it.samples(0, pid, hot, Outcome::Complete, &[function("<module>"), function(name)]);
    it.samples(0, pid, cold, Outcome::Complete, &[function("<module>"), function("cold")]);
    it.model
}

fn in_words(before: &Model, after: &Model) -> String {
    let mut out = Vec::new();
    diff::words(before, after, 10, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 100 && !line.chars().any(escape::is_unsafe), "{line}");
    }
    text
}

fn picture(before: &Model, after: &Model) -> String {
    let mut out = Vec::new();
    diff::picture(before, after, &Options::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn text_says_what_changed_and_by_how_much() {
    insta::assert_snapshot!("diff", in_words(&model(7, 200, 800, "hot"), &model(9, 700, 300, "hot")));
    let same = in_words(&model(7, 200, 800, "hot"), &model(9, 210, 790, "hot"));
    assert!(same.ends_with("No change: whatever differs, chance explains it.\n"), "{same}");
}

#[test]
fn json_is_the_diff_of_the_model() {
    let (before, after) = (model(7, 200, 800, "hot"), model(9, 700, 300, "hot"));
    let mut out = Vec::new();
    diff::json(&before, &after, &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    let own = serde_json::to_string(&pyobs_model::diff::Diff::new(&before, &after)).unwrap();
    assert_eq!(document, serde_json::from_str::<Value>(&own).unwrap());
    assert_eq!((&document["version"], &document["changed"]), (&1.into(), &true.into()));
    assert_eq!(document["frames"]["compared"], 3);
    let rows = document["frames"]["changed"].as_array().unwrap();
    let hot = rows.iter().find(|row| row["place"]["function"] == "hot").unwrap();
    assert_eq!((&hot["own"]["verdict"], &hot["own"]["before"]), (&"more".into(), &0.2.into()));
    assert!(document["offcpu"].is_null());
}

#[test]
fn the_picture_merges_the_processes_of_a_program() {
    let svg = picture(&model(7, 200, 800, "hot"), &model(9, 700, 300, "hot"));
    let texts = parsed_svg(&svg);
    for expected in ["python3.12 (1,000 samples, 100.00%", "hot (main.py) (700 samples, 70.00%; +50.00%)"] {
        assert!(texts.iter().any(|text| text.starts_with(expected)), "{expected}: {texts:#?}");
    }
    assert_eq!(svg, picture(&model(7, 200, 800, "hot"), &model(9, 700, 300, "hot")), "the output is deterministic");
    is_kept("export-diff.svg", &svg);
    let empty = Model::new(meta("host"), History::All);
    assert!(parsed_svg(&picture(&empty, &empty)).iter().any(|text| text.trim() == "no samples"));
}

#[test]
fn missing_data_is_an_error_and_hostile_names_are_text() {
    let options = Options { weight: Weight::Gil, ..Options::default() };
    let model_of = |name| model(7, 100, 100, name);
    let refused = diff::picture(&model_of("a"), &model_of("a"), &options, &mut Vec::new());
    assert!(matches!(refused, Err(Error::NoData(Weight::Gil))));
    let name = "</text><script>\u{1b}[31m;\n\u{202e} 12".repeat(1000);
    let (before, after) = (model_of("a"), model(7, 900, 1, &name));
    in_words(&before, &after);
    assert_eq!(picture(&before, &after).matches("<script").count(), 1, "inferno's own");
}

#[test]
fn growth_is_red_shrinkage_is_blue_and_no_change_is_grey() {
    let (few, many) = (model(7, 200, 800, "hot"), model(9, 700, 300, "hot"));
    for (before, after, grown, shrunk) in [(&few, &many, "hot (", "cold ("), (&many, &few, "cold (", "hot (")] {
        let fills = fills(&picture(before, after));
        let of = |name: &str| fills.iter().find(|(frame, _)| frame.starts_with(name)).map(|(_, fill)| *fill).unwrap();
        let ([r, g, b], [red, green, blue]) = (of(grown), of(shrunk));
        assert!(r > g && g == b, "{grown} is red: {fills:?}");
        assert!(blue > green && green == red, "{shrunk} is blue: {fills:?}");
        // Their caller has no samples of its own in either model.
        let [r, g, b] = of("&lt;module&gt; (");
        assert!(r == g && g == b, "{fills:?}");
    }
    let same = fills(&picture(&few, &model(9, 400, 1600, "hot")));
    assert!(same.iter().all(|(_, [r, g, b])| r == g && g == b), "doubling everything is no change: {same:?}");
}

/// `asks` waits for the GIL behind `holds`, and leaves segments behind.
fn waiting(waits: u64, left: u32) -> Model {
    let mut it = ModelBuilder::new("host");
    let probes = Family::names();
    it.model = Model::new(Meta { probes, ..meta("host") }, History::All);
    it.process(0, 7, "/usr/bin/python3.12 main.py", &[(7, "MainThread"), (8, "other")]);
    let [asks, holds] = ["asks", "holds"].map(|name| frame(FrameKind::Python, name, "/srv/app/main.py", 3, 1));
    it.samples(0, 8, 1000, Outcome::Complete, std::slice::from_ref(&holds));
    let (asks, holds) = (it.stack(&[asks]), it.stack(&[holds]));
    for wait in 1..=waits {
        let (at, process, total) = (Nanos(wait * 100_000_000), ProcessRef(0), Nanos(5_000_000));
        let holder = Some(GilHolder { tid: Tid(8), stack: holds });
        let wait = GilWait {
            from: at.saturating_sub(total),
            stacks: 1,
            at,
            process,
            tid: Tid(7),
            stack: asks,
            holder,
            count: 1,
            total,
            length: total,
        };
        it.model.apply(&Event::GilWait(wait));
    }
    for id in 0..left {
        let (kind, bytes, creator) = (SegmentKind::Shm, 1 << 20, Some(Pid(7)));
        let segment = Segment { dev: 1, ino: id.into(), generation: 0, kind, name: None, linked: true, bytes, creator };
        for change in [SegmentChange::Begun(segment), SegmentChange::Born(asks)] {
            it.model.apply(&Event::Segment { at: Nanos(1), id: SegmentId(id), change });
        }
    }
    it.model
}

#[test]
fn text_has_waits_for_the_gil_segments_and_findings() {
    insta::assert_snapshot!("waits_and_segments_new", in_words(&waiting(0, 0), &waiting(95, 100)));
    insta::assert_snapshot!("waits_and_segments_gone", in_words(&waiting(95, 100), &waiting(0, 0)));
}
