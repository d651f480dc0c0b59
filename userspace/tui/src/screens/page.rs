//! What is known of one thing, on lines that scroll.

use pyobs_model::views::By;
use pyobs_model::{FrameId, Model, StackId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::frames::draw_frame;
use crate::binding::Action;
use crate::draw::{Row, put_more};
use crate::list::scroll;
use crate::number;
use crate::ui::Ui;

pub(super) enum Line<P> {
    Blank,
    Heading(&'static str),
    Pair(&'static str, String),
    Words(String),
    /// What only this page has.
    Part(P),
    Frame(FrameId),
    More(usize),
}

pub(super) struct Page<P> {
    lines: Vec<Line<P>>,
    top: usize,
}

impl<P> Default for Page<P> {
    fn default() -> Self {
        Self { lines: Vec::new(), top: 0 }
    }
}

impl<P> Page<P> {
    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }

    pub(super) fn pair(&mut self, name: &'static str, words: String) {
        self.lines.push(Line::Pair(name, words));
    }

    pub(super) fn words(&mut self, words: &str) {
        self.lines.push(Line::Words(words.to_owned()));
    }

    pub(super) fn part(&mut self, part: P) {
        self.lines.push(Line::Part(part));
    }

    pub(super) fn heading(&mut self, heading: &'static str) {
        self.lines.extend([Line::Blank, Line::Heading(heading)]);
    }

    /// How many others there are, if any.
    pub(super) fn more(&mut self, count: usize) {
        self.lines.extend((count > 0).then_some(Line::More(count)));
    }

    /// As many lines as `most`; the others are only counted. Nothing for none.
    pub(super) fn list(&mut self, heading: &'static str, lines: impl ExactSizeIterator<Item = Line<P>>, most: usize) {
        if lines.len() == 0 {
            return;
        }
        let more = lines.len().saturating_sub(most);
        self.heading(heading);
        self.lines.extend(lines.take(most));
        self.more(more);
    }

    /// The frames of a stack, the innermost first.
    pub(super) fn frames(&mut self, model: &Model, stack: StackId) {
        self.lines.extend(model.stack(stack).iter().rev().map(|frame| Line::Frame(*frame)));
    }

    pub(super) fn stack(&mut self, heading: &'static str, model: &Model, stack: StackId) {
        if !model.stack(stack).is_empty() {
            self.heading(heading);
            self.frames(model, stack);
        }
    }

    pub(super) fn arrange(&mut self, height: usize) {
        self.top = self.top.min(self.lines.len().saturating_sub(height));
    }

    pub(super) fn act(&mut self, action: Action, height: usize) {
        self.top = scroll(self.top, action, self.lines.len(), height);
    }

    pub(super) fn draw(
        &self,
        model: &Model,
        ui: &Ui,
        area: Rect,
        buf: &mut Buffer,
        draw_part: impl Fn(&mut Row<'_>, &P),
    ) {
        let theme = ui.theme;
        let height = usize::from(area.height);
        for (line, y) in self.lines.iter().skip(self.top).take(height).zip(area.y..) {
            let mut row = Row::new(buf, Rect { y, height: 1, ..area });
            match line {
                Line::Blank => {}
                Line::Heading(heading) => row.rest(&format!(" {heading}"), theme.heading()),
                Line::Pair(name, words) => {
                    row.left(11, &format!(" {name}"), theme.dim());
                    row.rest(words, theme.text());
                }
                Line::Words(words) => row.rest(&format!(" {words}"), theme.text()),
                Line::Part(part) => draw_part(&mut row, part),
                Line::Frame(id) => {
                    if let Some(frame) = model.frame(*id) {
                        row.skip(1);
                        draw_frame(&mut row, usize::from(area.width) * 45 / 100, frame, By::Line, theme);
                    }
                }
                Line::More(count) => {
                    let others = number::plural(*count as u64, "other", "others");
                    row.rest(&format!("   and {others}"), theme.dim());
                }
            }
        }
        put_more(buf, area, self.lines.len().saturating_sub(self.top + height), theme);
    }
}
