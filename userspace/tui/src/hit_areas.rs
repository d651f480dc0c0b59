//! What a click means, by where it is in the picture that was drawn last.

use std::cell::RefCell;

use ratatui::layout::Rect;

use crate::binding::Action;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    /// A tab: the screen of this number.
    Tab(usize),
    /// A hint of the footer.
    Key(Action),
    /// The breadcrumb's step that this many crumbs precede.
    Crumb(usize),
    /// The row this many steps below the selected one; above it if negative.
    Row(isize),
    /// A part of the screen that only the screen knows: a box of the flame graph, a lane of the timeline.
    Part(isize),
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
