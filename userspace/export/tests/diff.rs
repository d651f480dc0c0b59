//! What changed, in words, as JSON and as a picture.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::{Builder, frame, meta, parsed_svg};
use pyobs_export::{Error, Options, Weight, diff, escape};
use pyobs_model::*;
use serde_json::Value;

fn model(pid: u32, hot: u64, cold: u64, name: &str) -> Model {
    let function = |function: &str| frame(FrameKind::Python, function, "/srv/app/main.py", 3, 1);
    let mut it = Builder::new("host");
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
fn words_say_what_changed_and_by_how_much() {
    insta::assert_snapshot!("diff", in_words(&model(7, 200, 800, "hot"), &model(9, 700, 300, "hot")));
    let same = in_words(&model(7, 200, 800, "hot"), &model(9, 210, 790, "hot"));
    assert!(same.ends_with("No change: whatever differs, chance explains it.\n"), "{same}");
}

#[test]
fn json_is_the_models() {
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
fn the_picture_has_processes_by_their_program() {
    let svg = picture(&model(7, 200, 800, "hot"), &model(9, 700, 300, "hot"));
    let texts = parsed_svg(&svg);
    for expected in ["python3.12 (1,000 samples, 100.00%", "hot (main.py) (700 samples, 70.00%; +50.00%)"] {
        assert!(texts.iter().any(|text| text.starts_with(expected)), "{expected}: {texts:#?}");
    }
    assert_eq!(svg, picture(&model(7, 200, 800, "hot"), &model(9, 700, 300, "hot")), "always the same");
    let empty = Model::new(meta("host"), History::All);
    assert!(parsed_svg(&picture(&empty, &empty)).iter().any(|text| text.trim() == "no samples"));
}

#[test]
fn what_one_of_them_does_not_have_is_refused_and_hostile_names_are_text() {
    let options = Options { weight: Weight::Gil, ..Options::default() };
    let model_of = |name| model(7, 100, 100, name);
    let refused = diff::picture(&model_of("a"), &model_of("a"), &options, &mut Vec::new());
    assert!(matches!(refused, Err(Error::NoData(Weight::Gil))));
    let name = "</text><script>\u{1b}[31m;\n\u{202e} 12".repeat(1000);
    let (before, after) = (model_of("a"), model(7, 900, 1, &name));
    in_words(&before, &after);
    assert_eq!(picture(&before, &after).matches("<script").count(), 1, "inferno's own");
}
