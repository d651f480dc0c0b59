//! The time that lines of the program spend in Python code of libraries of arrays and tables, and below it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{CalledBack, called_back, library_call};
use crate::families::cpu::CpuSum;
use crate::families::redundancy::Line;
use crate::{FrameId, FrameKind, Model, Nanos, Selection, StackId};

/// Shown instead of the symbol of a native function, which means nothing to users of the library.
const NATIVE: &str = "native code";

/// A function of a library.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LibraryFunction {
    pub package: Arc<str>,
    pub name: Arc<str>,
}

#[derive(Clone, Debug, Default)]
pub struct LibraryTime {
    pub samples: u64,
    /// The CPU time that they represent.
    pub time: Nanos,
    /// Samples in the interpreter; the others are in native code of libraries or in the kernel.
    pub interpreted: u64,
    /// What the line calls, in samples.
    callees: BTreeMap<LibraryFunction, u64>,
    /// Functions of the program that the library calls back, in samples, and their lines.
    callbacks: BTreeMap<Arc<str>, u64>,
    callback_lines: BTreeSet<FrameId>,
}

impl LibraryTime {
    /// The function that the line calls most.
    pub fn callee(&self) -> Option<&LibraryFunction> {
        self.callees.iter().max_by_key(|(_, samples)| **samples).map(|(callee, _)| callee)
    }

    /// The function of the program that the library calls back most.
    pub fn callback(&self) -> Option<&Arc<str>> {
        self.callbacks.iter().max_by_key(|(_, samples)| **samples).map(|(name, _)| name)
    }

    /// The lines of the functions that the library calls back.
    pub fn callback_lines(&self) -> impl Iterator<Item = FrameId> + use<'_> {
        self.callback_lines.iter().copied()
    }

    fn add(&mut self, model: &Model, stack: StackId, callee: FrameId, sum: &CpuSum) {
        self.samples += sum.samples;
        self.time = self.time.saturating_add(sum.time);
        if is_interpreted(model, stack) {
            self.interpreted += sum.samples;
        }
        if let Some(callee) = model.frame(callee) {
            let package = callee.package.clone().unwrap_or_default();
            let is_python = callee.kind == FrameKind::Python;
            let name = if is_python { Arc::clone(&callee.function) } else { Arc::from(NATIVE) };
            let callee = LibraryFunction { package, name };
            *self.callees.entry(callee).or_default() += sum.samples;
        }
    }
}

/// By line of the program. What a library calls back counts for the line that calls the library, too.
pub fn library_times(model: &Model, selection: &Selection) -> BTreeMap<Line, LibraryTime> {
    let mut times: BTreeMap<Line, LibraryTime> = BTreeMap::new();
    for (place, sum) in model.cpu().sums(selection) {
        let process = place.process;
        if let Some((frame, callee)) = library_call(model, place.stack) {
            times.entry(Line { process, frame }).or_default().add(model, place.stack, callee, &sum);
        }
        if let Some(CalledBack { line, callee, function }) = called_back(model, place.stack) {
            let time = times.entry(Line { process, frame: line }).or_default();
            time.add(model, place.stack, callee, &sum);
            let name = model.frame(function).map(|frame| Arc::clone(&frame.function)).unwrap_or_default();
            *time.callbacks.entry(name).or_default() += sum.samples;
            time.callback_lines.insert(function);
        }
    }
    times
}

/// Whether the leaf of a stack is Python code, or the interpreter's own.
fn is_interpreted(model: &Model, stack: StackId) -> bool {
    model.stack(stack).last().is_some_and(|leaf| {
        model.is_interpreter(*leaf) || model.frame(*leaf).is_some_and(|frame| frame.kind == FrameKind::Python)
    })
}
