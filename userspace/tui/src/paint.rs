//! The only code that writes text into the picture. It makes the text harmless and truncates it to the room that it has.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::text;
use crate::theme::Theme;

/// Writes at (`x`, `y`) of `area`. Returns the column after the text.
pub(crate) fn put(buf: &mut Buffer, area: Rect, x: u16, y: u16, words: &str, style: Style) -> u16 {
    write(buf, area, x, y, style, |room| text::fit(words, room))
}

/// Like [`put()`], but truncates the beginning: for paths.
pub(crate) fn put_path(buf: &mut Buffer, area: Rect, x: u16, y: u16, words: &str, style: Style) -> u16 {
    write(buf, area, x, y, style, |room| text::fit_left(words, room))
}

fn write(buf: &mut Buffer, area: Rect, x: u16, y: u16, style: Style, fit: impl FnOnce(usize) -> String) -> u16 {
    let area = area.intersection(buf.area);
    if x >= area.width || y >= area.height {
        return x;
    }
    let room = usize::from(area.width - x);
    let (end, _) = buf.set_stringn(area.x + x, area.y + y, fit(room), room, style);
    end - area.x
}

/// Draws a hint that there are `more` lines below those in sight.
pub(crate) fn put_more(buf: &mut Buffer, area: Rect, more: usize, theme: Theme) {
    if more > 0 && area.height > 0 {
        let hint = format!(" ↓ {more} more ");
        let x = usize::from(area.width).saturating_sub(hint.chars().count());
        put(buf, area, x as u16, area.height - 1, &hint, theme.chip());
    }
}

/// Draws a line of a table from the left. An empty cell follows each column.
pub(crate) struct RowPainter<'a> {
    buf: &'a mut Buffer,
    area: Rect,
    x: u16,
    /// Replaces the styles of the columns in the selected row.
    style: Option<Style>,
}

impl<'a> RowPainter<'a> {
    pub(crate) fn new(buf: &'a mut Buffer, area: Rect) -> Self {
        let area = area.intersection(buf.area);
        Self { buf, area, x: 0, style: None }
    }

    pub(crate) fn select(&mut self, is_selected: bool, theme: Theme) {
        if is_selected {
            self.buf.set_style(self.area, theme.selected());
            self.style = Some(theme.selected());
        }
    }

    pub(crate) fn left(&mut self, width: usize, words: &str, style: Style) {
        let width = self.room(width);
        self.column(width, &text::fit(words, width), 0, style);
    }

    pub(crate) fn right(&mut self, width: usize, words: &str, style: Style) {
        let width = self.room(width);
        let words = text::fit(words, width);
        let offset = width - text::width(&words, width);
        self.column(width, &words, offset, style);
    }

    /// A bar for a share between 0 and 1. A width of 0 leaves the column out.
    pub(crate) fn bar(&mut self, width: usize, share: f64, style: Style) {
        let width = self.room(width);
        self.column(width, &bar(share, width), 0, style);
    }

    /// A block for each number, scaled to the highest one. Without numbers the column is left out.
    pub(crate) fn blocks(&mut self, numbers: &[u64], style: Style) {
        self.column(self.room(numbers.len()), &blocks(numbers), 0, style);
    }

    /// A column that takes the rest of the line.
    pub(crate) fn rest(&mut self, words: &str, style: Style) {
        self.left(usize::MAX, words, style);
    }

    pub(crate) fn rest_of_path(&mut self, words: &str, style: Style) {
        self.left_path(usize::MAX, words, style);
    }

    pub(crate) fn left_path(&mut self, width: usize, words: &str, style: Style) {
        let width = self.room(width);
        self.column(width, &text::fit_left(words, width), 0, style);
    }

    pub(crate) fn skip(&mut self, width: usize) {
        if width > 0 {
            self.x = self.x.saturating_add(self.room(width) as u16).saturating_add(1);
        }
    }

    fn room(&self, width: usize) -> usize {
        width.min(usize::from(self.area.width.saturating_sub(self.x)))
    }

    fn column(&mut self, width: usize, words: &str, offset: usize, style: Style) {
        if width > 0 {
            let style = self.style.unwrap_or(style);
            put(self.buf, self.area, self.x + offset as u16, 0, words, style);
            self.x = self.x.saturating_add(width as u16).saturating_add(1);
        }
    }
}

/// The direction in which a column sorts the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SortOrder {
    Ascending,
    Descending,
}

/// Draws the line of a table that names its columns.
pub(crate) struct HeadingPainter<'a> {
    row: RowPainter<'a>,
    theme: Theme,
}

impl<'a> HeadingPainter<'a> {
    pub(crate) fn new(buf: &'a mut Buffer, area: Rect, theme: Theme) -> Self {
        Self { row: RowPainter::new(buf, Rect { height: area.height.min(1), ..area }), theme }
    }

    pub(crate) fn left(&mut self, width: usize, words: &str, order: Option<SortOrder>) {
        let (words, style) = self.mark(words, order);
        self.row.left(width, &words, style);
    }

    pub(crate) fn right(&mut self, width: usize, words: &str, order: Option<SortOrder>) {
        let (words, style) = self.mark(words, order);
        self.row.right(width, &words, style);
    }

    pub(crate) fn skip(&mut self, width: usize) {
        self.row.skip(width);
    }

    fn mark(&self, words: &str, order: Option<SortOrder>) -> (String, Style) {
        match order {
            Some(SortOrder::Descending) => (format!("▾{words}"), self.theme.sorted_heading()),
            Some(SortOrder::Ascending) => (format!("▴{words}"), self.theme.sorted_heading()),
            None => (words.to_owned(), self.theme.heading()),
        }
    }
}

fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    // Any share above 0 stays visible.
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Any number above 0 stays visible.
fn blocks(numbers: &[u64]) -> String {
    const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = numbers.iter().copied().max().unwrap_or(0).max(1) as f64;
    let block = |number: &u64| HEIGHTS[(*number as f64 / highest * 8.0).ceil().min(8.0) as usize];
    numbers.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_scale_to_the_highest_number_and_small_ones_stay_visible() {
        assert_eq!(blocks(&[0, 1, 4, 8]), " ▁▄█");
        assert_eq!(blocks(&[1, u64::MAX]), "▁█");
        assert_eq!(blocks(&[0, 0]), "  ");
        assert_eq!(blocks(&[]), "");
    }

    #[test]
    fn bars_stay_within_their_width() {
        assert_eq!(bar(0.0, 4), "");
        assert_eq!(bar(1e-9, 4), "▏");
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(7.0, 4), "████");
        assert_eq!(bar(f64::NAN, 4), "");
    }
}
