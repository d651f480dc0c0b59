//! Shed intervals appear, with their times, in every export with a time axis and in the report.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::page::{Element, page};
use common::perfetto::timeline;
use common::{ModelBuilder, frame, in_words, meta};
use pyobs_export::{Format, Options};
use pyobs_model::*;

const SECOND: u64 = 1_000_000_000;

/// Families, measures, and the interval in seconds. The last one is in force until the end.
const SHEDS: [(&str, &str, f64, f64); 4] = [
    ("cpu", "samples 1/2", 6.5, 8.25),
    ("offcpu", "stacks 1/8", 2.0, 5.0),
    ("offcpu", "stacks 1/64", 5.0, 7.5),
    ("ucx", "<&>", 9.0, 10.0),
];

fn example() -> Model {
    let mut it = ModelBuilder::new("h");
    it.model = Model::new(Meta { probes: vec!["cpu".into(), "offcpu".into()], ..meta("h") }, History::All);
    it.process(0, 7, "main.py", &[(7, "MainThread")]);
    it.samples(0, 7, 10, Outcome::Complete, &[frame(FrameKind::Python, "work", "/srv/main.py", 2, 1)]);
    let mut changes: Vec<(f64, &str, &str, bool)> = Vec::new();
    for (family, measure, from, to) in SHEDS {
        changes.push((from, family, measure, true));
        changes.extend((to < 10.0).then_some((to, family, measure, false)));
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at, family, measure, on) in changes {
        it.model.apply(&Event::measure(Nanos::from_secs_f64(at), family, measure, on));
    }
    it.model.advance(Nanos(10 * SECOND));
    it.model
}

#[track_caller]
fn assert_times(mut found: Vec<(String, String, f64, f64)>, expected: &[(&str, &str, f64, f64)]) {
    found.sort_by(|a, b| (&a.0, a.2 as u64).cmp(&(&b.0, b.2 as u64)));
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        let is_near = |a: f64, b: f64| (a - b).abs() < 0.01;
        let is_same = (found.0.as_str(), found.1.as_str()) == (expected.0, expected.1);
        assert!(is_same && is_near(found.2, expected.2) && is_near(found.3, expected.3), "{found:?}, not {expected:?}");
    }
}

#[test]
fn perfetto_has_a_track_of_sheds_per_family() {
    let slices = timeline(&example(), &Options::default());
    let found = slices.of("shed").map(|slice| {
        let family = slice.track.join("/").strip_prefix("pyobs sheds: ").unwrap().to_owned();
        (family, slice.name.clone(), slice.from / 1e6, slice.to.unwrap() / 1e6)
    });
    assert_times(found.collect(), &SHEDS);
}

/// Bars of what was shed, with the times of their ends by the page's own axis.
fn bars(page: &Element) -> Vec<(String, String, f64, f64)> {
    let number = |it: &Element, name| it.attribute(name).unwrap().parse::<f64>().unwrap();
    let axis = page.section("timeline").named("svg")[0];
    let [left, width, from, to] = ["data-left", "data-width", "data-from", "data-to"].map(|name| number(axis, name));
    let at = |x: f64| from + (x - left) / width * (to - from);
    let bar = |bar: &&Element| {
        let (family, measure) = bar.text.split_once(' ').unwrap();
        let (x, length) = (number(bar, "x"), number(bar, "width"));
        (family.to_owned(), measure.to_owned(), at(x), at(x + length))
    };
    axis.of_class("shed").iter().map(bar).collect()
}

#[test]
fn the_page_shows_sheds_as_bars_and_as_a_list() {
    let whole = page(&example(), &Options::default());
    assert_times(bars(&whole), &SHEDS);
    let rows: Vec<&str> = whole.section("health").named("li").iter().map(|it| it.text.as_str()).collect();
    for row in ["Shed from 2 s to 5 s: offcpu stacks 1/8", "Shed from 9 s to the end: ucx <&>"] {
        assert!(rows.contains(&row), "{rows:?}");
    }
}

#[test]
fn a_selection_of_the_page_cuts_the_bars() {
    let selection = Selection { from: Some(Nanos(4 * SECOND)), to: Some(Nanos(6 * SECOND)), ..Selection::default() };
    let part = page(&example(), &Options { selection, ..Options::default() });
    assert_times(bars(&part), &[("offcpu", "stacks 1/8", 4.0, 5.0), ("offcpu", "stacks 1/64", 5.0, 6.0)]);
}

#[test]
fn the_report_and_json_have_the_times_of_sheds() {
    let text = in_words(&example(), 10);
    assert!(text.contains("\n  Shed from 2 s to 5 s: offcpu stacks 1/8\n"), "{text}");
    assert!(text.contains("\n  Shed from 9 s to the end: ucx <&>\n"), "{text}");
    let json = common::exported(&example(), Format::Json, &Options::default());
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let found = report["shed"].as_array().unwrap().iter().map(|row| {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        (text("family"), text("measure"), row["from_s"].as_f64().unwrap(), row["to_s"].as_f64().unwrap_or(10.0))
    });
    assert_times(found.collect(), &SHEDS);
}
