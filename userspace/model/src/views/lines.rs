//! The line of the program that a stack belongs to.

use crate::families::redundancy::{Depth, Line, Origin};
use crate::package::{self, STANDARD};
use crate::{CalledBy, Frame, FrameId, FrameKind, Model, NativeCall, ProcessRef, StackId};

/// Module names of the interpreter and the libraries below it.
const INTERPRETERS: [&str; 6] = ["python", "libpython", "libc.so", "libc-", "libpthread", "ld-"];

/// Where a thread calls into the interpreter: the line that [`own_line`] finds or, for a native thread, its innermost
/// named function outside the interpreter.
pub fn asked_at(model: &Model, stack: StackId) -> Option<FrameId> {
    let is_native = |frame: &Frame| {
        let module = frame.module.as_deref().unwrap_or_default();
        let is_named = frame.kind == FrameKind::Native && !frame.function.starts_with('<');
        is_named && !is_below_interpreter(module)
    };
    let native = || model.stack(stack).iter().rev().find(|id| model.frame(**id).is_some_and(is_native)).copied();
    own_line(model, stack).or_else(native)
}

/// The innermost Python frame outside installed packages and the standard library, or the innermost one if there is
/// none.
pub fn own_line(model: &Model, stack: StackId) -> Option<FrameId> {
    users_line(model, stack).or_else(|| innermost_line(model, stack))
}

/// Which lines the native code at the leaf of a stack belongs to; `None` without Python frames.
pub fn origin(model: &Model, process: ProcessRef, stack: StackId) -> Option<Origin> {
    let frame = calling_line(model, stack)?;
    let caller = users_line(model, stack).unwrap_or(frame);
    Some(Origin { line: Line { process, frame }, caller })
}

/// Which lines a call belongs to, and how deep below them it is. A function that a library calls belongs to the line of the
/// program that calls the library.
pub fn origin_of_call(model: &Model, call: &NativeCall) -> Option<(Origin, Depth)> {
    let NativeCall { process, stack, called_by, .. } = *call;
    let of_program = |frame| (Origin { line: Line { process, frame }, caller: frame }, Depth::Program);
    match called_by {
        CalledBy::Innermost => {
            let origin = origin(model, process, stack)?;
            let is_own = innermost_line(model, stack) == Some(origin.line.frame);
            Some((origin, if is_own { Depth::Line } else { Depth::Below }))
        }
        CalledBy::Program => users_line(model, stack).map(of_program),
        CalledBy::Library => called_back(model, stack).map(|called| of_program(called.line)),
    }
}

/// The line that called the native code at the leaf of a stack: the innermost Python frame outside the package of that code.
pub fn calling_line(model: &Model, stack: StackId) -> Option<FrameId> {
    let package = native_package(model, stack);
    let is_outside = |frame: &Frame| frame.package.as_deref() != Some(package);
    innermost(model, stack, |frame| is_outside(frame) && is_written(frame))
        .or_else(|| innermost(model, stack, is_outside))
        .or_else(|| innermost_line(model, stack))
}

/// The innermost Python frame.
fn innermost_line(model: &Model, stack: StackId) -> Option<FrameId> {
    innermost(model, stack, |_| true)
}

/// The innermost Python frame outside installed packages and the standard library.
fn users_line(model: &Model, stack: StackId) -> Option<FrameId> {
    innermost(model, stack, is_own)
}

/// The line of the program that calls Python code of a library of arrays, and the frame of that code. `None` if the program
/// calls no such code there.
pub fn library_call(model: &Model, stack: StackId) -> Option<(FrameId, FrameId)> {
    let frames = model.stack(stack);
    let python = |id: &FrameId| model.frame(*id).filter(|frame| frame.kind == FrameKind::Python);
    let own = frames.iter().rposition(|id| python(id).is_some_and(is_own))?;
    // A library may call through code that it has made up.
    let callee = frames[own + 1..].iter().find(|id| python(id).is_some_and(is_written))?;
    let package = python(callee)?.package.as_deref()?;
    package::is_of_arrays(package).then_some((frames[own], *callee))
}

/// A function of the program that a library calls for one element after the other.
pub struct CalledBack {
    /// The line of the program that calls the library, and the library's function: a native one if the call goes through no
    /// Python code of the library.
    pub line: FrameId,
    pub callee: FrameId,
    /// The function of the program that the library calls.
    pub function: FrameId,
}

/// `None` if no library of arrays calls the program's code there.
pub fn called_back(model: &Model, stack: StackId) -> Option<CalledBack> {
    let is_of = |id: FrameId, is_meant: fn(&str) -> bool| {
        model.frame(id).and_then(|frame| frame.package.as_deref()).is_some_and(is_meant)
    };
    let is_library = |id: FrameId| is_of(id, package::applies_functions);
    let is_examined = |id: FrameId| match model.is_python(id) {
        true => model.frame(id).is_some_and(is_written),
        false => is_library(id),
    };
    let frames: Vec<FrameId> = model.stack(stack).iter().rev().copied().filter(|id| is_examined(*id)).collect();
    let is_own = |id: FrameId| model.frame(id).is_some_and(is_own);
    let is_called_back = |pair: &[FrameId]| is_own(pair[0]) && is_library(pair[1]);
    let inner = frames.windows(2).position(is_called_back)?;
    let outer = inner + 1 + frames[inner + 1..].iter().position(|id| is_own(*id))?;
    let between = &frames[inner + 1..outer];
    let callee = *between.iter().rfind(|id| model.is_python(**id)).or(between.last())?;
    let found = CalledBack { line: frames[outer], callee, function: frames[inner] };
    is_of(callee, package::is_of_arrays).then_some(found)
}

/// The package whose native code the innermost Python frame calls. The interpreter's own, and that of the libraries below it,
/// counts as the standard library. A library of no package counts as the package of that frame; recordings until 2026-11-28
/// have no packages of native code.
fn native_package(model: &Model, stack: StackId) -> &str {
    let frames = model.stack(stack);
    let python = frames.iter().rposition(|id| model.is_python(*id));
    let native = frames[python.map_or(0, |python| python + 1)..].iter().filter(|id| !model.is_interpreter(**id));
    let native = native.filter_map(|id| model.frame(*id)).filter(|frame| frame.kind == FrameKind::Native);
    let is_library = |frame: &Frame| !frame.module.as_deref().is_some_and(is_below_interpreter);
    let caller = || python.and_then(|python| model.frame(frames[python])?.package.as_deref());
    match native.clone().find_map(|frame| frame.package.as_deref()) {
        Some(package) => package,
        None if native.clone().any(is_library) => caller().unwrap_or(STANDARD),
        None => STANDARD,
    }
}

fn is_below_interpreter(module: &str) -> bool {
    INTERPRETERS.iter().any(|name| module.starts_with(name))
}

fn is_own(frame: &Frame) -> bool {
    frame.package.is_none() && is_written(frame)
}

/// Whether somebody wrote its line, in a file or at a prompt.
fn is_written(frame: &Frame) -> bool {
    frame.file.as_deref().is_some_and(|file| !package::is_generated(file))
}

/// The innermost Python frame that `is_meant`.
fn innermost(model: &Model, stack: StackId, is_meant: impl Fn(&Frame) -> bool) -> Option<FrameId> {
    let is_it = |id: &&FrameId| {
        let frame = model.frame(**id).filter(|frame| frame.kind == FrameKind::Python);
        frame.is_some_and(&is_meant)
    };
    model.stack(stack).iter().rev().find(is_it).copied()
}
