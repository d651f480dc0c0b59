//! Arenas or MemInfos by the line where they were born. Lines that hold the most memory come first.

use std::cmp::Reverse;
use std::sync::Arc;

use pyobs_model::views::{self, BirthRow, By};
use pyobs_model::{FrameId, Model, Nanos, ProcessRef};

use super::births_detail::Detail;
use crate::filter::Filter;
use crate::number;
use crate::paint::{Heading, Row};
use crate::screens::names::{place, process_label};
use crate::table::{Sorted, Table};
use crate::ui::Ui;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Size,
    Live,
    Born,
    Used,
    Age,
}

/// A birthplace: a line of one process.
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
pub(super) struct BirthTable {
    is_of_meminfos: bool,
    now: Nanos,
}

impl BirthTable {
    pub(super) fn of_meminfos(is_of_meminfos: bool) -> Self {
        Self { is_of_meminfos, ..Self::default() }
    }
}

impl Table for BirthTable {
    type Row = BirthRow;
    type Key = Site;
    type Sort = Sort;
    type Detail = Detail;

    const SORTS: &'static [Sort] = &[Sort::Size, Sort::Live, Sort::Born, Sort::Used, Sort::Age];

    fn compute(&mut self, model: &Model, ui: &Ui, detail: Option<&mut Detail>) -> Option<Vec<BirthRow>> {
        let selection = ui.scope(model).selection;
        self.now = selection.to.unwrap_or_else(|| model.now()).min(model.now());
        let view = if self.is_of_meminfos { views::meminfos } else { views::arenas };
        let rows = view(model, &selection);
        if let Some(detail) = detail {
            detail.compute(model, &rows, self.now);
        }
        Some(rows)
    }

    fn key(row: &BirthRow) -> Site {
        Site::of(row)
    }

    fn matches(&self, row: &BirthRow, filter: &Filter, model: &Model) -> bool {
        filter.matches(&row.kind)
            || filter.matches(&born_at(model, row))
            || filter.matches(&process_label(model, Some(row.process)))
    }

    fn sort(&self, shown: &mut [usize], rows: &[BirthRow], sort: Sort, _model: &Model) {
        match sort {
            Sort::Size => shown.sort_by_key(|it| Reverse((rows[*it].bytes, rows[*it].born))),
            Sort::Live => shown.sort_by_key(|it| Reverse(rows[*it].live)),
            Sort::Born => shown.sort_by_key(|it| Reverse(rows[*it].born)),
            Sort::Used => shown.sort_by(|a, b| {
                let used = |row: &BirthRow| row.fullness().unwrap_or(2.0);
                used(&rows[*a]).total_cmp(&used(&rows[*b]))
            }),
            Sort::Age => shown.sort_by_key(|it| rows[*it].since.unwrap_or(Nanos(u64::MAX))),
        }
    }

    fn draw_heading(&self, head: &mut Heading<'_>, width: u16, sorted: Sorted<Sort>, _ui: &Ui) {
        let widths = Widths::of(width);
        head.right(10, "SIZE", sorted.falling(Sort::Size));
        head.right(7, "LIVE", sorted.falling(Sort::Live));
        head.right(widths.born, "BORN", sorted.falling(Sort::Born));
        head.right(6, "USED", sorted.rising(Sort::Used));
        head.left(widths.bar, "", None);
        head.right(widths.age, "OLDEST", sorted.falling(Sort::Age));
        head.left(widths.kind, "KIND", None);
        head.left(widths.process, "PROCESS", None);
        head.left(usize::MAX, "BORN AT", None);
    }

    fn draw_row(&self, row: &mut Row<'_>, line: &BirthRow, width: u16, _: Sort, model: &Model, ui: &Ui) {
        let (widths, theme) = (Widths::of(width), ui.theme);
        row.right(10, &number::size(line.bytes), theme.strong());
        row.right(7, &number::grouped(line.live), theme.text());
        row.right(widths.born, &number::grouped(line.born), theme.dim());
        let used = line.fullness();
        row.right(6, &used.map_or_else(|| "–".to_owned(), share), theme.text());
        row.bar(widths.bar, used.unwrap_or(0.0), theme.total());
        let age = line.since.map(|since| number::time(self.now.saturating_sub(since)));
        row.right(widths.age, age.as_deref().unwrap_or("–"), theme.text());
        row.left(widths.kind, &line.kind, theme.dim());
        row.left(widths.process, &process_label(model, Some(line.process)), theme.dim());
        row.rest_of_path(&born_at(model, line), theme.text());
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
