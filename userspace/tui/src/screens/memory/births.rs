//! Arenas or MemInfos by the line where they were born. Lines that hold the most memory come first.

use std::cmp::Reverse;
use std::sync::Arc;

use pyobs_model::views::{self, BirthRow, By};
use pyobs_model::{FrameId, Model, Nanos, ProcessRef};

use super::births_detail::BirthDetail;
use crate::filter::Filter;
use crate::number;
use crate::paint::{HeadingPainter, RowPainter};
use crate::screens::names::{place, process_label};
use crate::table::{Sorted, Table};
use crate::ui::Ui;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BirthSort {
    #[default]
    Size,
    Live,
    Born,
    Used,
    Age,
}

/// A birthplace: a line of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BirthSite {
    pub(super) process: ProcessRef,
    pub(super) kind: Arc<str>,
    pub(super) frame: Option<FrameId>,
}

impl BirthSite {
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
    type Key = BirthSite;
    type Sort = BirthSort;
    type Detail = BirthDetail;

    const SORTS: &'static [BirthSort] =
        &[BirthSort::Size, BirthSort::Live, BirthSort::Born, BirthSort::Used, BirthSort::Age];

    fn compute(&mut self, model: &Model, ui: &Ui, detail: Option<&mut BirthDetail>) -> Option<Vec<BirthRow>> {
        let selection = ui.scope(model).selection;
        self.now = selection.to.unwrap_or_else(|| model.now()).min(model.now());
        let view = if self.is_of_meminfos { views::meminfos } else { views::arenas };
        let rows = view(model, &selection);
        if let Some(detail) = detail {
            detail.compute(model, &rows, self.now);
        }
        Some(rows)
    }

    fn key(row: &BirthRow) -> BirthSite {
        BirthSite::of(row)
    }

    fn matches(&self, row: &BirthRow, filter: &Filter, model: &Model) -> bool {
        filter.matches(&row.kind)
            || filter.matches(&born_at(model, row))
            || filter.matches(&process_label(model, Some(row.process)))
    }

    fn sort(&self, shown: &mut [usize], rows: &[BirthRow], sort: BirthSort, _model: &Model) {
        match sort {
            BirthSort::Size => shown.sort_by_key(|it| Reverse((rows[*it].bytes, rows[*it].born))),
            BirthSort::Live => shown.sort_by_key(|it| Reverse(rows[*it].live)),
            BirthSort::Born => shown.sort_by_key(|it| Reverse(rows[*it].born)),
            BirthSort::Used => shown.sort_by(|a, b| {
                let used = |row: &BirthRow| row.fullness().unwrap_or(2.0);
                used(&rows[*a]).total_cmp(&used(&rows[*b]))
            }),
            BirthSort::Age => shown.sort_by_key(|it| rows[*it].since.unwrap_or(Nanos(u64::MAX))),
        }
    }

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<BirthSort>, _ui: &Ui) {
        let widths = BirthWidths::of(width);
        head.right(10, "SIZE", sorted.descending(BirthSort::Size));
        head.right(7, "LIVE", sorted.descending(BirthSort::Live));
        head.right(widths.born, "BORN", sorted.descending(BirthSort::Born));
        head.right(6, "USED", sorted.ascending(BirthSort::Used));
        head.skip(widths.bar);
        head.right(widths.age, "OLDEST", sorted.descending(BirthSort::Age));
        head.left(widths.kind, "KIND", None);
        head.left(widths.process, "PROCESS", None);
        head.left(usize::MAX, "BORN AT", None);
    }

    fn draw_row(&self, row: &mut RowPainter<'_>, line: &BirthRow, width: u16, _: BirthSort, model: &Model, ui: &Ui) {
        let (widths, theme) = (BirthWidths::of(width), ui.theme);
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

struct BirthWidths {
    born: usize,
    bar: usize,
    age: usize,
    kind: usize,
    process: usize,
}

impl BirthWidths {
    fn of(width: u16) -> Self {
        match width {
            0..76 => Self { born: 0, bar: 0, age: 0, kind: 0, process: 12 },
            76..120 => Self { born: 7, bar: 0, age: 8, kind: 9, process: 18 },
            _ => Self { born: 7, bar: 16, age: 8, kind: 14, process: 30 },
        }
    }
}
