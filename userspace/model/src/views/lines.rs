//! The line of a program that a stack belongs to.

use crate::{FrameId, FrameKind, Model, StackId};

/// Parts of paths that only installed packages and the standard library have.
const INSTALLED: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python3"];

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
