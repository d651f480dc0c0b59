//! The input of a report.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::{FrameOut, StackOut};
use crate::{Model, Selection, StackId};

/// How many stacks are kept in JSON form. Others are made again.
const STACKS: usize = 1 << 10;

/// A model, the part of it that the report covers, and its stacks in JSON form.
pub(super) struct Source<'model> {
    pub(super) model: &'model Model,
    pub(super) selection: Selection,
    /// The maximum length of the lists that grow with the program.
    pub(super) limit: usize,
    stacks: RefCell<HashMap<StackId, StackOut>>,
}

impl<'model> Source<'model> {
    pub(super) fn new(model: &'model Model, selection: Selection, limit: usize) -> Self {
        Self { model, selection, limit, stacks: RefCell::default() }
    }

    pub(super) fn stack(&self, id: StackId) -> StackOut {
        let frames = || self.model.stack(id).iter().filter_map(|frame| self.model.frame(*frame)).map(FrameOut::from);
        let mut stacks = self.stacks.borrow_mut();
        if stacks.len() >= STACKS && !stacks.contains_key(&id) {
            stacks.clear();
        }
        Arc::clone(stacks.entry(id).or_insert_with(|| frames().collect()))
    }

    /// Empty if there is no stack.
    pub(super) fn maybe_stack(&self, id: Option<StackId>) -> StackOut {
        id.map(|id| self.stack(id)).unwrap_or_default()
    }
}
