//! The line of the program that a stack belongs to.

use crate::{Frame, FrameId, FrameKind, Model, StackId};

/// Path components of installed packages and the standard library.
const INSTALLED: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python3"];

/// Module names of the interpreter and the libraries below it.
const INTERPRETERS: [&str; 6] = ["python", "libpython", "libc.so", "libc-", "libpthread", "ld-"];

/// Where a thread calls into the interpreter: the line that [`own_line`] finds or, for a native thread, its innermost
/// named function outside the interpreter.
pub fn asked_at(model: &Model, stack: StackId) -> Option<FrameId> {
    let is_native = |frame: &Frame| {
        let module = frame.module.as_deref().unwrap_or_default();
        let is_named = frame.kind == FrameKind::Native && !frame.function.starts_with('<');
        is_named && !INTERPRETERS.iter().any(|name| module.starts_with(name))
    };
    let native = || model.stack(stack).iter().rev().find(|id| model.frame(**id).is_some_and(is_native)).copied();
    own_line(model, stack).or_else(native)
}

/// The innermost Python frame outside installed packages and the standard library, or the innermost one if there is
/// none.
pub fn own_line(model: &Model, stack: StackId) -> Option<FrameId> {
    let python = |id: &FrameId| model.frame(*id).filter(|frame| frame.kind == FrameKind::Python);
    let is_own = |id: &&FrameId| {
        let file = python(id).and_then(|frame| frame.file.as_deref());
        file.is_some_and(|file| !file.starts_with('<') && !INSTALLED.iter().any(|part| file.contains(part)))
    };
    let frames = model.stack(stack);
    let innermost = || frames.iter().rev().find(|id| python(id).is_some());
    frames.iter().rev().find(is_own).or_else(innermost).copied()
}
