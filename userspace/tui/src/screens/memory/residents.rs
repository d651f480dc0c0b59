//! What processes have in memory: pages of segments are in the resident size of each process that maps them, and counted once in
//! the last column.

use std::cmp::Reverse;

use pyobs_model::views::{self, ResidentRow};
use pyobs_model::{Model, ProcessRef};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::binding::Action;
use crate::draw::{Heading, Order, Row};
use crate::filter::Filter;
use crate::list::{Cursor, step, turned};
use crate::number;
use crate::screens::Outcome;
use crate::screens::frames::process_label;
use crate::ui::{Scope, Ui};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Once,
    Rss,
    Own,
    Segments,
}

const SORTS: [Sort; 4] = [Sort::Once, Sort::Rss, Sort::Own, Sort::Segments];

#[derive(Default)]
pub(super) struct Residents {
    sort: Sort,
    rows: Vec<ResidentRow>,
    shown: Vec<usize>,
    cursor: Cursor<ProcessRef>,
}

impl Residents {
    pub(super) fn compute(&mut self, model: &Model, scope: &Scope) {
        self.rows = views::residents(model, &scope.selection);
    }

    pub(super) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, body: Rect) {
        let rows = &self.rows;
        let label = |index: usize| process_label(model, Some(rows[index].process));
        self.shown = (0..rows.len()).filter(|it| filter.is_none_or(|filter| filter.matches(&label(*it)))).collect();
        let sort = self.sort;
        self.shown.sort_by_key(|it| {
            let resident = rows[*it].resident;
            Reverse(match sort {
                Sort::Once => resident.counted_once(),
                Sort::Rss => resident.total,
                Sort::Own => resident.anonymous,
                Sort::Segments => resident.segments,
            })
        });
        // The last line has the sums.
        let height = usize::from(body.height.saturating_sub(2));
        self.cursor.follow(self.shown.len(), self.shown.iter().map(|index| rows[*index].process), height);
        self.cursor.hold(self.selected());
    }

    fn selected(&self) -> Option<ProcessRef> {
        self.shown.get(self.cursor.index()).and_then(|index| self.rows.get(*index)).map(|row| row.process)
    }

    pub(super) fn act(&mut self, action: Action, body: Rect) -> Outcome {
        if let Some(step) = step(action) {
            self.cursor.step(step, self.shown.len(), usize::from(body.height.saturating_sub(2)));
            self.cursor.hold(self.selected());
            return Outcome::Nothing;
        }
        self.sort = match action {
            Action::SortNext | Action::SortPrevious => turned(&SORTS, self.sort, action),
            _ => return Outcome::Nothing,
        };
        Outcome::Rows
    }

    pub(super) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    pub(super) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let theme = ui.theme;
        let detail = if area.width < 76 { 0 } else { 10 };
        let sorted = |sort| (self.sort == sort).then_some(Order::Falling);
        let mut head = Heading::new(buf, area, theme);
        head.right(10, "COUNTED", sorted(Sort::Once));
        head.right(10, "RSS", sorted(Sort::Rss));
        head.right(detail, "OWN", sorted(Sort::Own));
        head.right(detail, "FILES", None);
        head.right(10, "SEGMENTS", sorted(Sort::Segments));
        head.right(detail, "SHARE", None);
        head.left(usize::MAX, "PROCESS", None);
        let visible = self.cursor.visible(self.shown.len(), usize::from(area.height).saturating_sub(2));
        let first = visible.start;
        let mut put = |y: u16, sizes: [u64; 6], label: &str, is_selected: bool| {
            let mut row = Row::new(buf, Rect { y, height: 1, ..area });
            row.select(is_selected, theme);
            let [once, total, own, files, segments, share] = sizes.map(number::bytes);
            row.right(10, &once, theme.strong());
            row.right(10, &total, theme.text());
            row.right(detail, &own, theme.dim());
            row.right(detail, &files, theme.dim());
            row.right(10, &segments, theme.text());
            row.right(detail, &share, theme.dim());
            row.rest(label, theme.text());
        };
        let sizes = |row: &ResidentRow| {
            let it = row.resident;
            [it.counted_once(), it.total, it.anonymous, it.files, it.segments, it.share]
        };
        let count = visible.len() as u16;
        for (shown, index) in self.shown[visible].iter().zip(first..) {
            let Some(row) = self.rows.get(*shown) else { continue };
            let label = process_label(model, Some(row.process));
            put(area.y + 1 + (index - first) as u16, sizes(row), &label, index == self.cursor.index());
        }
        if area.height > count + 1 && !self.shown.is_empty() {
            let mut sums = [0_u64; 6];
            for row in self.shown.iter().filter_map(|index| self.rows.get(*index)) {
                sums.iter_mut().zip(sizes(row)).for_each(|(sum, size)| *sum = sum.saturating_add(size));
            }
            put(area.y + 1 + count, sums, "all of these, each page of a segment once in COUNTED", false);
        }
    }
}
