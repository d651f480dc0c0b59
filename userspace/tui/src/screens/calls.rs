//! Functions with their counted calls, and how long those took that were seen to return.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyobs_model::families::eval::Sum;
use pyobs_model::views::By;
use pyobs_model::{Model, Nanos, Selection};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Outcome;
use super::frames::{Key, draw_frame, matches, process_label};
use crate::binding::Action;
use crate::draw::{Heading, Order, Row};
use crate::filter::Filter;
use crate::list::{Listing, turned};
use crate::ui::Ui;
use crate::{number, text};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Count,
    Total,
    Mean,
    Longest,
    Unseen,
    Name,
}

const SORTS: [Sort; 6] = [Sort::Count, Sort::Total, Sort::Mean, Sort::Longest, Sort::Unseen, Sort::Name];

#[derive(Default)]
pub(super) struct CallsTable {
    sort: Sort,
    rows: Vec<(Key, Sum)>,
    listing: Listing<Key>,
}

impl CallsTable {
    pub(super) fn compute(&mut self, model: &Model, selection: &Selection, split: bool) {
        let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
        for (key, sum) in model.eval().sums(selection) {
            let merged = sums.entry((split.then_some(key.process), key.function)).or_default();
            merged.times.add(sum.times);
            merged.timed = merged.timed.saturating_add(sum.timed);
        }
        self.rows = sums.into_iter().collect();
    }

    pub(super) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, height: usize) {
        let rows = &self.rows;
        let frame = |index: &usize| model.frame(rows[*index].0.1);
        let is_shown = |index: &usize| filter.is_none_or(|filter| frame(index).is_some_and(|it| matches(it, filter)));
        let mut shown: Vec<usize> = (0..rows.len()).filter(is_shown).collect();
        let sum = |index: &usize| rows[*index].1;
        match self.sort {
            Sort::Count => shown.sort_by_key(|it| Reverse(sum(it).times.count)),
            Sort::Total => shown.sort_by_key(|it| Reverse(sum(it).times.total)),
            Sort::Mean => shown.sort_by_key(|it| Reverse(mean(sum(it)))),
            Sort::Longest => shown.sort_by_key(|it| Reverse(sum(it).times.max)),
            Sort::Unseen => shown.sort_by_key(|it| Reverse(unseen(sum(it)))),
            Sort::Name => shown.sort_by_key(|it| frame(it).map(|it| (text::head(&it.function, 256), it.line))),
        }
        self.listing.show(shown, |row| rows[row].0, height);
    }

    pub(super) fn act(&mut self, action: Action, height: usize) -> Outcome {
        if self.listing.step(action, height) {
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

    pub(super) fn draw(&self, model: &Model, ui: &Ui, split: bool, area: Rect, buf: &mut Buffer) {
        let widths = Widths::of(area.width, split);
        let theme = ui.theme;
        let mut head = Heading::new(buf, area, theme);
        let sorted = |sort, order| (self.sort == sort).then_some(order);
        head.right(widths.count, "CALLS", sorted(Sort::Count, Order::Falling));
        head.right(9, "TOTAL", sorted(Sort::Total, Order::Falling));
        head.right(9, "MEAN", sorted(Sort::Mean, Order::Falling));
        head.right(widths.longest, "LONGEST", sorted(Sort::Longest, Order::Falling));
        head.right(10, "NO RETURN", sorted(Sort::Unseen, Order::Falling));
        head.left(widths.process, "PROCESS", None);
        head.left(widths.function, "FUNCTION", sorted(Sort::Name, Order::Rising));
        head.left(usize::MAX, "DEFINED AT", None);

        for (index, line_area, is_selected) in self.listing.in_sight(area, &ui.hit_areas) {
            let Some((key, sum, frame)) =
                self.rows.get(index).and_then(|(key, sum)| Some((key, *sum, model.frame(key.1)?)))
            else {
                continue;
            };
            let mut row = Row::new(buf, line_area);
            row.select(is_selected, theme);
            let time = |time: Nanos| if sum.timed > 0 { number::time(time) } else { "–".to_owned() };
            let calls = sum.times.count;
            row.right(
                widths.count,
                &if widths.count > 8 { number::count(calls) } else { number::short(calls) },
                theme.strong(),
            );
            row.right(9, &time(sum.times.total), theme.text());
            row.right(9, &time(mean(sum)), theme.text());
            row.right(widths.longest, &time(sum.times.max), theme.dim());
            let (unseen, style) = match unseen(sum) {
                0 => ("–".to_owned(), theme.dim()),
                count => (number::short(count), theme.warning()),
            };
            row.right(10, &unseen, style);
            row.left(widths.process, &process_label(model, key.0), theme.dim());
            draw_frame(&mut row, widths.function, frame, By::Function, theme);
        }
    }
}

/// Of the calls that were seen to return.
fn mean(sum: Sum) -> Nanos {
    Nanos(sum.times.total.0.checked_div(sum.timed).unwrap_or(0))
}

/// Calls of which no return was seen.
fn unseen(sum: Sum) -> u64 {
    sum.times.count.saturating_sub(sum.timed)
}

struct Widths {
    count: usize,
    longest: usize,
    process: usize,
    function: usize,
}

impl Widths {
    fn of(width: u16, split: bool) -> Self {
        let (count, longest, function) = match width {
            0..76 => (7, 0, 65),
            76..110 => (8, 9, 45),
            _ => (12, 9, 45),
        };
        let left = usize::from(width).saturating_sub(count + longest + 28 + 4 + usize::from(longest > 0));
        let process = if split { left / 4 } else { 0 };
        Self { count, longest, process, function: (left - process) * function / 100 }
    }
}
