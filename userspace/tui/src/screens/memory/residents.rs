//! The resident memory of processes. The page of a segment is in the resident size of each process that maps it, but only once
//! in the column `COUNTED`.

use std::cmp::Reverse;
use std::ops::Range;

use pyobs_model::views::{self, ResidentRow};
use pyobs_model::{Model, ProcessRef};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::filter::Filter;
use crate::number;
use crate::paint::{HeadingPainter, RowPainter};
use crate::screens::names::{group_label, process_label};
use crate::screens::stacks::group_title;
use crate::table::{NoDetail, Sorted, Table};
use crate::ui::Ui;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ResidentSort {
    #[default]
    Once,
    Rss,
    Own,
    Segments,
}

#[derive(Default)]
pub(super) struct ResidentTable {
    /// The sums of the rows that are shown.
    sums: [u64; 6],
}

impl Table for ResidentTable {
    type Row = ResidentRow;
    type Key = ProcessRef;
    type Sort = ResidentSort;
    type Detail = NoDetail;

    const SORTS: &'static [ResidentSort] =
        &[ResidentSort::Once, ResidentSort::Rss, ResidentSort::Own, ResidentSort::Segments];

    fn compute(&mut self, model: &Model, ui: &Ui, _: Option<&mut NoDetail>) -> Option<Vec<ResidentRow>> {
        Some(views::residents(model, &ui.scope(model).selection, ui.look.group))
    }

    fn key(row: &ResidentRow) -> ProcessRef {
        row.process
    }

    fn matches(&self, row: &ResidentRow, filter: &Filter, model: &Model) -> bool {
        filter.matches(&process_label(model, Some(row.process)))
    }

    fn sort(&self, shown: &mut [usize], rows: &[ResidentRow], sort: ResidentSort, _model: &Model) {
        shown.sort_by_key(|it| {
            let resident = rows[*it].resident;
            Reverse(match sort {
                ResidentSort::Once => resident.counted_once(),
                ResidentSort::Rss => resident.total,
                ResidentSort::Own => resident.anonymous,
                ResidentSort::Segments => resident.segments,
            })
        });
    }

    fn arranged(&mut self, rows: &[ResidentRow], shown: &[usize], _: Range<usize>, _model: &Model, _ui: &Ui) {
        self.sums = [0; 6];
        for row in shown {
            self.sums.iter_mut().zip(sizes(&rows[*row])).for_each(|(sum, size)| *sum = sum.saturating_add(size));
        }
    }

    /// The area without the line for the sums.
    fn place(&self, area: Rect, _ui: &Ui) -> Rect {
        Rect { height: area.height.saturating_sub(1), ..area }
    }

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<ResidentSort>, ui: &Ui) {
        let detail = detail_width(width);
        head.right(10, "COUNTED", sorted.descending(ResidentSort::Once));
        head.right(10, "RSS", sorted.descending(ResidentSort::Rss));
        head.right(detail, "OWN", sorted.descending(ResidentSort::Own));
        head.right(detail, "FILES", None);
        head.right(10, "SEGMENTS", sorted.descending(ResidentSort::Segments));
        head.right(detail, "SHARE", None);
        head.left(usize::MAX, group_title(ui.look.group), None);
    }

    fn draw_row(
        &self,
        row: &mut RowPainter<'_>,
        line: &ResidentRow,
        width: u16,
        _: ResidentSort,
        model: &Model,
        ui: &Ui,
    ) {
        draw_sizes(row, width, sizes(line), &group_label(model, ui.look.group, line.process), ui);
    }

    fn draw_around(&self, area: Rect, last: Rect, _model: &Model, ui: &Ui, buf: &mut Buffer) {
        if area.height > 2 {
            let mut row = RowPainter::new(buf, Rect { y: last.y + 1, ..last });
            draw_sizes(&mut row, area.width, self.sums, "all of these, each page of a segment once in COUNTED", ui);
        }
    }
}

fn detail_width(width: u16) -> usize {
    if width < 76 { 0 } else { 10 }
}

fn draw_sizes(row: &mut RowPainter<'_>, width: u16, sizes: [u64; 6], label: &str, ui: &Ui) {
    let (theme, detail) = (ui.theme, detail_width(width));
    let [once, total, own, files, segments, share] = sizes.map(number::size);
    row.right(10, &once, theme.strong());
    row.right(10, &total, theme.text());
    row.right(detail, &own, theme.dim());
    row.right(detail, &files, theme.dim());
    row.right(10, &segments, theme.text());
    row.right(detail, &share, theme.dim());
    row.rest(label, theme.text());
}

/// In the order of the columns.
fn sizes(row: &ResidentRow) -> [u64; 6] {
    let it = row.resident;
    [it.counted_once(), it.total, it.anonymous, it.files, it.segments, it.share]
}
