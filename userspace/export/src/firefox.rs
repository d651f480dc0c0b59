//! The processed profile of the Firefox Profiler: one track per thread with its samples, and markers for waits, transfers,
//! and the lives of arenas and segments.
//!
//! Format: <https://github.com/firefox-devtools/profiler/blob/main/docs-developer/processed-profile-format.md>, written by
//! the crate `fxprof-processed-profile`. Python frames are flagged as JavaScript, so that the profiler's filter "JavaScript"
//! shows only them.

mod markers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameHandle, FrameInfo, ProcessHandle, Profile,
    ReferenceTimestamp, SamplingInterval, StackHandle, ThreadHandle, Timestamp, WeightType,
};
use pyobs_model::views::{Unit, Weight};
use pyobs_model::{FrameId, FrameKind, Model, Nanos, ProcessRef, StackId, Tid};

use crate::{Error, Options, names};

/// A weight above `i32::MAX` is split into this many samples at most. The rest is dropped.
const PARTS_MAX: u64 = 1024;
/// Weights are whole numbers in this format, and the viewer takes those of times for milliseconds.
const MILLI: u64 = 1_000_000;

pub(crate) fn write(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let mut builder = FirefoxBuilder::new(model, options);
    builder.add_samples();
    builder.add_markers();
    serde_json::to_writer(&mut *out, &builder.profile)?;
    Ok(out.write_all(b"\n")?)
}

struct Categories {
    python: CategoryHandle,
    native: CategoryHandle,
    kernel: CategoryHandle,
    waits: CategoryHandle,
    transfers: CategoryHandle,
    memory: CategoryHandle,
}

struct FirefoxBuilder<'a> {
    model: &'a Model,
    options: &'a Options,
    profile: Profile,
    categories: Categories,
    processes: HashMap<ProcessRef, ProcessHandle>,
    threads: BTreeMap<(ProcessRef, Tid), ThreadHandle>,
    frames: HashMap<(ThreadHandle, FrameId), FrameHandle>,
    stacks: HashMap<(ThreadHandle, StackId), Option<StackHandle>>,
}

impl<'a> FirefoxBuilder<'a> {
    fn new(model: &'a Model, options: &'a Options) -> Self {
        let since = ReferenceTimestamp::from_duration_since_unix_epoch(names::started(model).unwrap_or_default());
        let mut profile = Profile::new("pyobs", since, SamplingInterval::from_nanos(model.meta().period().0));
        profile.set_os_name(&format!("Linux {}", names::metadata(&model.meta().kernel)));
        let categories = Categories {
            python: profile.add_category("Python", CategoryColor::Orange),
            native: profile.add_category("Native", CategoryColor::Blue),
            kernel: profile.add_category("Kernel", CategoryColor::Green),
            waits: profile.add_category("Waits", CategoryColor::Gray),
            transfers: profile.add_category("Transfers", CategoryColor::Purple),
            memory: profile.add_category("Memory", CategoryColor::Brown),
        };
        Self {
            model,
            options,
            profile,
            categories,
            processes: HashMap::new(),
            threads: BTreeMap::new(),
            frames: HashMap::new(),
            stacks: HashMap::new(),
        }
    }

    fn add_samples(&mut self) {
        let weight = self.options.weight;
        let pieces: Vec<_> = weight.pieces(self.model, &self.options.selection).collect();
        let seen: BTreeSet<_> = pieces.iter().map(|(_, place, _)| (place.process, place.tid)).collect();
        for (process, tid) in seen {
            self.thread(process, tid);
        }
        // Nanoseconds that carry over to the thread's next sample.
        let mut rest: HashMap<ThreadHandle, u64> = HashMap::new();
        for (at, place, amount) in pieces {
            let Some(thread) = self.thread(place.process, place.tid) else { continue };
            // CPU time since the thread's previous sample.
            let ran = CpuDelta::from_nanos(match weight {
                Weight::Cpu => amount,
                Weight::Redundant => self.model.meta().period().0,
                Weight::OffCpu | Weight::Gil | Weight::Bytes => 0,
            });
            let mut amount = if weight.unit() == Unit::Nanoseconds {
                let rest = rest.entry(thread).or_default();
                let sum = rest.saturating_add(amount);
                *rest = sum % MILLI;
                sum / MILLI
            } else {
                amount
            };
            // The format's weights have 32 bits and a sign, but a recording may hold any number.
            amount = amount.min(PARTS_MAX * u64::from(i32::MAX.unsigned_abs()));
            while amount > 0 {
                let part = i32::try_from(amount).unwrap_or(i32::MAX);
                amount -= u64::from(part.unsigned_abs());
                let stack = self.stack(thread, place.stack);
                self.profile.add_sample(thread, timestamp(at), stack, ran, part);
            }
        }
    }

    fn thread(&mut self, process: ProcessRef, tid: Tid) -> Option<ThreadHandle> {
        if let Some(thread) = self.threads.get(&(process, tid)) {
            return Some(*thread);
        }
        let state = self.model.process(process)?;
        let begun = timestamp(state.process.started.unwrap_or_default());
        let process_name = names::process_and_main(self.model, process, state);
        let name = names::thread(self.model, process, tid);
        let profile = &mut self.profile;
        let handle = *self.processes.entry(process).or_insert_with(|| {
            let handle = profile.add_process(&process_name, state.process.pid.0, begun);
            if let Some(ended) = state.ended {
                profile.set_process_end_time(handle, timestamp(ended));
            }
            handle
        });
        let thread = profile.add_thread(handle, tid.0, begun, tid.0 == state.process.pid.0);
        profile.set_thread_name(thread, &name);
        let kind = match self.options.weight.unit() {
            Unit::Samples => WeightType::Samples,
            Unit::Nanoseconds => WeightType::TracingMs,
            Unit::Bytes => WeightType::Bytes,
        };
        profile.set_thread_samples_weight_type(thread, kind);
        self.threads.insert((process, tid), thread);
        Some(thread)
    }

    fn stack(&mut self, thread: ThreadHandle, id: StackId) -> Option<StackHandle> {
        if let Some(stack) = self.stacks.get(&(thread, id)) {
            return *stack;
        }
        let mut stack = None;
        for frame in self.options.native.frames(self.model, id) {
            if let Some(frame) = self.frame(thread, frame) {
                stack = Some(self.profile.intern_stack(thread, stack, frame));
            }
        }
        self.stacks.insert((thread, id), stack);
        stack
    }

    fn frame(&mut self, thread: ThreadHandle, id: FrameId) -> Option<FrameHandle> {
        let id = if self.options.lines { id } else { self.model.function_of(id) };
        if let Some(frame) = self.frames.get(&(thread, id)) {
            return Some(*frame);
        }
        let frame = self.model.frame(id)?;
        let name = self.profile.intern_string(&names::frame(frame, self.options.lines));
        let (category, flags) = match frame.kind {
            FrameKind::Python => (self.categories.python, FrameFlags::IS_JS),
            FrameKind::Native => (self.categories.native, FrameFlags::empty()),
            FrameKind::Kernel => (self.categories.kernel, FrameFlags::empty()),
        };
        let info = FrameInfo { frame: Frame::Label(name), category_pair: category.into(), flags };
        let handle = self.profile.intern_frame(thread, info);
        self.frames.insert((thread, id), handle);
        Some(handle)
    }
}

fn timestamp(at: Nanos) -> Timestamp {
    Timestamp::from_nanos_since_reference(at.0)
}
