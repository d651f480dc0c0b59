//! Formats that show single events say how many they do not show.

mod common;

use common::{ModelBuilder, exported, frame, meta};
use pyobs_export::{Format, Options, Weight, left_out};
use pyobs_model::*;

const COUNT: u64 = 30;
const KEPT: usize = 10;
const MS: u64 = 1_000_000;

fn model() -> Model {
    let mut it = ModelBuilder::new("h");
    let history = History::Sums { events: KEPT, from: None, to: None };
    it.model = Model::new(Meta { probes: vec!["cpu".into(), "offcpu".into()], ..meta("h") }, history);
    it.process(0, 42, "python3.12 a.py", &[(42, "MainThread")]);
    let stack = it.stack(&[frame(FrameKind::Python, "f", "a.py", 1, 1)]);
    for number in 0..COUNT {
        let (at, process, tid, weight) = (Nanos(number * MS), ProcessRef(0), Tid(42), Nanos(10 * MS));
        it.model.apply(&Event::Sample(Sample {
            at,
            process,
            tid,
            cpu: 0,
            stack,
            weight,
            turn_us: None,
            outcome: Outcome::Complete,
        }));
    }
    it.model
}

#[test]
fn the_file_and_the_sentence_say_what_is_missing() {
    let (model, options) = (model(), Options::default());
    let note = "without 20 samples before 0.019 s";
    for format in [Format::Speedscope, Format::Firefox, Format::Html] {
        let sentence = left_out(&model, format, &options).unwrap();
        assert!(sentence.starts_with(&format!("{format} is {note}: ")), "{sentence}");
        assert!(exported(&model, format, &options).contains(note), "{format}");
    }
    let mut trace = Vec::new();
    pyobs_export::export(&model, Format::Perfetto, &options, &mut trace).unwrap();
    assert!(String::from_utf8_lossy(&trace).contains(note));
}

#[test]
fn sums_miss_nothing() {
    let (model, options) = (model(), Options::default());
    for format in [Format::Folded, Format::Svg, Format::Pprof, Format::Json] {
        assert_eq!(left_out(&model, format, &options), None, "{format}");
    }
    assert_eq!(exported(&model, Format::Folded, &options), "python3.12 (42);f (a.py) 30\n");
    let sleeps = Options { weight: Weight::OffCpu, ..options };
    assert_eq!(left_out(&model, Format::Speedscope, &sleeps), None, "no sleep is missing");
}
