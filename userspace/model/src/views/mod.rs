//! Tables and trees over a model, for screens, reports and exports alike.

mod frames;
mod processes;
mod tree;

pub use frames::{FrameRow, FramesView, frames};
pub use processes::{ProcessRow, processes};
pub use tree::{Node, NodeId, Tree, tree};

use crate::{FrameId, FrameKind, Model, StackId};

/// What makes two frames the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    #[default]
    Line,
    /// All lines of a function are one; they are shown at its first line.
    Function,
}

/// How stacks are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Look {
    pub by: By,
    /// Leaves out native and kernel frames of stacks that have Python frames, so that a Python line's own share
    /// includes the native code below it. Stacks without Python frames stay whole.
    pub python_only: bool,
}

impl Look {
    /// The frames of a stack as this look sees them, root first.
    pub fn frames(self, model: &Model, stack: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let frames = model.stack(stack);
        let is_python = |id: &FrameId| model.frame(*id).is_some_and(|frame| frame.kind == FrameKind::Python);
        let skip = self.python_only && frames.iter().any(is_python);
        frames.iter().filter(move |id| !skip || is_python(id)).map(move |id| match self.by {
            By::Line => *id,
            By::Function => model.function_of(*id),
        })
    }
}
