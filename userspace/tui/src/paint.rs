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

/// Draws a line of a table from the left, or collects the texts of its columns. An empty cell follows each column.
pub(crate) struct RowPainter<'a> {
    target: Target<'a>,
}

enum Target<'a> {
    Picture {
        buf: &'a mut Buffer,
        area: Rect,
        x: u16,
        /// Replaces the styles of the columns in the selected row.
        style: Option<Style>,
    },
    Cells(&'a mut Vec<String>),
}

/// Narrower columns hold marks, which are no cells.
const CELL_MIN: usize = 3;

impl<'a> RowPainter<'a> {
    pub(crate) fn new(buf: &'a mut Buffer, area: Rect) -> Self {
        let area = area.intersection(buf.area);
        Self { target: Target::Picture { buf, area, x: 0, style: None } }
    }

    /// Collects the whole texts, however wide the columns are. Bars are no cells.
    pub(crate) fn collecting(cells: &'a mut Vec<String>) -> Self {
        Self { target: Target::Cells(cells) }
    }

    pub(crate) fn select(&mut self, is_selected: bool, theme: Theme) {
        if let Target::Picture { buf, area, style, .. } = &mut self.target
            && is_selected
        {
            buf.set_style(*area, theme.selected());
            *style = Some(theme.selected());
        }
    }

    pub(crate) fn left(&mut self, width: usize, words: &str, style: Style) {
        self.column(width, words, style, |words, width| (text::fit(words, width), 0));
    }

    pub(crate) fn right(&mut self, width: usize, words: &str, style: Style) {
        self.column(width, words, style, |words, width| {
            let words = text::fit(words, width);
            let offset = width - text::width(&words, width);
            (words, offset)
        });
    }

    /// A bar for a share between 0 and 1. A width of 0 leaves the column out.
    pub(crate) fn bar(&mut self, width: usize, share: f64, style: Style) {
        self.drawing(width, style, |width| bar(share, width));
    }

    /// A block for each number, scaled to the highest one. Without numbers the column is left out.
    pub(crate) fn blocks(&mut self, numbers: &[u64], style: Style) {
        self.drawing(numbers.len(), style, |_| blocks(numbers));
    }

    /// A column that takes the rest of the line.
    pub(crate) fn rest(&mut self, words: &str, style: Style) {
        self.left(usize::MAX, words, style);
    }

    pub(crate) fn rest_of_path(&mut self, words: &str, style: Style) {
        self.left_path(usize::MAX, words, style);
    }

    pub(crate) fn left_path(&mut self, width: usize, words: &str, style: Style) {
        self.column(width, words, style, |words, width| (text::fit_left(words, width), 0));
    }

    /// An empty column.
    pub(crate) fn skip(&mut self, width: usize) {
        self.column(width, "", Style::default(), |_, _| (String::new(), 0));
    }

    /// A column with a text, which `fit` fits into the room and places in it.
    fn column(&mut self, width: usize, words: &str, style: Style, fit: impl FnOnce(&str, usize) -> (String, usize)) {
        match &mut self.target {
            Target::Cells(cells) if width >= CELL_MIN => cells.push(words.to_owned()),
            Target::Cells(_) => {}
            Target::Picture { .. } => self.draw(width, style, |width| fit(words, width)),
        }
    }

    /// A column without a text.
    fn drawing(&mut self, width: usize, style: Style, draw: impl FnOnce(usize) -> String) {
        self.draw(width, style, |width| (draw(width), 0));
    }

    fn draw(&mut self, width: usize, own: Style, draw: impl FnOnce(usize) -> (String, usize)) {
        let Target::Picture { buf, area, x, style } = &mut self.target else { return };
        if width == 0 {
            return;
        }
        let room = width.min(usize::from(area.width.saturating_sub(*x)));
        let (words, offset) = draw(room);
        put(buf, *area, *x + offset as u16, 0, &words, style.unwrap_or(own));
        *x = x.saturating_add(room as u16).saturating_add(1);
    }
}

/// The direction in which a column sorts the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SortOrder {
    Ascending,
    Descending,
}

/// Draws the line of a table that names its columns, or collects the names.
pub(crate) struct HeadingPainter<'a> {
    row: RowPainter<'a>,
    theme: Theme,
    is_drawn: bool,
}

impl<'a> HeadingPainter<'a> {
    pub(crate) fn new(buf: &'a mut Buffer, area: Rect, theme: Theme) -> Self {
        Self { row: RowPainter::new(buf, Rect { height: area.height.min(1), ..area }), theme, is_drawn: true }
    }

    pub(crate) fn collecting(cells: &'a mut Vec<String>, theme: Theme) -> Self {
        Self { row: RowPainter::collecting(cells), theme, is_drawn: false }
    }

    pub(crate) fn left(&mut self, width: usize, words: &str, order: Option<SortOrder>) {
        let (words, style) = self.mark(words, order);
        self.row.left(width, &words, style);
    }

    pub(crate) fn right(&mut self, width: usize, words: &str, order: Option<SortOrder>) {
        let (words, style) = self.mark(words, order);
        self.row.right(width, &words, style);
    }

    /// Room above a bar, which needs no name.
    pub(crate) fn skip(&mut self, width: usize) {
        if self.is_drawn {
            self.row.skip(width);
        }
    }

    fn mark(&self, words: &str, order: Option<SortOrder>) -> (String, Style) {
        match order {
            _ if !self.is_drawn => (words.to_owned(), Style::default()),
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
