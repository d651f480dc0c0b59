//! Selection and scrolling in lists whose rows change while they are shown.

use std::ops::Range;

use ratatui::layout::Rect;

use crate::binding::Action;
use crate::hit_areas::{Hit, HitAreas};

/// The sort that follows `sort`, or precedes it.
pub(crate) fn next_sort<S: Copy + PartialEq>(sorts: &[S], sort: S, action: Action) -> S {
    let at = sorts.iter().position(|other| *other == sort).unwrap_or(0);
    let by = if action == Action::SortPrevious { sorts.len() - 1 } else { 1 };
    sorts[(at + by) % sorts.len()]
}

/// The selected row. It follows its key when the list changes, except on the first row: there it stays on top, because a user
/// who looks at the top wants to see the busiest row.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<K> {
    index: usize,
    top: usize,
    key: Option<K>,
}

impl<K> Default for Cursor<K> {
    fn default() -> Self {
        Self { index: 0, top: 0, key: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

impl<K: PartialEq> Cursor<K> {
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Moves to where its row is in a list that has changed.
    pub(crate) fn follow(&mut self, len: usize, mut keys: impl Iterator<Item = K>, height: usize) {
        if self.index > 0
            && let Some(found) = self.key.as_ref().and_then(|key| keys.position(|other| other == *key))
        {
            // The row keeps its line on the screen, so that the eye need not search for it.
            let offset = self.index.saturating_sub(self.top);
            self.index = found;
            self.top = found.saturating_sub(offset);
        }
        self.clamp(len, height);
    }

    pub(crate) fn step(&mut self, step: Step, len: usize, height: usize) {
        let page = height.saturating_sub(1).max(1);
        self.index = match step {
            Step::Up => self.index.saturating_sub(1),
            Step::Down => self.index.saturating_add(1),
            Step::PageUp => self.index.saturating_sub(page),
            Step::PageDown => self.index.saturating_add(page),
            Step::First => 0,
            Step::Last => usize::MAX,
        };
        self.clamp(len, height);
    }

    /// Moves to the row `index`.
    pub(crate) fn go(&mut self, index: usize, len: usize, height: usize) {
        self.index = index;
        self.clamp(len, height);
    }

    /// Sets the key of the row that it is on.
    pub(crate) fn hold(&mut self, key: Option<K>) {
        self.key = key;
    }

    /// The rows in sight, even if the terminal has shrunk since the last step.
    pub(crate) fn visible(&self, len: usize, height: usize) -> Range<usize> {
        let mut now = Self { index: self.index, top: self.top, key: None };
        now.clamp(len, height);
        let first = now.top.min(len);
        first..len.min(first + height)
    }

    fn clamp(&mut self, len: usize, height: usize) {
        self.index = self.index.min(len.saturating_sub(1));
        let lowest = (self.index + 1).saturating_sub(height);
        let highest = self.index.min(len.saturating_sub(height));
        self.top = self.top.clamp(lowest.min(highest), highest.max(lowest));
    }
}

/// The rows of a table that are shown, in order: the index and the key of each, with a cursor.
pub(crate) struct Listing<K> {
    rows: Vec<(usize, K)>,
    cursor: Cursor<K>,
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self { rows: Vec::new(), cursor: Cursor::default() }
    }
}

impl<K: Clone + PartialEq> Listing<K> {
    /// Replaces the rows, of which `height` are in sight.
    pub(crate) fn show(&mut self, rows: Vec<usize>, key: impl Fn(usize) -> K, height: usize) {
        self.rows = rows.into_iter().map(|row| (row, key(row))).collect();
        self.cursor.follow(self.rows.len(), self.rows.iter().map(|(_, key)| key.clone()), height);
        self.cursor.hold(self.selected().cloned());
    }

    pub(crate) fn selected(&self) -> Option<&K> {
        self.rows.get(self.cursor.index()).map(|(_, key)| key)
    }

    /// Selects the first row whose key is wanted, if there is one.
    pub(crate) fn seek(&mut self, height: usize, is_wanted: impl Fn(&K) -> bool) {
        if let Some(index) = self.rows.iter().position(|(_, key)| is_wanted(key)) {
            self.cursor.go(index, self.rows.len(), height);
            self.cursor.hold(self.selected().cloned());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The indices of the rows that are shown, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|(row, _)| *row)
    }

    /// Which of the shown rows are in sight.
    pub(crate) fn visible(&self, height: usize) -> Range<usize> {
        self.cursor.visible(self.rows.len(), height)
    }

    /// Moves the selection if the action is a step. Returns whether it is one.
    pub(crate) fn step(&mut self, action: Action, height: usize) -> bool {
        let Some(step) = step(action) else { return false };
        self.cursor.step(step, self.rows.len(), height);
        self.cursor.hold(self.selected().cloned());
        true
    }

    /// The rows in sight of a table whose first line is its heading: the index of each, its line, and whether it is selected.
    /// Registers each as a hit area.
    pub(crate) fn in_sight(&self, table: Rect, hit_areas: &HitAreas) -> impl Iterator<Item = (usize, Rect, bool)> {
        let visible = self.cursor.visible(self.rows.len(), usize::from(table.height).saturating_sub(1));
        let lines = (table.y + 1..).map(move |y| Rect { y, height: 1, ..table });
        let selected = self.cursor.index();
        for (at, line) in visible.clone().zip(lines.clone()) {
            hit_areas.add(line, Hit::row(at, selected));
        }
        visible.zip(lines).filter_map(move |(at, line)| Some((self.rows.get(at)?.0, line, at == selected)))
    }
}

/// The step through a list that an action stands for.
pub(crate) fn step(action: Action) -> Option<Step> {
    Some(match action {
        Action::Up => Step::Up,
        Action::Down => Step::Down,
        Action::PageUp => Step::PageUp,
        Action::PageDown => Step::PageDown,
        Action::First => Step::First,
        Action::Last => Step::Last,
        _ => return None,
    })
}

/// Scrolls a page that has no rows to select. Returns the first line in sight after `action`.
pub(crate) fn scroll(top: usize, action: Action, lines: usize, height: usize) -> usize {
    let page = height.saturating_sub(1).max(1);
    let last = lines.saturating_sub(height);
    let moved = match step(action) {
        None => top,
        Some(Step::Up) => top.saturating_sub(1),
        Some(Step::Down) => top + 1,
        Some(Step::PageUp) => top.saturating_sub(page),
        Some(Step::PageDown) => top + page,
        Some(Step::First) => 0,
        Some(Step::Last) => last,
    };
    moved.min(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_row_is_always_in_sight() {
        for height in 1..8 {
            let mut cursor = Cursor::<usize>::default();
            for step in [Step::Last, Step::PageUp, Step::Up, Step::Up, Step::First, Step::PageDown, Step::Down] {
                cursor.step(step, 20, height);
                let visible = cursor.visible(20, height);
                assert!(visible.contains(&cursor.index()), "{cursor:?} {visible:?}");
                assert_eq!(visible.len(), height);
            }
        }
    }

    #[test]
    fn the_cursor_follows_its_row_but_stays_on_top() {
        let mut cursor = Cursor::default();
        cursor.hold(Some('a'));
        cursor.follow(3, "bac".chars(), 3);
        assert_eq!(cursor.index(), 0);
        cursor.step(Step::Down, 3, 3);
        cursor.hold(Some('a'));
        cursor.follow(3, "bca".chars(), 3);
        assert_eq!(cursor.index(), 2);
    }

    #[test]
    fn an_empty_list_and_a_height_of_zero_do_no_harm() {
        let mut cursor = Cursor::<u8>::default();
        cursor.step(Step::Last, 0, 0);
        assert_eq!(cursor.visible(0, 0), 0..0);
        cursor.step(Step::Last, 5, 0);
        assert!(cursor.visible(5, 0).is_empty());
    }
}
