//! Arenas, or MemInfos, by where they were born: those lines first that hold the most memory.

use std::cmp::Reverse;
use std::sync::Arc;

use pyobs_model::views::{self, BirthRow, By};
use pyobs_model::{FrameId, Model, Nanos, ProcessRef};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Table;
use super::births_detail::Detail;
use crate::binding::Action;
use crate::draw::{Heading, Order, Row};
use crate::filter::Filter;
use crate::list::{Listing, turned};
use crate::number;
use crate::screens::Outcome;
use crate::screens::frames::{place, process_label};
use crate::ui::{Scope, Ui};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Size,
    Live,
    Born,
    Used,
    Age,
}

const SORTS: [Sort; 5] = [Sort::Size, Sort::Live, Sort::Born, Sort::Used, Sort::Age];

/// A line that gave birth, in one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) process: ProcessRef,
    pub(super) kind: Arc<str>,
    pub(super) frame: Option<FrameId>,
}

impl Site {
    pub(super) fn of(row: &BirthRow) -> Self {
        Self { process: row.process, kind: Arc::clone(&row.kind), frame: row.frame }
    }
}

#[derive(Default)]
pub(super) struct Births {
    table: Table,
    sort: Sort,
    rows: Vec<BirthRow>,
    listing: Listing<Site>,
    detail: Option<Detail>,
    now: Nanos,
    /// The row to go to.
    wanted: Option<(Option<ProcessRef>, Option<FrameId>)>,
    /// And to open.
    opens: bool,
}

impl Births {
    pub(super) fn of(table: Table) -> Self {
        Self { table, ..Self::default() }
    }

    pub(super) fn compute(&mut self, model: &Model, scope: &Scope) {
        self.now = scope.selection.to.unwrap_or_else(|| model.now()).min(model.now());
        self.rows = match self.table {
            Table::MemInfos => views::meminfos(model, &scope.selection),
            Table::Arenas | Table::Segments | Table::Processes => views::arenas(model, &scope.selection),
        };
        if let Some(detail) = &mut self.detail {
            detail.compute(model, &self.rows, self.now);
        }
    }

    pub(super) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, body: Rect) {
        if let Some(detail) = &mut self.detail {
            detail.arrange(usize::from(body.height));
            return;
        }
        let rows = &self.rows;
        let is_shown = |index: &usize| {
            let row = &rows[*index];
            filter.is_none_or(|filter| {
                filter.matches(&row.kind)
                    || filter.matches(&born_at(model, row))
                    || filter.matches(&process_label(model, Some(row.process)))
            })
        };
        let mut shown: Vec<usize> = (0..rows.len()).filter(is_shown).collect();
        match self.sort {
            Sort::Size => shown.sort_by_key(|it| Reverse((rows[*it].bytes, rows[*it].born))),
            Sort::Live => shown.sort_by_key(|it| Reverse(rows[*it].live)),
            Sort::Born => shown.sort_by_key(|it| Reverse(rows[*it].born)),
            Sort::Used => shown.sort_by(|a, b| {
                let used = |row: &BirthRow| row.fullness().unwrap_or(2.0);
                used(&rows[*a]).total_cmp(&used(&rows[*b]))
            }),
            Sort::Age => shown.sort_by_key(|it| rows[*it].since.unwrap_or(Nanos(u64::MAX))),
        }
        let height = usize::from(body.height.saturating_sub(1));
        self.listing.show(shown, |row| Site::of(&rows[row]), height);
        if let Some((process, frame)) = self.wanted.take() {
            let is_wanted = |site: &Site| process == Some(site.process) && site.frame == frame;
            self.listing.seek(height, is_wanted);
            if std::mem::take(&mut self.opens)
                && let Some(site) = self.listing.selected().filter(|site| is_wanted(site))
            {
                let mut detail = Detail::new(site.clone());
                detail.compute(model, &self.rows, self.now);
                detail.arrange(usize::from(body.height));
                self.detail = Some(detail);
            }
        }
    }

    pub(super) fn jump(&mut self, process: Option<ProcessRef>, frame: Option<FrameId>, opens: bool) {
        (self.wanted, self.opens) = (Some((process, frame)), opens);
    }

    pub(super) fn act(&mut self, action: Action, body: Rect) -> Outcome {
        if let Some(detail) = &mut self.detail {
            return detail.act(action, usize::from(body.height));
        }
        if self.listing.step(action, usize::from(body.height.saturating_sub(1))) {
            return Outcome::Nothing;
        }
        self.sort = match action {
            Action::SortNext | Action::SortPrevious => turned(&SORTS, self.sort, action),
            Action::Open => {
                self.detail = self.listing.selected().cloned().map(Detail::new);
                return Outcome::View;
            }
            _ => return Outcome::Nothing,
        };
        Outcome::Rows
    }

    pub(super) fn close_detail(&mut self) -> bool {
        self.detail.take().is_some()
    }

    pub(super) fn shows_detail(&self) -> bool {
        self.detail.is_some()
    }

    pub(super) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.detail.is_none() && self.listing.is_empty()
    }

    pub(super) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        if let Some(detail) = &self.detail {
            return detail.draw(model, ui, area, buf);
        }
        let theme = ui.theme;
        let widths = Widths::of(area.width);
        let sorted = |sort, order| (self.sort == sort).then_some(order);
        let mut head = Heading::new(buf, area, theme);
        head.right(10, "SIZE", sorted(Sort::Size, Order::Falling));
        head.right(7, "LIVE", sorted(Sort::Live, Order::Falling));
        head.right(widths.born, "BORN", sorted(Sort::Born, Order::Falling));
        head.right(6, "USED", sorted(Sort::Used, Order::Rising));
        head.left(widths.bar, "", None);
        head.right(widths.age, "OLDEST", sorted(Sort::Age, Order::Falling));
        head.left(widths.kind, "KIND", None);
        head.left(widths.process, "PROCESS", None);
        head.left(usize::MAX, "BORN AT", None);
        for (index, line_area, is_selected) in self.listing.in_sight(area, &ui.hit_areas) {
            let Some(line) = self.rows.get(index) else { continue };
            let mut row = Row::new(buf, line_area);
            row.select(is_selected, theme);
            row.right(10, &number::bytes(line.bytes), theme.strong());
            row.right(7, &number::count(line.live), theme.text());
            row.right(widths.born, &number::count(line.born), theme.dim());
            let used = line.fullness();
            row.right(6, &used.map_or_else(|| "–".to_owned(), share), theme.text());
            row.bar(widths.bar, used.unwrap_or(0.0), theme.total());
            let age = line.since.map(|since| number::seconds(self.now.saturating_sub(since).as_secs_f64()));
            row.right(widths.age, age.as_deref().unwrap_or("–"), theme.text());
            row.left(widths.kind, &line.kind, theme.dim());
            row.left(widths.process, &process_label(model, Some(line.process)), theme.dim());
            row.rest_of_path(&born_at(model, line), theme.text());
        }
    }
}

pub(super) fn share(of_one: f64) -> String {
    number::percent(of_one * 100.0)
}

pub(super) fn born_at(model: &Model, row: &BirthRow) -> String {
    let frame = row.frame.and_then(|id| model.frame(id));
    frame.map_or_else(|| "–".to_owned(), |frame| place(frame, By::Line))
}

struct Widths {
    born: usize,
    bar: usize,
    age: usize,
    kind: usize,
    process: usize,
}

impl Widths {
    fn of(width: u16) -> Self {
        match width {
            0..76 => Self { born: 0, bar: 0, age: 0, kind: 0, process: 12 },
            76..120 => Self { born: 7, bar: 0, age: 8, kind: 9, process: 18 },
            _ => Self { born: 7, bar: 16, age: 8, kind: 14, process: 30 },
        }
    }
}
