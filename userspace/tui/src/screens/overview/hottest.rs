//! The lines that use the most CPU time. They are shown if the findings leave room.

use pyobs_model::Model;
use pyobs_model::views::{By, CpuLines};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::number;
use crate::paint::{HeadingPainter, RowPainter};
use crate::screens::names;
use crate::text;
use crate::ui::Ui;

/// The fewest rows that make sense: a blank line, the heading and two lines.
pub(super) const LEAST: u16 = 4;
const MOST: usize = 20;
/// A blank line, the heading and five lines.
pub(super) const FEW: u16 = 7;
/// Ends where the findings' costs end.
const COST: usize = 13;
const BAR: usize = 10;
const PLACE: usize = 32;

pub(super) fn draw(lines: &CpuLines, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
    if area.height < LEAST || lines.rows.is_empty() {
        return;
    }
    let theme = ui.theme;
    let area = Rect { y: area.y + 1, height: area.height - 1, ..area };
    let mut head = HeadingPainter::new(buf, area, theme);
    head.left(usize::MAX, " BUSIEST LINES", None);
    let all = lines.all.time.0;
    let shown = lines.rows.iter().filter(|row| row.own.time.0 > 0).take(MOST);
    for (line, y) in shown.zip(area.y + 1..area.bottom()) {
        let Some(frame) = model.frame(line.frame) else { continue };
        let share = number::share(line.own.time.0, all);
        let mut row = RowPainter::new(buf, Rect { y, height: 1, ..area });
        row.right(COST, &format!("{share:.1} %"), theme.strong());
        row.bar(BAR, share / 100.0, theme.own());
        row.left(PLACE, text::base_name(&names::place(frame, By::Line)), theme.text());
        row.rest(&names::name(frame), theme.dim());
    }
}
