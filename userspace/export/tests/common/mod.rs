//! Builds synthetic models, and checks the syntax of exports.

#![allow(clippy::allow_attributes, dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

pub mod found;
pub mod page;
pub mod perfetto;

use std::path::Path;
use std::sync::Arc;

use pyobs_export::{Format, Options, escape, export, words};
use pyobs_model::*;
use serde_json::Value;

/// Text formats that show samples.
pub const OF_SAMPLES: [Format; 4] = [Format::Folded, Format::Svg, Format::Speedscope, Format::Json];

pub fn meta(host: &str) -> Meta {
    Meta {
        started: "2026-01-02T03:04:05Z".into(),
        host: host.into(),
        kernel: "6.1.0".into(),
        pyobs: "0.1.0".into(),
        rate_hz: 100,
        cpus: 2,
        probes: vec!["cpu".into()],
        sampler: "cpu-clock".into(),
        ..Meta::default()
    }
}

pub fn frame(kind: FrameKind, function: &str, place: &str, line: u32, first_line: u32) -> Frame {
    let python = kind == FrameKind::Python;
    Frame {
        kind,
        function: function.into(),
        module: (!python).then(|| place.into()),
        file: python.then(|| place.into()),
        line: python.then_some(line),
        first_line: python.then_some(first_line),
        package: None,
    }
}

/// A wait of thread 4250 for the GIL that thread 4242 held, in nanoseconds.
pub fn gil_wait(stack: StackId, at: u64, length: u64) -> Event {
    let (at, length) = (Nanos(at), Nanos(length));
    Event::GilWait(GilWait {
        from: at.saturating_sub(length),
        stacks: 1,
        at,
        process: ProcessRef(0),
        tid: Tid(4250),
        stack,
        holder: Some(GilHolder { tid: Tid(4242), stack }),
        length,
        count: 1,
        total: length,
    })
}

pub struct ModelBuilder {
    pub model: Model,
    frames: Vec<Frame>,
    stacks: u32,
    at: u64,
}

impl ModelBuilder {
    pub fn new(host: &str) -> Self {
        Self { model: Model::new(meta(host), History::All), frames: Vec::new(), stacks: 0, at: 0 }
    }

    pub fn process(&mut self, id: u32, pid: u32, command: &str, threads: &[(u32, &str)]) {
        let process = Process {
            pid: Pid(pid),
            ppid: Pid(1),
            command: command.into(),
            python: Some("3.12.1".into()),
            started: None,
        };
        self.model.apply(&Event::Process { id: ProcessRef(id), process });
        for (tid, name) in threads {
            self.model.apply(&Event::Thread { process: ProcessRef(id), tid: Tid(*tid), name: (*name).into() });
        }
    }

    pub fn container(&mut self, id: u32, name: &str) {
        let container = Container { id: "4f".repeat(32), name: Some(name.to_owned()), ..Container::default() };
        let placement = Placement { container: Some(container.into()), ..Placement::default() };
        self.model.apply(&Event::Placement { process: ProcessRef(id), placement });
    }

    pub fn stack(&mut self, stack: &[Frame]) -> StackId {
        let mut ids = Vec::new();
        for frame in stack {
            let known = self.frames.iter().position(|known| known == frame).unwrap_or_else(|| {
                let id = FrameId(self.frames.len() as u32);
                self.model.apply(&Event::Frame { id, frame: frame.clone() });
                self.frames.push(frame.clone());
                id.0 as usize
            });
            ids.push(FrameId(known as u32));
        }
        let id = StackId(self.stacks);
        self.stacks += 1;
        self.model.apply(&Event::Stack { id, frames: Arc::from(ids) });
        id
    }

    pub fn samples(&mut self, process: u32, tid: u32, count: u64, outcome: Outcome, stack: &[Frame]) {
        let stack = self.stack(stack);
        for _ in 0..count {
            self.at += 10_000_000;
            let (at, process, tid) = (Nanos(self.at), ProcessRef(process), Tid(tid));
            self.model.apply(&Event::Sample(Sample {
                at,
                process,
                tid,
                cpu: 0,
                stack,
                weight: Nanos(10_000_000),
                turn_us: None,
                outcome,
            }));
        }
    }
}

#[track_caller]
pub fn exported(model: &Model, format: Format, options: &Options) -> String {
    let mut out = Vec::new();
    export(model, format, options, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let unsafe_at = text.chars().find(|c| *c != '\n' && escape::is_unsafe(*c));
    // inferno's script contains tabs.
    if format != Format::Svg {
        assert_eq!(unsafe_at, None, "{format}");
    }
    text
}

/// Checks that the XML is well-formed, and returns the text of each element.
#[track_caller]
pub fn parsed_svg(svg: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(svg);
    reader.config_mut().check_end_names = true;
    let (mut texts, mut depth) = (Vec::new(), 0);
    loop {
        match reader.read_event().unwrap() {
            quick_xml::events::Event::Start(start) => {
                depth += 1;
                assert!(!start.attributes().any(|attribute| attribute.is_err()));
                texts.push(String::new());
            }
            quick_xml::events::Event::End(_) => depth -= 1,
            quick_xml::events::Event::Text(text) => {
                if let Some(last) = texts.last_mut() {
                    *last += &text.decode().unwrap();
                }
            }
            quick_xml::events::Event::GeneralRef(entity) => {
                if let Some(last) = texts.last_mut() {
                    *last += &format!("&{};", entity.decode().unwrap());
                }
            }
            quick_xml::events::Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    texts
}

/// The names and colours of the frames.
pub fn fills(svg: &str) -> Vec<(String, [u8; 3])> {
    let mut reader = quick_xml::Reader::from_str(svg);
    let (mut name, mut fills) = (String::new(), Vec::new());
    loop {
        match reader.read_event().unwrap() {
            quick_xml::events::Event::Start(start) if start.name().as_ref() == b"title" => {
                name = reader.read_text(start.name()).unwrap().decode().unwrap().into_owned();
            }
            quick_xml::events::Event::Empty(empty) if empty.name().as_ref() == b"rect" && !name.is_empty() => {
                let fill = empty.try_get_attribute("fill").unwrap().unwrap();
                let fill = String::from_utf8(fill.value.into_owned()).unwrap();
                let channels = fill.trim_start_matches("rgb(").trim_end_matches(')').split(',');
                let channels: Vec<u8> = channels.map(|channel| channel.parse().unwrap()).collect();
                fills.push((std::mem::take(&mut name), channels.try_into().unwrap()));
            }
            quick_xml::events::Event::Eof => return fills,
            _ => {}
        }
    }
}

/// Checks the rules of speedscope's schema, and returns the total weight and the name of each profile.
#[track_caller]
pub fn checked_speedscope(text: &str) -> Vec<(f64, String)> {
    let file: Value = serde_json::from_str(text).unwrap();
    assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
    assert!(file["exporter"].as_str().unwrap().starts_with("pyobs "));
    let frames = file["shared"]["frames"].as_array().unwrap();
    for frame in frames {
        let fields = frame.as_object().unwrap();
        assert!(fields["name"].is_string());
        assert!(fields.get("file").is_none_or(Value::is_string));
        assert!(fields.get("line").is_none_or(Value::is_u64));
        assert!(fields.keys().all(|key| ["name", "file", "line"].contains(&key.as_str())));
    }
    let profiles = file["profiles"].as_array().unwrap();
    assert!(file["activeProfileIndex"].as_u64().unwrap() < profiles.len() as u64);
    let check = |profile: &Value| {
        assert_eq!(profile["type"], "sampled");
        assert!(["seconds", "bytes"].contains(&profile["unit"].as_str().unwrap()));
        let (samples, weights) = (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
        assert_eq!(samples.len(), weights.len());
        for frame in samples.iter().flat_map(|stack| stack.as_array().unwrap()) {
            assert!(frame.as_u64().unwrap() < frames.len() as u64);
        }
        let sum: f64 = weights.iter().map(|weight| weight.as_f64().unwrap()).sum();
        assert_eq!(profile["startValue"].as_f64(), Some(0.0));
        assert!((profile["endValue"].as_f64().unwrap() - sum).abs() < 1e-9);
        (sum, profile["name"].as_str().unwrap().to_owned())
    };
    profiles.iter().map(check).collect()
}

#[track_caller]
pub fn in_words(model: &Model, limit: usize) -> String {
    let mut out = Vec::new();
    words(model, Selection::default(), limit, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{} characters: {line}", line.chars().count());
        assert_eq!(line.chars().find(|c| escape::is_unsafe(*c)), None, "{line}");
    }
    text
}

/// Compares a picture of the documentation with a new one, or replaces it if `PYOBS_PICTURES` is set.
#[track_caller]
pub fn is_kept(name: &str, drawn: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures").join(name);
    if std::env::var_os("PYOBS_PICTURES").is_some() {
        std::fs::write(&path, drawn).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == drawn, "docs/pictures/{name} is out of date; PYOBS_PICTURES=1 writes it again");
}
