//! Formats of synthetic models: golden files, hostile names, and empty models.

mod common;

use common::{
    ModelBuilder, OF_SAMPLES, checked_speedscope, exported, fills, frame, in_words, is_kept, meta, parsed_svg,
};
use pyobs_export::{Error, Format, Options, Weight, escape, export, words};
use pyobs_model::*;
use serde_json::Value;

fn example() -> Model {
    use FrameKind::{Kernel, Native, Python};
    let main = |line| frame(Python, "<module>", "/srv/app/main.py", line, 1);
    let insert = |line| frame(Python, "Node.insert", "/srv/app/tree.py", line, 40);
    let mut it = ModelBuilder::new("build-host");
    it.process(0, 4242, "/usr/bin/python3.12 /srv/app/main.py --fast", &[(4242, "MainThread"), (4250, "worker")]);
    it.process(1, 99, "nginx: worker process", &[(99, "nginx")]);
    it.samples(0, 4242, 60, Outcome::Complete, &[main(31), insert(42)]);
    it.samples(0, 4242, 20, Outcome::Complete, &[main(32), insert(43), frame(Native, "cfree", "libc.so.6", 0, 0)]);
    it.samples(0, 4250, 9, Outcome::Truncated, &[frame(Python, "run", "<string>", 1, 1)]);
    it.samples(0, 4242, 5, Outcome::Failed(Reason::FrameInvalid), &[]);
    let kernel = frame(Kernel, "do_syscall_64", "vmlinux", 0, 0);
    it.samples(1, 99, 6, Outcome::NoPython, &[frame(Native, "ngx_worker", "nginx", 0, 0), kernel]);
    let at = Nanos(2_000_000_000);
    it.model.apply(&Event::Loss { at, reason: Reason::RingFull, count: 12_345 });
    it.model.apply(&Event::Cost {
        at,
        bpf: Nanos(4_000_000),
        cpu: Nanos(11_000_000),
        startup: Nanos(3),
        rss_bytes: 34 << 20,
    });
    it.model.apply(&Event::Shed { at, what: "kernel stacks were left out".into() });
    it.model
}

#[test]
fn a_process_has_its_container_in_every_format() {
    let mut it = ModelBuilder::new("build-host");
    it.process(0, 4242, "/usr/bin/python3.12 main.py", &[(4242, "MainThread")]);
    it.container(0, "shop-web");
    it.samples(0, 4242, 10, Outcome::Complete, &[frame(FrameKind::Python, "main", "/srv/main.py", 1, 1)]);
    for format in Format::ALL {
        let mut out = Vec::new();
        export(&it.model, *format, &Options::default(), &mut out).unwrap();
        if *format == Format::Pprof {
            let mut packed = flate2::read::GzDecoder::new(out.as_slice());
            let mut unpacked = Vec::new();
            std::io::Read::read_to_end(&mut packed, &mut unpacked).unwrap();
            out = unpacked;
        }
        assert!(out.windows(8).any(|bytes| bytes == b"shop-web"), "{format}");
    }
}

/// Hostile names, used for processes, threads and frames alike.
fn hostile() -> Model {
    let names = [
        "\u{1b}[31mred\u{1b}[0m".to_owned(),
        "a;b\nc\r\td 12 5".to_owned(),
        "<script>alert(1)</script>]]>&amp;\"'".to_owned(),
        "\u{202e}gnp\u{2066}\u{feff}\u{ffff}\u{fffe}\u{85}\u{9b}2J\u{0}".to_owned(),
        "x".repeat(100_000),
        String::new(),
        "# 1".to_owned(),
        "--".to_owned(),
        "foo_[k]".to_owned(),
        "变量名".repeat(100),
    ];
    let mut it = ModelBuilder::new("</text><script>\u{1b}]0;x\u{7}");
    for (name, id) in names.iter().zip(0..) {
        it.process(id, id, name, &[(id, name)]);
        it.container(id, name);
        let mut stack: Vec<Frame> = Vec::new();
        for other in &names {
            stack.push(frame(FrameKind::Python, other, name, 3, 3));
            stack.push(frame(FrameKind::Native, other, name, 0, 0));
            stack.push(frame(FrameKind::Kernel, other, name, 0, 0));
        }
        it.samples(id, id, 10, Outcome::Complete, &stack);
        let bare = Frame { file: None, line: None, ..frame(FrameKind::Python, name, "", 0, 0) };
        it.samples(id, id, 1, Outcome::Complete, &[bare]);
    }
    it.model.apply(&Event::Shed { at: Nanos(0), what: names.concat().into() });
    it.model
}

fn lines() -> Options {
    Options { lines: true, ..Options::default() }
}

#[test]
fn folded_stacks_follow_the_documented_format() {
    insta::assert_snapshot!("folded", exported(&example(), Format::Folded, &Options::default()));
    insta::assert_snapshot!("folded_lines", exported(&example(), Format::Folded, &lines()));
}

#[test]
fn folded_stacks_of_a_selection() {
    let selection = Selection { tid: Some(Tid(4250)), ..Selection::default() };
    let options = Options { selection, ..Options::default() };
    assert_eq!(exported(&example(), Format::Folded, &options), "python3.12 (4242);run (<string>) 9\n");
    let selection = Selection { to: Some(Nanos(30_000_001)), ..Selection::default() };
    let options = Options { selection, ..Options::default() };
    let stacks = exported(&example(), Format::Folded, &options);
    assert_eq!(stacks, "python3.12 (4242);<module> (main.py);Node.insert (tree.py) 3\n");
}

#[test]
fn hostile_names_stay_inside_their_element_of_a_folded_stack() {
    let text = exported(&hostile(), Format::Folded, &Options::default());
    let mut total = 0;
    for line in text.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        total += count.parse::<u64>().unwrap();
        let elements: Vec<&str> = stack.split(';').collect();
        assert!(elements.len() == 31 || elements.len() == 2, "{line}");
        assert!(elements.iter().all(|element| element.ends_with(')') || element.ends_with("[kernel]")), "{line}");
        assert!(!line.starts_with('#'));
    }
    assert_eq!(total, 110);
}

#[test]
fn the_svg_is_well_formed_and_shows_every_frame() {
    let svg = exported(&example(), Format::Svg, &lines());
    let texts = parsed_svg(&svg);
    for expected in [
        "CPU time on build-host",
        "1.00 s of CPU time · 2.0 s at 100 Hz (cpu-clock) · 2026-01-02T03:04:05Z · orange: Python, blue: native, green: kernel",
        "python3.12 (4242) (94 samples, 94.00%)",
        "Node.insert (tree.py:42) (60 samples, 60.00%)",
        "do_syscall_64 [kernel] (6 samples, 6.00%)",
    ] {
        assert!(texts.iter().any(|text| text == expected), "{expected}: {texts:#?}");
    }
    assert_eq!(svg, exported(&example(), Format::Svg, &lines()), "the output is deterministic");
    is_kept("export-flame.svg", &svg);
}

/// The hue in degrees: 0 is red, 120 green, 240 blue.
fn hue([r, g, b]: [u8; 3]) -> f64 {
    let [r, g, b] = [r, g, b].map(f64::from);
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let of = |from: f64, to: f64, turn: f64| (60.0 * (turn + (from - to) / (most - least))).rem_euclid(360.0);
    if most == r {
        of(g, b, 0.0)
    } else if most == g {
        of(b, r, 2.0)
    } else {
        of(r, g, 4.0)
    }
}

#[test]
fn colours_in_the_svg_match_its_legend() {
    let mut it = ModelBuilder::new("build-host");
    it.process(0, 4242, "python3", &[(4242, "MainThread")]);
    let kinds = [
        (FrameKind::Python, "python_", 25.0..50.0),
        (FrameKind::Native, "native_", 190.0..250.0),
        (FrameKind::Kernel, "kernel_", 90.0..170.0),
    ];
    for (kind, name, _) in &kinds {
        for number in 0..50 {
            it.samples(0, 4242, 1, Outcome::Complete, &[frame(*kind, &format!("{name}{number}"), "a", 0, 0)]);
        }
    }
    let fills = fills(&exported(&it.model, Format::Svg, &Options::default()));
    for (kind, name, hues) in kinds {
        let own: Vec<_> = fills.iter().filter(|(frame, _)| frame.starts_with(name)).collect();
        assert_eq!(own.len(), 50, "{fills:?}");
        assert!(own.iter().all(|(_, fill)| hues.contains(&hue(*fill))), "{kind:?}: {own:?}");
        let shades: std::collections::HashSet<_> = own.iter().map(|(_, fill)| fill).collect();
        assert!(shades.len() > 5, "{} shades tell neighbours apart", shades.len());
    }
}

#[test]
fn hostile_names_are_text_in_the_svg() {
    let options = Options { title: Some("<b>\u{1b}".into()), ..Options::default() };
    let svg = exported(&hostile(), Format::Svg, &options);
    let texts = parsed_svg(&svg);
    assert_eq!(svg.matches("<script").count(), 1, "inferno's own");
    assert!(!svg.chars().any(|c| !matches!(c, '\n' | '\t' | '\r') && escape::is_unsafe(c)));
    assert!(texts.iter().any(|text| text == "&lt;b&gt;\u{fffd}"), "{texts:?}");
    let all = texts.iter().find(|text| text.starts_with("all ("));
    assert_eq!(all.map(String::as_str), Some("all (110 samples, 100%)"));
}

#[test]
fn speedscope_has_a_profile_per_thread() {
    for options in [Options::default(), lines()] {
        let profiles = checked_speedscope(&exported(&example(), Format::Speedscope, &options));
        let names: Vec<&str> = profiles.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(
            names,
            ["python3.12 (4242), MainThread 4242", "python3.12 (4242), worker 4250", "nginx (99), nginx 99"]
        );
        for ((sum, _), samples) in profiles.iter().zip([85.0, 9.0, 6.0]) {
            assert!((sum - samples / 100.0).abs() < 1e-9, "{profiles:?}");
        }
    }
    insta::assert_snapshot!("speedscope", exported(&example(), Format::Speedscope, &Options::default()));
    insta::assert_snapshot!("speedscope_lines", exported(&example(), Format::Speedscope, &lines()));
    assert_eq!(checked_speedscope(&exported(&hostile(), Format::Speedscope, &lines())).len(), 10);
}

#[test]
fn json_is_the_report() {
    let text = exported(&example(), Format::Json, &Options::default());
    insta::assert_snapshot!("json", text);
    let (example, hostile) = (example(), hostile());
    let report = report::Report::new(&example, &Selection::default(), None);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), serde_json::to_value(report).unwrap());
    let text = exported(&hostile, Format::Json, &Options { limit: Some(3), ..Options::default() });
    let report = report::Report::new(&hostile, &Selection::default(), Some(3));
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), serde_json::to_value(report).unwrap());
}

#[test]
fn the_report_matches_the_snapshots() {
    insta::assert_snapshot!("words", in_words(&example(), 10));
    insta::assert_snapshot!("words_limit", in_words(&example(), 1));
}

#[test]
fn hostile_names_stay_in_their_columns_of_the_report() {
    let text = in_words(&hostile(), 100);
    assert!(text.contains("<script>alert(1)"), "{text}");
}

#[test]
fn an_empty_model_is_valid_in_every_format() {
    let model = Model::new(meta("build-host"), History::All);
    assert_eq!(exported(&model, Format::Folded, &Options::default()), "");
    let svg = exported(&model, Format::Svg, &Options::default());
    assert!(parsed_svg(&svg).iter().any(|text| text.trim() == "no samples"));
    let profiles = checked_speedscope(&exported(&model, Format::Speedscope, &Options::default()));
    assert_eq!(profiles, [(0.0, "no samples".to_owned())]);
    insta::assert_snapshot!("empty_json", exported(&model, Format::Json, &Options::default()));
    insta::assert_snapshot!("empty_words", in_words(&model, 10));
}

#[test]
fn data_that_was_not_recorded_is_an_error() {
    let refused = |model: &Model, weight| {
        let options = Options { weight, ..Options::default() };
        let error = export(model, Format::Folded, &options, &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Error::NoData(_)));
        error.to_string()
    };
    let sentence = refused(&example(), Weight::Gil);
    assert!(sentence.contains("no `gil` data"), "{sentence}");
    let model = Model::new(Meta { probes: vec!["gil".into()], ..meta("h") }, History::All);
    assert!(refused(&model, Weight::Cpu).contains("no `cpu` data"));
    assert!(in_words(&model, 10).contains("The probe `cpu` was off"));
    assert!(exported(&model, Format::Json, &Options::default()).contains("\"frames\": null"));
}

#[test]
fn a_rate_of_zero_and_maximal_times_do_no_harm() {
    let mut model = Model::new(Meta { rate_hz: 0, ..meta("h") }, History::All);
    model.apply(&Event::Shed { at: Nanos(u64::MAX), what: "x".into() });
    for format in OF_SAMPLES {
        exported(&model, format, &Options::default());
    }
    in_words(&model, 0);
}

#[test]
fn names_of_formats_round_trip() {
    for format in Format::ALL {
        assert_eq!(format.name().parse::<Format>().unwrap(), *format);
    }
    let sentence = "gif".parse::<Format>().unwrap_err().to_string();
    assert_eq!(
        sentence,
        "unknown format \"gif\"; expected one of: folded, svg, speedscope, pprof, firefox, perfetto, html, json"
    );
}

#[test]
fn a_full_disk_is_an_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for format in OF_SAMPLES {
        assert!(matches!(export(&example(), format, &Options::default(), &mut Full), Err(Error::Write(_))));
    }
    assert!(matches!(words(&example(), Selection::default(), 1, &mut Full), Err(Error::Write(_))));
}
