//! What a click means, by where it is in the picture that was drawn last.

use std::cell::RefCell;

use pyobs_model::views::NodeId;
use ratatui::layout::Rect;

use crate::binding::Action;
use crate::ui::Tab;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    Tab(Tab),
    /// A hint of the footer.
    Key(Action),
    /// The breadcrumb's step before which so many stand.
    Crumb(usize),
    /// A row so many steps below the one that is selected, or above it.
    Row(isize),
    /// The same of a lane whose cells are columns of time.
    Lane(isize),
    /// A box of the flame graph.
    Box(NodeId),
}

impl Hit {
    /// The row of a list that is `index`, where `selected` is.
    pub(crate) fn row(index: usize, selected: usize) -> Self {
        Self::Row(index as isize - selected as isize)
    }
}

/// Filled while a picture is drawn, which changes nothing else.
#[derive(Debug, Default)]
pub(crate) struct HitAreas(RefCell<Vec<(Rect, Hit)>>);

impl HitAreas {
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    pub(crate) fn add(&self, area: Rect, hit: Hit) {
        self.0.borrow_mut().push((area, hit));
    }

    /// What was drawn last at a cell, and where in it the cell is.
    pub(crate) fn at(&self, x: u16, y: u16) -> Option<(Hit, u16)> {
        let hit_areas = self.0.borrow();
        let hit = hit_areas.iter().rev().find(|(area, _)| area.contains((x, y).into()))?;
        Some((hit.1, x - hit.0.x))
    }
}
