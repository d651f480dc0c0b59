//! The line of a program that a stack belongs to.

use crate::{Frame, FrameId, FrameKind, Model, StackId};

/// Parts of paths that only installed packages and the standard library have.
const INSTALLED: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python3"];

/// What the interpreter itself, and what runs below it, is in.
const INTERPRETERS: [&str; 6] = ["python", "libpython", "libc.so", "libc-", "libpthread", "ld-"];

/// Where a thread asks something of the interpreter: a line, as [`own_line`] has it, and of a thread of C the innermost
/// function with a name that is not the interpreter's.
pub fn asked_at(model: &Model, stack: StackId) -> Option<FrameId> {
    let is_native = |frame: &Frame| {
        let module = frame.module.as_deref().unwrap_or_default();
        let is_named = frame.kind == FrameKind::Native && !frame.function.starts_with('<');
        is_named && !INTERPRETERS.iter().any(|name| module.starts_with(name))
    };
    let native = || model.stack(stack).iter().rev().find(|id| model.frame(**id).is_some_and(is_native)).copied();
    own_line(model, stack).or_else(native)
}

/// The innermost Python frame that is not of an installed package or the standard library; without one, the innermost.
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
