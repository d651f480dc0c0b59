//! A page of scrolling lines about one thing. A line that names something else is a link to it. The cursor moves from link to
//! link.

use pyobs_model::views::By;
use pyobs_model::{FrameId, Model, ProcessRef, StackId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::names::draw_frame;
use crate::binding::Action;
use crate::hit_areas::Hit;
use crate::jump::{Effect, Jump};
use crate::list::scroll;
use crate::number;
use crate::paint::{RowPainter, put_more};
use crate::table;
use crate::ui::Ui;

pub(super) enum PageLine<P> {
    Blank,
    Heading(String),
    Pair(&'static str, String),
    Words(String),
    /// A line that only this kind of page has.
    Custom(P),
    Frame(FrameId),
    More(usize),
}

/// A line that only one kind of page has.
pub(super) trait CustomLine {
    /// Draws the line, on a page of this width.
    fn draw(&self, row: &mut RowPainter<'_>, width: u16, model: &Model, ui: &Ui);
}

/// The detail of a list's row, as a page.
pub(super) struct PageDetail<K, P> {
    pub(super) key: K,
    pub(super) page: Page<P>,
}

impl<K, P: CustomLine> table::Detail<K> for PageDetail<K, P> {
    fn of(key: K) -> Option<Self> {
        Some(Self { key, page: Page::default() })
    }

    fn arrange(&mut self, height: usize) {
        self.page.arrange(height);
    }

    fn act(&mut self, action: Action, height: usize) -> Effect {
        self.page.act(action, height)
    }

    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        self.page.draw(model, ui, area, buf);
    }
}

pub(super) struct Page<P> {
    lines: Vec<(PageLine<P>, Option<Jump>)>,
    top: usize,
    /// The link that Enter follows.
    selected: Option<usize>,
}

impl<P> Default for Page<P> {
    fn default() -> Self {
        Self { lines: Vec::new(), top: 0, selected: None }
    }
}

impl<P> Page<P> {
    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }

    pub(super) fn pair(&mut self, name: &'static str, words: String) {
        self.lines.push((PageLine::Pair(name, words), None));
    }

    pub(super) fn link(&mut self, name: &'static str, words: String, jump: Option<Jump>) {
        self.lines.push((PageLine::Pair(name, words), jump));
    }

    pub(super) fn words(&mut self, words: String, jump: Option<Jump>) {
        self.lines.push((PageLine::Words(words), jump));
    }

    pub(super) fn custom(&mut self, part: P, jump: Option<Jump>) {
        self.lines.push((PageLine::Custom(part), jump));
    }

    pub(super) fn heading(&mut self, heading: impl Into<String>) {
        self.lines.extend([(PageLine::Blank, None), (PageLine::Heading(heading.into()), None)]);
    }

    /// Adds a line that says how many others there are, if any.
    pub(super) fn more(&mut self, count: usize) {
        self.lines.extend((count > 0).then_some((PageLine::More(count), None)));
    }

    /// Adds a heading and at most `most` lines; the others are counted. Adds nothing if there are no lines.
    pub(super) fn list(
        &mut self,
        heading: &'static str,
        lines: impl ExactSizeIterator<Item = (PageLine<P>, Option<Jump>)>,
        most: usize,
    ) {
        if lines.len() == 0 {
            return;
        }
        let more = lines.len().saturating_sub(most);
        self.heading(heading);
        self.lines.extend(lines.take(most));
        self.more(more);
    }

    /// Adds the frames of a stack, the innermost first.
    pub(super) fn frames(&mut self, model: &Model, process: Option<ProcessRef>, stack: StackId) {
        let line = |frame: &FrameId| (PageLine::Frame(*frame), Some(Jump::frame(process, *frame)));
        self.lines.extend(model.stack(stack).iter().rev().map(line));
    }

    pub(super) fn stack(&mut self, heading: &'static str, model: &Model, process: Option<ProcessRef>, stack: StackId) {
        if !model.stack(stack).is_empty() {
            self.heading(heading);
            self.frames(model, process, stack);
        }
    }

    fn arrange(&mut self, height: usize) {
        self.top = self.top.min(self.lines.len().saturating_sub(height));
        self.select_in_sight(height);
    }

    fn is_link(&self, line: usize) -> bool {
        self.lines.get(line).is_some_and(|(_, jump)| jump.is_some())
    }

    /// Keeps the selected link while it is in sight. Otherwise selects the first link in sight.
    fn select_in_sight(&mut self, height: usize) {
        let sight = self.top..self.top + height;
        let kept = self.selected.filter(|line| sight.contains(line) && self.is_link(*line));
        self.selected = kept.or_else(|| sight.into_iter().find(|line| self.is_link(*line)));
    }

    /// Follows the selected link, moves to the next link if it is in sight, or scrolls.
    fn act(&mut self, action: Action, height: usize) -> Effect {
        let sight = self.top..(self.top + height).min(self.lines.len());
        let next = match (action, self.selected) {
            (Action::Open, Some(selected)) => {
                let jump = self.lines.get(selected).and_then(|(_, jump)| *jump);
                return jump.map_or(Effect::Nothing, Effect::Jump);
            }
            (Action::Down, Some(selected)) => (selected + 1..sight.end).find(|line| self.is_link(*line)),
            (Action::Up, Some(selected)) => (sight.start..selected).rev().find(|line| self.is_link(*line)),
            _ => None,
        };
        match next {
            Some(_) => self.selected = next,
            None => {
                self.top = scroll(self.top, action, self.lines.len(), height);
                let at_edge = if action == Action::Up { self.top } else { self.top + height.saturating_sub(1) };
                // A link that came into sight is the next one.
                if matches!(action, Action::Up | Action::Down) && self.is_link(at_edge) {
                    self.selected = Some(at_edge);
                }
                self.select_in_sight(height);
            }
        }
        Effect::Nothing
    }

    /// The number of links before a line.
    fn links_before(&self, line: usize) -> usize {
        (0..line).filter(|line| self.is_link(*line)).count()
    }

    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer)
    where
        P: CustomLine,
    {
        let theme = ui.theme;
        let height = usize::from(area.height);
        let selected = self.selected.map(|line| self.links_before(line));
        for ((at, (line, jump)), y) in self.lines.iter().enumerate().skip(self.top).take(height).zip(area.y..) {
            let line_area = Rect { y, height: 1, ..area };
            if let (Some(_), Some(selected)) = (jump, selected) {
                ui.hit_areas.add(line_area, Hit::row(self.links_before(at), selected));
            }
            let mut row = RowPainter::new(buf, line_area);
            row.select(jump.is_some() && self.selected == Some(at), theme);
            match line {
                PageLine::Blank => {}
                PageLine::Heading(heading) => row.rest(&format!(" {heading}"), theme.heading()),
                PageLine::Pair(name, words) => {
                    row.left(11, &format!(" {name}"), theme.dim());
                    row.rest(words, if jump.is_some() { theme.link() } else { theme.text() });
                }
                PageLine::Words(words) => {
                    row.rest(&format!(" {words}"), if jump.is_some() { theme.link() } else { theme.text() });
                }
                PageLine::Custom(part) => part.draw(&mut row, area.width, model, ui),
                PageLine::Frame(id) => {
                    if let Some(frame) = model.frame(*id) {
                        row.skip(1);
                        draw_frame(&mut row, usize::from(area.width) * 45 / 100, frame, By::Line, theme);
                    }
                }
                PageLine::More(count) => {
                    let others = number::plural(*count as u64, "other", "others");
                    row.rest(&format!("   and {others}"), theme.dim());
                }
            }
        }
        put_more(buf, area, self.lines.len().saturating_sub(self.top + height), theme);
    }
}
