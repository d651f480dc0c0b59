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
use crate::list::{Listing, turned};
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
    listing: Listing<ProcessRef>,
    /// Of all rows that are shown.
    sums: [u64; 6],
}

impl Residents {
    pub(super) fn compute(&mut self, model: &Model, scope: &Scope) {
        self.rows = views::residents(model, &scope.selection);
    }

    pub(super) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, body: Rect) {
        let rows = &self.rows;
        let label = |index: usize| process_label(model, Some(rows[index].process));
        let is_shown = |index: &usize| filter.is_none_or(|filter| filter.matches(&label(*index)));
        let mut shown: Vec<usize> = (0..rows.len()).filter(is_shown).collect();
        let sort = self.sort;
        shown.sort_by_key(|it| {
            let resident = rows[*it].resident;
            Reverse(match sort {
                Sort::Once => resident.counted_once(),
                Sort::Rss => resident.total,
                Sort::Own => resident.anonymous,
                Sort::Segments => resident.segments,
            })
        });
        self.sums = [0; 6];
        for row in &shown {
            self.sums.iter_mut().zip(sizes(&rows[*row])).for_each(|(sum, size)| *sum = sum.saturating_add(size));
        }
        self.listing.show(shown, |row| rows[row].process, height(body));
    }

    pub(super) fn act(&mut self, action: Action, body: Rect) -> Outcome {
        if self.listing.step(action, height(body)) {
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
        self.listing.is_empty()
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
        let mut put = |line: Rect, sizes: [u64; 6], label: &str, is_selected: bool| {
            let mut row = Row::new(buf, line);
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
        let table = Rect { height: area.height.saturating_sub(1), ..area };
        let mut last = Rect { height: 1, ..area };
        for (row, line, is_selected) in self.listing.in_sight(table, &ui.hit_areas) {
            let Some(row) = self.rows.get(row) else { continue };
            put(line, sizes(row), &process_label(model, Some(row.process)), is_selected);
            last = line;
        }
        if area.height > 2 && !self.listing.is_empty() {
            let line = Rect { y: last.y + 1, ..last };
            put(line, self.sums, "all of these, each page of a segment once in COUNTED", false);
        }
    }
}

/// Of the rows: above them is the heading, below them the sums.
fn height(body: Rect) -> usize {
    usize::from(body.height.saturating_sub(2))
}

/// In the order of the columns.
fn sizes(row: &ResidentRow) -> [u64; 6] {
    let it = row.resident;
    [it.counted_once(), it.total, it.anonymous, it.files, it.segments, it.share]
}
