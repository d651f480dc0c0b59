//! Maps the cells of the last picture to what a click on them means.

use std::cell::RefCell;

use ratatui::layout::Rect;

use crate::binding::Action;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    /// The tab of the screen with this index.
    Tab(usize),
    /// A hint in the footer.
    Key(Action),
    /// The step of the breadcrumb that comes after this many crumbs.
    Crumb(usize),
    /// The row this many steps below the selected one; above it if negative.
    Row(isize),
    /// A part that the screen itself interprets, such as a box of the flame graph or a lane of the timeline.
    Part(isize),
}

impl Hit {
    /// The row `index` of a list in which `selected` is selected.
    pub(crate) fn row(index: usize, selected: usize) -> Self {
        Self::Row(index as isize - selected as isize)
    }
}

/// Has interior mutability because drawing, which fills it, has only shared access to the state.
#[derive(Debug, Default)]
pub(crate) struct HitAreas(RefCell<Vec<(Rect, Hit)>>);

impl HitAreas {
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    pub(crate) fn add(&self, area: Rect, hit: Hit) {
        self.0.borrow_mut().push((area, hit));
    }

    /// The topmost hit at a cell, and the cell's column within it.
    pub(crate) fn at(&self, x: u16, y: u16) -> Option<(Hit, u16)> {
        let hit_areas = self.0.borrow();
        let hit = hit_areas.iter().rev().find(|(area, _)| area.contains((x, y).into()))?;
        Some((hit.1, x - hit.0.x))
    }
}
