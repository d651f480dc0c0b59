//! The shares of time in which each process's GIL was held and wanted.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyobs_model::views::{self, By, GilShare, Group, Weight};
use pyobs_model::{Family, FrameId, Model, Nanos, ProcessRef, Reason, Selection};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::tables::PlaceWidths;
use crate::paint::{HeadingPainter, RowPainter, put};
use crate::scope::Reach;
use crate::screens::names::process_label;
use crate::screens::names::thread_label;
use crate::ui::Ui;
use crate::{number, text};

#[derive(Default)]
pub(super) struct GilShares {
    /// The most wanted GIL first.
    rows: Vec<GilShareRow>,
    /// The number of sleeps that were not counted.
    unseen: u64,
}

struct GilShareRow {
    process: ProcessRef,
    gil: GilShare,
    /// The holder's line behind which other threads waited longest.
    line: Option<FrameId>,
}

impl GilShares {
    pub(super) fn new(
        model: &Model,
        selection: &Selection,
        shares: BTreeMap<ProcessRef, GilShare>,
        unseen: u64,
    ) -> Self {
        let mut lines: BTreeMap<ProcessRef, BTreeMap<FrameId, Nanos>> = BTreeMap::new();
        for row in views::gil_waits(model, selection, By::Line, Group::None) {
            if let Some(frame) = row.holder_frame {
                let sum = lines.entry(row.process).or_default().entry(frame).or_default();
                *sum = sum.saturating_add(row.times.total);
            }
        }
        let line = |process| {
            let sums = lines.get(&process)?.iter();
            sums.max_by_key(|(frame, time)| (**time, Reverse(**frame))).map(|(frame, _)| *frame)
        };
        let row = |(process, gil)| GilShareRow { process, gil, line: line(process) };
        let mut rows: Vec<GilShareRow> = shares.into_iter().map(row).collect();
        rows.sort_by_key(|row| Reverse((row.gil.wanted.total, row.gil.held)));
        Self { rows, unseen }
    }

    /// The number of lines that the shares take of a screen.
    pub(super) fn height(&self, body: Rect) -> u16 {
        let lines = self.warning(body.width).len() + 1 + self.rows_in(body) + usize::from(has_gap(body));
        (lines as u16).min(body.height)
    }

    fn rows_in(&self, body: Rect) -> usize {
        self.rows.len().min(usize::from(body.height / 6).max(1))
    }

    fn warning(&self, width: u16) -> Vec<String> {
        if self.unseen == 0 {
            return Vec::new();
        }
        let lost = format!("{} lost: {}", number::grouped(self.unseen), Reason::SleepUnseen.sentence());
        text::wrap(&lost, usize::from(width).saturating_sub(2))
    }

    pub(super) fn draw(&self, model: &Model, ui: &Ui, body: Rect, buf: &mut Buffer) {
        let theme = ui.theme;
        let warning = self.warning(body.width);
        for (line, y) in warning.iter().zip(0..) {
            put(buf, body, 1, y, line, theme.warning());
        }
        let used = (warning.len() as u16).min(body.height);
        let area = Rect { y: body.y + used, height: body.height - used, ..body };
        if self.rows.is_empty() {
            let why = if Weight::Gil.is_known(model) {
                format!("nobody held it or waited for it {}", ui.when(Reach::Window))
            } else {
                format!("not watched. {}", ui.how_to_see(Family::Gil))
            };
            let x = put(buf, area, 1, 0, "GIL", theme.heading());
            put(buf, area, x + 2, 0, &why, theme.dim());
            return;
        }
        let widths = GilShareWidths::of(area.width);
        let mut head = HeadingPainter::new(buf, area, theme);
        head.right(10, "GIL HELD %", None);
        head.skip(widths.bar);
        head.right(8, "WANTED %", None);
        head.skip(widths.bar);
        head.right(widths.longest, "LONGEST", None);
        head.left(widths.process, "PROCESS", None);
        head.left(widths.holder, "HELD MOST BY", None);
        head.left(widths.place.sum(), "WAITED FOR MOST", None);
        let rows = self.rows_in(body);
        for (share, y) in self.rows.iter().take(rows).zip(area.y + 1..) {
            let mut row = RowPainter::new(buf, Rect { y, height: 1, ..area });
            draw_share(&mut row, &widths, model, ui, share);
        }
        if has_gap(body) && rows < self.rows.len() {
            let more = number::plural((self.rows.len() - rows) as u64, "other process", "other processes");
            put(buf, area, 1, 1 + rows as u16, &format!("and {more}"), theme.dim());
        }
    }
}

/// Whether the screen has enough lines for one between the two tables.
fn has_gap(body: Rect) -> bool {
    body.height >= 16
}

fn draw_share(row: &mut RowPainter<'_>, widths: &GilShareWidths, model: &Model, ui: &Ui, share: &GilShareRow) {
    let theme = ui.theme;
    let (held, wanted) = (share.gil.held_share(), share.gil.wanted_share());
    row.right(10, &number::percent(held * 100.0), theme.text());
    row.bar(widths.bar, held, theme.own());
    row.right(8, &number::percent(wanted * 100.0), theme.text());
    row.bar(widths.bar, wanted, theme.total());
    let longest = share.gil.wanted.max;
    let longest = if longest > Nanos(0) { number::time(longest) } else { "–".to_owned() };
    row.right(widths.longest, &longest, theme.dim());
    row.left(widths.process, &process_label(model, Some(share.process)), theme.text());
    let holder = share.gil.holder().map(|(tid, thread)| {
        let of = number::percent(number::share(thread.held.0, share.gil.observed.0).min(100.0));
        format!("{of} % {}", thread_label(model, share.process, tid))
    });
    row.left(widths.holder, holder.as_deref().unwrap_or("–"), theme.text());
    widths.place.draw(row, share.line.and_then(|frame| model.frame(frame)), By::Line, theme);
}

struct GilShareWidths {
    bar: usize,
    longest: usize,
    process: usize,
    holder: usize,
    place: PlaceWidths,
}

impl GilShareWidths {
    fn of(width: u16) -> Self {
        let (bar, longest) = match width {
            0..90 => (0, 0),
            90..130 => (0, 8),
            _ => (10, 8),
        };
        let gaps = 2 + 2 * usize::from(bar > 0) + usize::from(longest > 0);
        let left = usize::from(width).saturating_sub(18 + 2 * bar + longest + gaps);
        let percent = |percent: usize| (left * percent / 100).saturating_sub(1);
        if width < 90 {
            return Self { bar, longest, process: percent(50), holder: left, place: PlaceWidths::default() };
        }
        let (process, holder) = (percent(32), percent(30));
        Self { bar, longest, process, holder, place: PlaceWidths::of(percent(38), width) }
    }
}
