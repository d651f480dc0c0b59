//! CPU samples as Perfetto's `perf` samples, from which it draws a flame graph per thread and per process.
//!
//! Perfetto's samples have no weight, so one is written per sampling period of CPU time. The remainder carries over to the
//! thread's next sample.

use std::collections::HashMap;

use pyobs_model::{Frame, FrameId, FrameKind, Model, Nanos, ProcessRef, Sample, StackId, Tid};

use super::proto::{Callstack, Frame as FrameMessage, InternedData, InternedString, Mapping, PerfSample};
use super::trace::{TraceWriter, Track};
use crate::escape::{self, MAX_NAME};
use crate::{Error, Native, Options, names};

/// The most copies per sample. The rest is dropped, because a recording may hold any weight.
const COPIES_MAX: u64 = 1 << 10;

/// Interned frames, files and stacks. Each is sent before it is referred to.
#[derive(Default)]
struct Interned {
    frames: HashMap<FrameId, u64>,
    files: HashMap<String, u64>,
    stacks: HashMap<StackId, u64>,
    /// Entries that are still to be sent.
    fresh: InternedData,
}

pub(super) fn write(model: &Model, options: &Options, trace: &mut TraceWriter<'_>) -> Result<(), Error> {
    let period = model.meta().period();
    let mut interned = Interned::default();
    let mut rest: HashMap<(ProcessRef, Tid), u64> = HashMap::new();
    for sample in model.cpu().selected(&options.selection) {
        let Some(state) = model.process(sample.process) else { continue };
        let thread = (trace.process(sample.process), sample.tid);
        let copies = copies(sample, period, rest.entry(thread).or_default());
        if copies == 0 {
            continue;
        }
        trace.describe(Track::Thread(thread.0, thread.1))?;
        let stack = interned.stack(model, sample.stack, options.native);
        let fresh = std::mem::take(&mut interned.fresh);
        let message = PerfSample {
            cpu: Some(sample.cpu),
            pid: Some(state.process.pid.0),
            tid: Some(sample.tid.0),
            callstack_iid: Some(stack),
        };
        trace.sample(sample.at, fresh, message.clone())?;
        for _ in 1..copies {
            trace.sample(sample.at, InternedData::default(), message.clone())?;
        }
    }
    Ok(())
}

/// How many whole periods a sample completes. `rest` is the thread's CPU time since the last whole one.
fn copies(sample: &Sample, period: Nanos, rest: &mut u64) -> u64 {
    let period = period.0.max(1);
    let sum = rest.saturating_add(sample.weight.0);
    *rest = sum % period;
    (sum / period).min(COPIES_MAX)
}

impl Interned {
    fn stack(&mut self, model: &Model, id: StackId, native: Native) -> u64 {
        if let Some(number) = self.stacks.get(&id) {
            return *number;
        }
        let frames = native.frames(model, id);
        let frame_ids = frames.filter_map(|id| Some(self.frame(id, model.frame(id)?))).collect();
        let number = next(self.stacks.len());
        self.stacks.insert(id, number);
        self.fresh.callstacks.push(Callstack { iid: Some(number), frame_ids });
        number
    }

    fn frame(&mut self, id: FrameId, frame: &Frame) -> u64 {
        if let Some(number) = self.frames.get(&id) {
            return *number;
        }
        let file = frame.file.as_deref().or(frame.module.as_deref()).unwrap_or_default();
        let file = self.file(&escape::line(file, MAX_NAME));
        let number = next(self.frames.len());
        self.frames.insert(id, number);
        // Without the line, which would split a function into one box per line in the flame graph.
        self.fresh.function_names.push(string(number, &names::frame(frame, false)));
        let is_python = frame.kind == FrameKind::Python;
        self.fresh.frames.push(FrameMessage {
            iid: Some(number),
            function_name_id: Some(number),
            mapping_id: Some(file),
            source_path_iid: is_python.then_some(file),
            line_number: frame.line.filter(|_| is_python),
        });
        number
    }

    fn file(&mut self, path: &str) -> u64 {
        if let Some(number) = self.files.get(path) {
            return *number;
        }
        let number = next(self.files.len());
        self.files.insert(path.to_owned(), number);
        self.fresh.mapping_paths.push(string(number, path));
        self.fresh.source_paths.push(string(number, path));
        self.fresh.mappings.push(Mapping { iid: Some(number), path_string_ids: vec![number] });
        number
    }
}

/// Interned ids start at 1.
fn next(known: usize) -> u64 {
    known as u64 + 1
}

fn string(number: u64, text: &str) -> InternedString {
    InternedString { iid: Some(number), str: Some(text.as_bytes().to_vec()) }
}
