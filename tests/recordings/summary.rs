//! A few lines about an export that say what is in it, and a digest of all of it. Whole exports would be megabytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::Read;

use flate2::read::GzDecoder;
use pyobs_tests::{Case, case, command, pyobs};
use regex::Regex;
use serde_json::Value;

use crate::digest::digest;
use crate::protobuf::{self, Value as Proto};

/// The name of a format, and what its summary says besides the digest.
type Summary = (&'static str, fn(&[u8]) -> Vec<String>);

/// Every format of `pyobs export`.
pub const FORMATS: &[Summary] = &[
    ("folded", |bytes| folded(text(bytes))),
    ("svg", |bytes| svg(text(bytes))),
    ("speedscope", |bytes| speedscope(&parsed(bytes))),
    ("pprof", pprof),
    ("firefox", |bytes| firefox(&parsed(bytes))),
    ("perfetto", perfetto),
    ("html", |bytes| html(text(bytes))),
    ("json", |bytes| json(&parsed(bytes))),
];
/// The rows of a list that a summary has.
const ROWS: usize = 5;

pub fn cases() -> Vec<Case> {
    vec![case("corpus/every_format_is_exported", every_format)]
}

fn every_format() {
    let help = command(pyobs()).args(["export", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let list = help.split_once("--format <FORMAT>").unwrap().1.split_once("--output").unwrap().0;
    let names = Regex::new(r"(?m)^ +- ([a-z]+):").unwrap();
    let named: BTreeSet<&str> = names.captures_iter(list).map(|row| row.get(1).unwrap().as_str()).collect();
    assert_eq!(named, FORMATS.iter().map(|(name, _)| *name).collect(), "{list}");
}

/// The format, the digest and what is in it.
#[track_caller]
pub fn of(format: &str, bytes: &[u8]) -> String {
    // How well a compressor works is no part of the format.
    let unpacked = if format == "pprof" { unpack(bytes) } else { bytes.to_vec() };
    let mut text = format!("{format}: {} bytes, digest {:016x}\n", unpacked.len(), digest(&unpacked));
    let (_, summary) = FORMATS.iter().find(|(name, _)| *name == format).expect("it has a summary");
    for line in summary(&unpacked) {
        writeln!(text, "  {line}").unwrap();
    }
    text
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn unpack(bytes: &[u8]) -> Vec<u8> {
    let mut unpacked = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut unpacked).unwrap();
    unpacked
}

/// The stacks with the largest sizes.
fn folded(text: &str) -> Vec<String> {
    let split = |line: &str| -> (u64, String) {
        let (stack, size) = line.rsplit_once(' ').unwrap();
        (size.parse().unwrap(), stack.to_owned())
    };
    let mut stacks: Vec<(u64, String)> = text.lines().map(split).collect();
    let sum: u64 = stacks.iter().map(|(size, _)| size).sum();
    stacks.sort_by(|one, other| other.cmp(one));
    let mut lines = vec![format!("{} stacks, {sum} in all", stacks.len())];
    lines.extend(stacks.iter().take(ROWS).map(|(size, stack)| format!("{size} {stack}")));
    lines
}

fn svg(text: &str) -> Vec<String> {
    let titles = Regex::new("<title>([^<]*)</title>").unwrap();
    let titles: Vec<&str> = titles.captures_iter(text).map(|title| title.get(1).unwrap().as_str()).collect();
    let mut lines = vec![format!("{} titles, {} boxes", titles.len(), text.matches("<rect").count())];
    lines.extend(titles.iter().take(ROWS).map(|title| (*title).to_owned()));
    lines
}

fn list<'a>(document: &'a Value, path: &str) -> &'a [Value] {
    document.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn speedscope(document: &Value) -> Vec<String> {
    let mut lines = vec![
        format!("{}", document["name"]),
        format!("{} frames, {} profiles", list(document, "/shared/frames").len(), list(document, "/profiles").len()),
    ];
    for profile in list(document, "/profiles").iter().take(ROWS) {
        let samples = list(profile, "/samples").len();
        lines.push(format!("{}: {samples} samples, {} {}", profile["name"], profile["endValue"], profile["unit"]));
    }
    lines
}

/// Fields of <https://github.com/google/pprof/blob/main/proto/profile.proto>.
fn pprof(bytes: &[u8]) -> Vec<String> {
    const SAMPLE_TYPE: u64 = 1;
    const SAMPLE: u64 = 2;
    const STRING_TABLE: u64 = 6;
    const COUNTED: [(&str, u64); 5] =
        [("samples", SAMPLE), ("mappings", 3), ("locations", 4), ("functions", 5), ("strings", STRING_TABLE)];
    let fields = protobuf::fields(bytes);
    let of = |number: u64| {
        fields.iter().filter_map(move |field| match *field {
            (found, Proto::Bytes(bytes)) if found == number => Some(bytes),
            _ => None,
        })
    };
    let strings: Vec<_> = of(STRING_TABLE).map(String::from_utf8_lossy).collect();
    let mut sums: Vec<u64> = Vec::new();
    for sample in of(SAMPLE) {
        for field in protobuf::fields(sample) {
            let (2, Proto::Bytes(values)) = field else { continue };
            let values = protobuf::packed(values);
            sums.resize(values.len(), 0);
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    let counts: Vec<String> = COUNTED.iter().map(|(name, number)| format!("{} {name}", of(*number).count())).collect();
    let mut lines = vec![counts.join(", ")];
    for (at, kind) in of(SAMPLE_TYPE).enumerate() {
        let words = protobuf::fields(kind).into_iter().map(|(_, value)| match value {
            Proto::Number(index) => strings[index as usize].to_string(),
            Proto::Bytes(_) => panic!("a name that is no number"),
        });
        lines.push(format!("{}: {}", words.collect::<Vec<_>>().join(" in "), sums.get(at).unwrap_or(&0)));
    }
    lines
}

fn firefox(document: &Value) -> Vec<String> {
    let threads = list(document, "/threads");
    let mut lines = vec![format!("{}, {} threads", document["meta"]["product"], threads.len())];
    for thread in threads.iter().take(ROWS) {
        let count = |what: &str| thread[what]["length"].as_u64().unwrap_or_default();
        let (samples, markers) = (count("samples"), count("markers"));
        lines.push(format!("{} {}: {samples} samples, {markers} markers", thread["processName"], thread["name"]));
    }
    lines
}

/// How many packets have each field. The numbers are those of
/// <https://github.com/google/perfetto/blob/main/protos/perfetto/trace/trace_packet.proto>.
fn perfetto(bytes: &[u8]) -> Vec<String> {
    const FIELDS: [(&str, u64); 4] =
        [("events", 11), ("interned data", 12), ("descriptors of tracks", 60), ("samples", 66)];
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    let packets = protobuf::fields(bytes);
    for packet in &packets {
        let (1, Proto::Bytes(packet)) = packet else { panic!("no packet: {packet:?}") };
        for (number, _) in protobuf::fields(packet) {
            *counts.entry(number).or_default() += 1;
        }
    }
    let counted = FIELDS.map(|(name, number)| format!("{} {name}", counts.get(&number).unwrap_or(&0)));
    vec![format!("{} packets: {}", packets.len(), counted.join(", "))]
}

/// The headings, and the rows of all tables.
fn html(text: &str) -> Vec<String> {
    let headings = Regex::new("<h[1-3][^>]*>(.*?)</h[1-3]>").unwrap();
    let tags = Regex::new("<[^>]*>").unwrap();
    let headings = headings.captures_iter(text).map(|found| tags.replace_all(&found[1], "").into_owned());
    let headings: Vec<String> = headings.collect();
    let counts = ["<table", "<tr", "<svg"].map(|tag| text.matches(tag).count());
    let [tables, rows, pictures] = counts;
    vec![format!("{tables} tables, {rows} rows, {pictures} pictures"), headings.join(" | ")]
}

/// The lists and how long they are.
fn json(document: &Value) -> Vec<String> {
    let mut lengths = Vec::new();
    for (key, value) in document.as_object().unwrap() {
        match value {
            Value::Array(rows) => lengths.push(format!("{} {key}", rows.len())),
            Value::Object(keys) => {
                lengths.extend(
                    keys.iter().filter_map(|(inner, value)| {
                        value.as_array().map(|rows| format!("{} {key}/{inner}", rows.len()))
                    }),
                );
            }
            _ => {}
        }
    }
    vec![lengths.join(", ")]
}
