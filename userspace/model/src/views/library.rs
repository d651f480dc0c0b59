//! The time that lines of the program spend in Python code of libraries of arrays and tables, and below it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::library_call;
use crate::families::redundancy::Line;
use crate::{FrameKind, Model, Nanos, Selection, StackId};

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
}

impl LibraryTime {
    /// The function that the line calls most.
    pub fn callee(&self) -> Option<&LibraryFunction> {
        self.callees.iter().max_by_key(|(_, samples)| **samples).map(|(callee, _)| callee)
    }
}

/// By line of the program.
pub fn library_times(model: &Model, selection: &Selection) -> BTreeMap<Line, LibraryTime> {
    let mut times: BTreeMap<Line, LibraryTime> = BTreeMap::new();
    for (place, sum) in model.cpu().sums(selection) {
        let Some((frame, callee)) = library_call(model, place.stack) else { continue };
        let Some(callee) = model.frame(callee) else { continue };
        let time = times.entry(Line { process: place.process, frame }).or_default();
        time.samples += sum.samples;
        time.time = time.time.saturating_add(sum.time);
        if is_interpreted(model, place.stack) {
            time.interpreted += sum.samples;
        }
        let package = callee.package.clone().unwrap_or_default();
        let callee = LibraryFunction { package, name: Arc::clone(&callee.function) };
        *time.callees.entry(callee).or_default() += sum.samples;
    }
    times
}

/// Whether the leaf of a stack is Python code, or the interpreter's own.
fn is_interpreted(model: &Model, stack: StackId) -> bool {
    model.stack(stack).last().is_some_and(|leaf| {
        model.is_interpreter(*leaf) || model.frame(*leaf).is_some_and(|frame| frame.kind == FrameKind::Python)
    })
}
