//! The JSON of speedscope.app: one profile per thread, with its samples in the order of time.
//!
//! Format: <https://www.speedscope.app/file-format-schema.json>.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use pyobs_model::views::{By, Look, Unit};
use pyobs_model::{Frame, FrameId, Model, ProcessRef, StackId, Tid};
use serde::{Serialize, Serializer};

use crate::escape::{self, MAX_NAME};
use crate::{Error, Format, Options, left_out, names};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: String,
    #[serde(rename = "activeProfileIndex")]
    active: usize,
    shared: Shared,
    profiles: Vec<ThreadProfile<'a>>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<SharedFrame>,
}

#[derive(Serialize)]
struct SharedFrame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
struct ThreadProfile<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: f64,
    #[serde(rename = "endValue")]
    end: f64,
    samples: Samples<'a>,
    weights: Vec<f64>,
}

/// Expands stacks to lists of frame numbers while they are written, because the lists take many times the memory of the stack
/// numbers.
struct Samples<'a> {
    stacks: Vec<StackId>,
    model: &'a Model,
    look: Look,
    numbers: &'a HashMap<FrameId, usize>,
}

impl Serialize for Samples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.stacks.iter().map(|stack| -> Vec<usize> {
            let frames = self.look.frames(self.model, *stack);
            frames.filter_map(|frame| self.numbers.get(&frame).copied()).collect()
        }))
    }
}

pub(crate) fn write(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let by = if options.lines { By::Line } else { By::Function };
    let look = Look { by, native: options.native, weight: options.weight, ..Look::default() };
    let mut threads: BTreeMap<(ProcessRef, Tid), Vec<(StackId, u64)>> = BTreeMap::new();
    let (mut numbers, mut frames) = (HashMap::new(), Vec::new());
    for (_, place, weight) in options.weight.pieces(model, &options.selection) {
        let runs = threads.entry((place.process, place.tid)).or_default();
        match runs.last_mut() {
            // Consecutive samples of one stack merge into one.
            Some((stack, sum)) if *stack == place.stack => *sum = sum.saturating_add(weight),
            _ => runs.push((place.stack, weight)),
        }
        for id in look.frames(model, place.stack) {
            if let Some(frame) = model.frame(id) {
                numbers.entry(id).or_insert_with(|| {
                    frames.push(shared(frame, options.lines));
                    frames.len() - 1
                });
            }
        }
    }
    // Speedscope opens the first profile, so that is the busiest thread's.
    let mut threads: Vec<_> = threads.into_iter().collect();
    let total = |runs: &[(StackId, u64)]| runs.iter().fold(0, |sum: u64, (_, weight)| sum.saturating_add(*weight));
    threads.sort_by_key(|(_, runs)| std::cmp::Reverse(total(runs)));
    let (unit, each) = match options.weight.unit() {
        Unit::Samples => ("seconds", f64::from(model.meta().rate_hz.max(1))),
        Unit::Nanoseconds => ("seconds", 1e9),
        Unit::Bytes => ("bytes", 1.0),
    };
    let profile = |name, runs: &[(StackId, u64)]| ThreadProfile {
        kind: "sampled",
        name,
        unit,
        start: 0.0,
        end: total(runs) as f64 / each,
        samples: Samples { stacks: runs.iter().map(|(stack, _)| *stack).collect(), model, look, numbers: &numbers },
        weights: runs.iter().map(|(_, weight)| *weight as f64 / each).collect(),
    };
    let mut profiles: Vec<ThreadProfile<'_>> =
        threads.iter().map(|((process, tid), runs)| profile(thread(model, *process, *tid), runs)).collect();
    if profiles.is_empty() {
        // Speedscope refuses a file without profiles.
        profiles.push(profile(names::empty_selection(options.weight).to_owned(), &[]));
    }
    let missing = left_out::note(model, Format::Speedscope, options);
    let file = File {
        schema: SCHEMA,
        name: [names::title(model, options, MAX_NAME)].into_iter().chain(missing).collect::<Vec<_>>().join(", "),
        exporter: format!("pyobs {}", env!("CARGO_PKG_VERSION")),
        active: 0,
        shared: Shared { frames },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    Ok(out.write_all(b"\n")?)
}

fn shared(frame: &Frame, lines: bool) -> SharedFrame {
    let file = frame.file.as_deref().or(frame.module.as_deref());
    SharedFrame {
        name: names::function(frame),
        file: file.map(|file| escape::tail(file, MAX_NAME).into_owned()),
        line: if lines { frame.line } else { frame.first_line },
    }
}

fn thread(model: &Model, process: ProcessRef, tid: Tid) -> String {
    let Some(state) = model.process(process) else { return tid.to_string() };
    format!("{}, {}", names::process_in_container(state), names::thread(model, process, tid))
}
