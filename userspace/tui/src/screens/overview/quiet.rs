//! What is shown if there are no findings: the longest waits, and the processes with the most memory.

use std::cmp::Reverse;

use pyobs_model::views::{self, By, Group, ResidentRow, SleepRow};
use pyobs_model::{Model, Selection};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::number;
use crate::paint::{HeadingPainter, RowPainter};
use crate::screens::names::{name, place, process_label};
use crate::text;
use crate::ui::Ui;

/// Rows of each kind.
const ROWS: usize = 3;
/// The lines above the rows of each kind: a blank one and the heading.
const ABOVE: u16 = 2;
/// Ends where the shares of the busiest lines end.
const AMOUNT: usize = 13;
const REASON: usize = 10;
const PLACE: usize = 32;

#[derive(Default)]
pub(super) struct Quiet {
    waits: Vec<SleepRow>,
    residents: Vec<ResidentRow>,
}

impl Quiet {
    pub(super) fn compute(model: &Model, selection: &Selection) -> Self {
        let mut waits = views::sleeps(model, selection, By::Line, Group::None);
        // Idle threads of libraries wait longest.
        waits.retain(|row| row.frame.is_some());
        waits.sort_by_key(|row| Reverse(row.times.max));
        waits.truncate(ROWS);
        let mut residents = views::residents(model, selection, Group::None);
        residents.truncate(ROWS);
        Self { waits, residents }
    }

    /// How many lines it needs: as many kinds as fit into this room.
    pub(super) fn lines(&self, room: u16) -> u16 {
        let mut lines = 0;
        for rows in [self.waits.len(), self.residents.len()] {
            let more = if rows == 0 { 0 } else { ABOVE + rows as u16 };
            if lines + more <= room {
                lines += more;
            }
        }
        lines
    }

    /// Draws into that many lines.
    pub(super) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let mut y = area.y;
        if !self.waits.is_empty() && y + ABOVE < area.bottom() {
            y = heading(" LONGEST WAITS", ui, area, y, buf);
            for (wait, y) in self.waits.iter().zip(y..area.bottom()) {
                draw_wait(wait, model, ui, Rect { y, height: 1, ..area }, buf);
            }
            y += self.waits.len() as u16;
        }
        if !self.residents.is_empty() && y + ABOVE < area.bottom() {
            y = heading(" MOST MEMORY", ui, area, y, buf);
            for (resident, y) in self.residents.iter().zip(y..area.bottom()) {
                let mut row = RowPainter::new(buf, Rect { y, height: 1, ..area });
                row.right(AMOUNT, &number::size(resident.resident.total), ui.theme.strong());
                row.rest(&process_label(model, Some(resident.process)), ui.theme.text());
            }
        }
    }
}

/// Draws a heading below a blank line. Returns the line after it.
fn heading(words: &str, ui: &Ui, area: Rect, y: u16, buf: &mut Buffer) -> u16 {
    let line = Rect { y: y + 1, height: 1, ..area };
    HeadingPainter::new(buf, line.intersection(area), ui.theme).left(usize::MAX, words, None);
    y + ABOVE
}

fn draw_wait(wait: &SleepRow, model: &Model, ui: &Ui, line: Rect, buf: &mut Buffer) {
    let theme = ui.theme;
    let mut row = RowPainter::new(buf, line);
    row.right(AMOUNT, &number::time(wait.times.max), theme.strong());
    row.left(REASON, wait.reason.name(), theme.text());
    let shown = wait.frame.and_then(|id| model.frame(id));
    let (at, function) = shown.map_or_else(Default::default, |shown| (place(shown, By::Line), name(shown)));
    row.left(PLACE, text::base_name(&at), theme.text());
    row.rest(&function, theme.dim());
}
