//! The private memory of processes by line, below a bar of all their resident memory by kind.

use std::cmp::Reverse;

use pyobs_model::families::heap::HeapTime;
use pyobs_model::views::{self, By, HeapLine, HeapUse};
use pyobs_model::{FrameId, Model, Nanos, ProcessRef, Selection};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::heap_detail::HeapDetail;
use crate::filter::Filter;
use crate::number;
use crate::paint::{HeadingPainter, RowPainter, put};
use crate::screens::names::{place, process_label};
use crate::table::{Sorted, Table};
use crate::theme::Theme;
use crate::ui::Ui;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HeapSort {
    #[default]
    Size,
    Touched,
    Age,
}

/// A use of memory by a line of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeapSite {
    pub(super) process: ProcessRef,
    pub(super) used_for: HeapUse,
    pub(super) frame: Option<FrameId>,
}

impl HeapSite {
    pub(super) fn of(row: &HeapLine) -> Self {
        Self { process: row.process, used_for: row.used_for, frame: row.frame }
    }
}

/// The parts of the bar, in its order, with the characters that fill them.
const FILLS: [char; 6] = ['█', '▓', '▒', '░', '▚', '·'];

#[derive(Default)]
pub(super) struct HeapTable {
    now: Nanos,
    parts: [(&'static str, u64); 6],
    /// Whether something is shown as it was at the peak of a process that has ended.
    has_peaks: bool,
}

impl Table for HeapTable {
    type Row = HeapLine;
    type Key = HeapSite;
    type Sort = HeapSort;
    type Detail = HeapDetail;

    const SORTS: &'static [HeapSort] = &[HeapSort::Size, HeapSort::Touched, HeapSort::Age];

    fn compute(&mut self, model: &Model, ui: &Ui, detail: Option<&mut HeapDetail>) -> Option<Vec<HeapLine>> {
        let selection = ui.scope(model).selection;
        self.now = selection.to.unwrap_or_else(|| model.now()).min(model.now());
        self.add_up(model, &selection);
        let rows = views::heap_lines(model, &selection);
        if let Some(detail) = detail {
            detail.compute(model, &rows, self.now);
        }
        Some(rows)
    }

    fn key(row: &HeapLine) -> HeapSite {
        HeapSite::of(row)
    }

    fn matches(&self, row: &HeapLine, filter: &Filter, model: &Model) -> bool {
        filter.matches(row.used_for.name())
            || filter.matches(&used_at(model, row))
            || filter.matches(&process_label(model, Some(row.process)))
    }

    fn sort(&self, shown: &mut [usize], rows: &[HeapLine], sort: HeapSort, _model: &Model) {
        match sort {
            HeapSort::Size => shown.sort_by_key(|it| Reverse(rows[*it].bytes)),
            HeapSort::Touched => shown.sort_by_key(|it| Reverse(rows[*it].touched)),
            HeapSort::Age => shown.sort_by_key(|it| rows[*it].since),
        }
    }

    /// The area without the lines of the bar.
    fn place(&self, area: Rect, _ui: &Ui) -> Rect {
        let bar = BAR_HEIGHT.min(area.height);
        Rect { y: area.y + bar, height: area.height - bar, ..area }
    }

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<HeapSort>, _ui: &Ui) {
        let widths = HeapWidths::of(width);
        head.right(10, "SIZE", sorted.descending(HeapSort::Size));
        head.right(8, "OF RSS", None);
        head.skip(widths.bar);
        head.right(widths.touched, "TOUCHED", sorted.descending(HeapSort::Touched));
        head.right(widths.age, "AGE", sorted.descending(HeapSort::Age));
        head.left(widths.kind, "KIND", None);
        head.left(widths.process, "PROCESS", None);
        head.left(usize::MAX, "LINE", None);
    }

    fn draw_row(&self, row: &mut RowPainter<'_>, line: &HeapLine, width: u16, _: HeapSort, model: &Model, ui: &Ui) {
        let (widths, theme) = (HeapWidths::of(width), ui.theme);
        let share = line.bytes as f64 / self.total().max(1) as f64;
        row.right(10, &number::size(line.bytes), theme.strong());
        row.right(8, &number::percent(share * 100.0), theme.text());
        row.bar(widths.bar, share, theme.own());
        let touched = if line.is_sampled() { number::size(line.touched) } else { String::new() };
        row.right(widths.touched, &touched, theme.dim());
        let age = if line.is_sampled() { number::time(self.now.saturating_sub(line.since)) } else { String::new() };
        row.right(widths.age, &age, theme.text());
        row.left(widths.kind, line.used_for.name(), theme.dim());
        row.left(widths.process, &process_label(model, Some(line.process)), theme.dim());
        row.rest_of_path(&used_at(model, line), theme.text());
    }

    fn draw_around(&self, area: Rect, _last: Rect, _model: &Model, ui: &Ui, buf: &mut Buffer) {
        if area.height < BAR_HEIGHT || self.total() == 0 {
            return;
        }
        let of_ended = if self.has_peaks { ", of ended processes at their peak" } else { "" };
        let title = format!("Resident {}{of_ended}", number::size(self.total()));
        put(buf, area, 1, 0, &title, ui.theme.strong());
        self.draw_bar(area, ui.theme, buf);
        self.draw_legend(area, ui.theme, buf);
    }
}

/// A title, the bar, its legend and an empty line.
const BAR_HEIGHT: u16 = 4;

impl HeapTable {
    fn add_up(&mut self, model: &Model, selection: &Selection) {
        let rows = views::heap_processes(model, selection);
        self.has_peaks = rows.iter().any(|row| row.time == HeapTime::Peak);
        self.parts = Default::default();
        for row in &rows {
            for (sum, (name, bytes)) in self.parts.iter_mut().zip(row.parts()) {
                *sum = (name, sum.1.saturating_add(bytes));
            }
        }
    }

    fn total(&self) -> u64 {
        self.parts.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    fn draw_bar(&self, area: Rect, theme: Theme, buf: &mut Buffer) {
        let width = u64::from(area.width.saturating_sub(2));
        let (mut before, mut x) = (0_u64, 1);
        for (index, (_, bytes)) in self.parts.iter().enumerate() {
            let start = edge(before, self.total(), width);
            before = before.saturating_add(*bytes);
            let cells = edge(before, self.total(), width) - start;
            let filled: String = std::iter::repeat_n(FILLS[index], cells as usize).collect();
            x = put(buf, area, x, 1, &filled, style(theme, index));
        }
    }

    fn draw_legend(&self, area: Rect, theme: Theme, buf: &mut Buffer) {
        let mut x = 1;
        for (index, (name, bytes)) in self.parts.iter().enumerate().filter(|(_, (_, bytes))| *bytes > 0) {
            x = put(buf, area, x, 2, &FILLS[index].to_string(), style(theme, index));
            x = put(buf, area, x, 2, &format!(" {name} {}  ", number::size(*bytes)), theme.text());
        }
    }
}

/// The column in which the first `bytes` of `total` end, in a bar of this width.
fn edge(bytes: u64, total: u64, width: u64) -> u64 {
    (bytes as f64 / total.max(1) as f64 * width as f64).round() as u64
}

fn style(theme: Theme, part: usize) -> Style {
    match part {
        0 => theme.own(),
        1 => theme.good(),
        2 => theme.total(),
        4 => theme.brand(),
        _ => theme.dim(),
    }
}

pub(super) fn used_at(model: &Model, row: &HeapLine) -> String {
    let frame = row.frame.and_then(|id| model.frame(id));
    frame.map_or_else(|| row.used_for.about().to_owned(), |frame| place(frame, By::Line))
}

struct HeapWidths {
    bar: usize,
    touched: usize,
    age: usize,
    kind: usize,
    process: usize,
}

impl HeapWidths {
    fn of(width: u16) -> Self {
        match width {
            0..76 => Self { bar: 0, touched: 0, age: 0, kind: 0, process: 12 },
            76..120 => Self { bar: 0, touched: 0, age: 8, kind: 8, process: 18 },
            _ => Self { bar: 16, touched: 10, age: 8, kind: 8, process: 30 },
        }
    }
}
