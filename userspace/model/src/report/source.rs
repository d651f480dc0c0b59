//! The input of a report.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::{FrameOut, StackOut};
use crate::{Model, StackId};

/// A model, and its stacks in JSON form.
pub(super) struct Source<'model> {
    pub(super) model: &'model Model,
    stacks: RefCell<HashMap<StackId, StackOut>>,
}

impl<'model> Source<'model> {
    pub(super) fn new(model: &'model Model) -> Self {
        Self { model, stacks: RefCell::default() }
    }

    pub(super) fn stack(&self, id: StackId) -> StackOut {
        let frames = || self.model.stack(id).iter().filter_map(|frame| self.model.frame(*frame)).map(FrameOut::from);
        Arc::clone(self.stacks.borrow_mut().entry(id).or_insert_with(|| frames().collect()))
    }

    /// Empty if there is no stack.
    pub(super) fn maybe_stack(&self, id: Option<StackId>) -> StackOut {
        id.map(|id| self.stack(id)).unwrap_or_default()
    }
}
