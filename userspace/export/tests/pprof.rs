//! Profiles for pprof, decoded again.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use common::{ModelBuilder, frame, meta};
use flate2::read::GzDecoder;
use prost::Message;
use pyobs_export::pprof::proto::{Profile, Sample, ValueType};
use pyobs_export::{Error, Format, Options, Weight, escape, export};
use pyobs_model::*;

#[track_caller]
fn profile(model: &Model, options: &Options) -> Profile {
    let (mut packed, mut bytes) = (Vec::new(), Vec::new());
    export(model, Format::Pprof, options, &mut packed).unwrap();
    GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
    let profile = Profile::decode(bytes.as_slice()).unwrap();
    // The rules of `Profile.CheckValid` in pprof's profile package.
    assert_eq!(profile.string_table[0], "");
    assert!(profile.string_table.iter().all(|text| !text.chars().any(escape::is_unsafe)));
    for sample in &profile.sample {
        assert_eq!(sample.value.len(), profile.sample_type.len());
        assert!(sample.location_id.iter().all(|id| (1..=profile.location.len() as u64).contains(id)));
    }
    for location in &profile.location {
        assert!(location.mapping_id <= profile.mapping.len() as u64);
        assert!(location.line.iter().all(|line| (1..=profile.function.len() as u64).contains(&line.function_id)));
    }
    profile
}

fn text(profile: &Profile, at: i64) -> &str {
    &profile.string_table[usize::try_from(at).unwrap()]
}

fn types(profile: &Profile) -> Vec<(&str, &str)> {
    let of = |kind: &ValueType| (text(profile, kind.kind), text(profile, kind.unit));
    profile.sample_type.iter().map(of).collect()
}

/// `name:line`, leaf first.
fn stack(profile: &Profile, sample: &Sample) -> Vec<String> {
    let of = |id: &u64| {
        let line = profile.location[*id as usize - 1].line[0];
        let function = profile.function[line.function_id as usize - 1];
        format!("{}:{}", text(profile, function.name), line.line)
    };
    sample.location_id.iter().map(of).collect()
}

fn labels<'a>(profile: &'a Profile, sample: &Sample) -> BTreeMap<&'a str, (&'a str, i64)> {
    sample.label.iter().map(|it| (text(profile, it.key), (text(profile, it.text), it.number))).collect()
}

fn of(weight: Weight) -> Options {
    Options { weight, ..Options::default() }
}

fn example() -> Model {
    use FrameKind::{Kernel, Native, Python};
    let main = |line| frame(Python, "<module>", "/srv/app/main.py", line, 1);
    let mut it = ModelBuilder::new("host");
    it.model = Model::new(Meta { probes: vec!["cpu".into(), "offcpu".into()], ..meta("host") }, History::All);
    it.process(0, 4242, "/usr/bin/python3.12 main.py", &[(4242, "MainThread"), (4250, "worker")]);
    let insert = frame(Python, "Node.insert", "/srv/app/tree.py", 42, 40);
    it.samples(0, 4242, 60, Outcome::Complete, &[main(31), insert]);
    it.samples(0, 4242, 7, Outcome::Complete, &[main(32), frame(Native, "cfree", "libc.so.6", 0, 0)]);
    let read = it.stack(&[main(33), frame(Kernel, "ksys_read", "vmlinux", 0, 0)]);
    it.model.apply(&Event::Sleep(Sleep {
        from: Nanos(900_000_000).saturating_sub(Nanos(12_345_678)),
        stacks: 3,
        at: Nanos(900_000_000),
        process: ProcessRef(0),
        tid: Tid(4250),
        stack: read,
        reason: WaitReason::Io,
        length: Nanos(5_000_000),
        count: 3,
        total: Nanos(12_345_678),
        waker: None,
    }));
    it.model
}

#[test]
fn every_recorded_weight_is_a_sample_type() {
    let profile = profile(&example(), &Options::default());
    assert_eq!(types(&profile), [("samples", "count"), ("cpu", "nanoseconds"), ("offcpu", "nanoseconds")]);
    let rows: Vec<_> = profile.sample.iter().map(|it| (stack(&profile, it), it.value.clone())).collect();
    let expected = [
        (vec!["Node.insert:42", "<module>:31"], vec![60, 600_000_000, 0]),
        (vec!["cfree:0", "<module>:32"], vec![7, 70_000_000, 0]),
        (vec!["ksys_read [kernel]:0", "<module>:33"], vec![0, 0, 12_345_678]),
    ];
    let expected = expected.map(|(stack, value)| (stack.into_iter().map(str::to_owned).collect::<Vec<_>>(), value));
    assert_eq!(rows, expected);
    assert_eq!(text(&profile, profile.default_sample_type), "cpu");
    assert_eq!((profile.period, profile.time_nanos), (10_000_000, 1_767_323_045_000_000_000));
    assert_eq!(profile.duration_nanos, 900_000_000);
    assert_eq!(profile.function.len(), 4, "the lines of a function share one function");
    let main = profile.function.iter().find(|it| text(&profile, it.name) == "<module>").unwrap();
    assert_eq!((text(&profile, main.filename), main.start_line), ("/srv/app/main.py", 1));
    let mappings: Vec<&str> = profile.mapping.iter().map(|it| text(&profile, it.filename)).collect();
    assert_eq!(mappings, ["python3.12", "libc.so.6", "[kernel]"], "the first mapping is the profiled program");
}

#[test]
fn several_programs_are_named_or_counted() {
    for (programs, file) in [(&["a", "b", "a"][..], "a, b"), (&["a", "b", "c", "d"], "4 programs")] {
        let mut it = ModelBuilder::new("host");
        for (program, id) in programs.iter().zip(0..) {
            it.process(id, 10 + id, program, &[]);
            it.samples(id, 10 + id, 1, Outcome::Complete, &[frame(FrameKind::Native, "main", "libc.so.6", 0, 0)]);
        }
        let profile = profile(&it.model, &Options::default());
        assert_eq!(text(&profile, profile.mapping[0].filename), file);
    }
}

#[test]
fn samples_are_labelled_with_process_and_thread() {
    let profile = profile(&example(), &of(Weight::OffCpu));
    let labels = labels(&profile, &profile.sample[2]);
    let expected = [("pid", ("", 4242)), ("process", ("python3.12 (4242)", 0))];
    let expected = expected.into_iter().chain([("thread", ("worker 4250", 0)), ("tid", ("", 4250))]);
    assert_eq!(labels, expected.collect());
    assert_eq!(text(&profile, profile.default_sample_type), "offcpu");
}

#[test]
fn a_selection_leaves_the_rest_out() {
    let selection = Selection { tid: Some(Tid(4250)), ..Selection::default() };
    let profile = profile(&example(), &Options { selection, ..Options::default() });
    assert_eq!(profile.sample.len(), 1);
    assert_eq!(profile.sample[0].value, [0, 0, 12_345_678]);
}

#[test]
fn a_family_that_was_off_is_an_error_and_an_empty_model_is_a_profile() {
    let refused = export(&example(), Format::Pprof, &of(Weight::Gil), &mut Vec::new());
    assert!(matches!(refused, Err(Error::NoData(Weight::Gil))));
    let empty = profile(&Model::new(meta("host"), History::All), &Options::default());
    assert_eq!((empty.sample.len(), types(&empty).len()), (0, 2));
}

#[test]
fn hostile_names_and_numbers_do_no_harm() {
    let name = "\u{1b}[31m;\n\"<script>]]>&\u{202e}\0".repeat(4000);
    let mut it = ModelBuilder::new(&name);
    it.model = Model::new(
        Meta { rate_hz: 0, started: name.clone(), probes: vec!["offcpu".into(), "cpu".into()], ..meta(&name) },
        History::All,
    );
    it.process(0, u32::MAX, &name, &[(u32::MAX, &name)]);
    let kinds = [FrameKind::Python, FrameKind::Native, FrameKind::Kernel];
    let frames = kinds.map(|kind| frame(kind, &name, &name, u32::MAX, u32::MAX));
    it.samples(0, u32::MAX, 3, Outcome::Complete, &frames);
    let stack = it.stack(&frames);
    let sleep = Sleep {
        from: Nanos(u64::MAX).saturating_sub(Nanos(u64::MAX)),
        stacks: u64::MAX,
        at: Nanos(u64::MAX),
        process: ProcessRef(0),
        tid: Tid(1),
        stack,
        reason: WaitReason::Other,
        length: Nanos(u64::MAX),
        count: u64::MAX,
        total: Nanos(u64::MAX),
        waker: Some(Waker { pid: Pid(1), tid: Tid(1), name: Arc::from(name.as_str()) }),
    };
    it.model.apply(&Event::Sleep(sleep.clone()));
    it.model.apply(&Event::Sleep(sleep));
    let profile = profile(&it.model, &Options::default());
    assert!(profile.sample.iter().flat_map(|it| &it.value).all(|value| *value >= 0));
    assert!(profile.string_table.iter().all(|text| text.chars().count() <= escape::MAX_NAME + 20));
    assert_eq!(profile.time_nanos, 0);
}
