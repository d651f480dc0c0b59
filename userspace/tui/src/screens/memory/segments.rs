//! Memory that processes share: the segments, the largest first, and what became of each.

use std::cmp::Reverse;

use pyobs_model::families::shm::{State, Verdict};
use pyobs_model::views::{self, By, own_line};
use pyobs_model::{FrameId, Model, Nanos, SegmentId, SegmentKind};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::detail::Detail;
use crate::binding::Action;
use crate::draw::{Heading, Order, Row};
use crate::filter::Filter;
use crate::list::{Listing, turned};
use crate::screens::Outcome;
use crate::screens::frames::place;
use crate::ui::{Scope, Ui};
use crate::{number, text};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Size,
    Age,
    Holders,
    Verdict,
    Name,
}

const SORTS: [Sort; 5] = [Sort::Size, Sort::Age, Sort::Holders, Sort::Verdict, Sort::Name];

struct Line {
    id: SegmentId,
    bytes: u64,
    kind: SegmentKind,
    verdict: Verdict,
    begun: Nanos,
    ended: Option<Nanos>,
    holders: usize,
    name: String,
    /// The innermost Python frame of where it was made.
    frame: Option<FrameId>,
}

#[derive(Default)]
pub(super) struct Segments {
    sort: Sort,
    lines: Vec<Line>,
    listing: Listing<SegmentId>,
    detail: Option<Detail>,
    /// The span of time that the bars stand for.
    from: Nanos,
    to: Nanos,
    /// The row to go to.
    wanted: Option<SegmentId>,
}

impl Segments {
    pub(super) fn compute(&mut self, model: &Model, scope: &Scope) {
        self.to = scope.selection.to.unwrap_or_else(|| model.now()).min(model.now());
        self.from = scope.selection.from.unwrap_or(Nanos(0));
        if let Some(detail) = &mut self.detail {
            detail.compute(model);
            return;
        }
        let end = scope.selection.end();
        let lines = views::segments(model, &scope.selection).into_iter().map(|(id, state)| Line {
            id,
            bytes: state.segment.bytes,
            kind: state.segment.kind,
            verdict: state.verdict_at(end),
            begun: state.begun,
            ended: state.ended,
            holders: state.holders_at(end),
            name: label(state),
            frame: state.stack.and_then(|stack| own_line(model, stack)),
        });
        self.lines = lines.collect();
    }

    pub(super) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, body: Rect) {
        if let Some(detail) = &mut self.detail {
            detail.arrange(usize::from(body.height));
            return;
        }
        let lines = &self.lines;
        let place = |line: &Line| line.frame.and_then(|id| model.frame(id)).map(|frame| place(frame, By::Line));
        let is_shown = |index: &usize| {
            let line = &lines[*index];
            filter.is_none_or(|filter| {
                filter.matches(&line.name)
                    || filter.matches(line.verdict.name())
                    || filter.matches(line.kind.name())
                    || place(line).is_some_and(|place| filter.matches(&place))
            })
        };
        let mut shown: Vec<usize> = (0..lines.len()).filter(is_shown).collect();
        match self.sort {
            Sort::Size => shown.sort_by_key(|it| (Reverse(lines[*it].bytes), lines[*it].id)),
            Sort::Age => shown.sort_by_key(|it| lines[*it].begun),
            Sort::Holders => shown.sort_by_key(|it| (Reverse(lines[*it].holders), lines[*it].id)),
            Sort::Verdict => shown.sort_by_key(|it| (Reverse(lines[*it].verdict), Reverse(lines[*it].bytes))),
            Sort::Name => shown.sort_by(|a, b| lines[*a].name.cmp(&lines[*b].name)),
        }
        let height = usize::from(body.height.saturating_sub(1));
        self.listing.show(shown, |row| lines[row].id, height);
        if let Some(wanted) = self.wanted.take() {
            self.listing.seek(height, |id| *id == wanted);
        }
    }

    pub(super) fn jump(&mut self, id: SegmentId, opens: bool) {
        (self.detail, self.wanted) = (opens.then(|| Detail::new(id)), Some(id));
    }

    pub(super) fn put_aside(&mut self) -> Option<Detail> {
        self.detail.take()
    }

    pub(super) fn put_back(&mut self, detail: Option<Detail>) {
        self.detail = detail;
    }

    pub(super) fn act(&mut self, action: Action, body: Rect) -> Outcome {
        if let Some(detail) = &mut self.detail {
            return detail.act(action, usize::from(body.height));
        }
        if self.listing.step(action, usize::from(body.height.saturating_sub(1))) {
            return Outcome::Nothing;
        }
        self.sort = match action {
            Action::SortNext | Action::SortPrevious => turned(&SORTS, self.sort, action),
            Action::Open => {
                self.detail = self.listing.selected().copied().map(Detail::new);
                return Outcome::View;
            }
            _ => return Outcome::Nothing,
        };
        Outcome::Rows
    }

    /// Whether there was one to close.
    pub(super) fn close_detail(&mut self) -> bool {
        self.detail.take().is_some()
    }

    pub(super) fn shows_detail(&self) -> bool {
        self.detail.is_some()
    }

    pub(super) fn has_rows(&self) -> bool {
        !self.lines.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.detail.is_none() && self.listing.is_empty()
    }

    pub(super) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        if let Some(detail) = &self.detail {
            return detail.draw(model, ui, area, buf);
        }
        let widths = Widths::of(area.width);
        let theme = ui.theme;
        let mut head = Heading::new(buf, area, theme);
        let sorted = |sort, order| (self.sort == sort).then_some(order);
        head.right(10, "SIZE", sorted(Sort::Size, Order::Falling));
        head.left(widths.kind, "KIND", None);
        head.left(9, "VERDICT", sorted(Sort::Verdict, Order::Falling));
        head.right(8, "HOLDERS", sorted(Sort::Holders, Order::Falling));
        head.left(widths.life, "LIFE", sorted(Sort::Age, Order::Rising));
        head.left(widths.name, "NAME", sorted(Sort::Name, Order::Rising));
        head.left(usize::MAX, "MADE AT", None);
        for (index, line_area, is_selected) in self.listing.in_sight(area, &ui.hit_areas) {
            let Some(line) = self.lines.get(index) else { continue };
            let mut row = Row::new(buf, line_area);
            row.select(is_selected, theme);
            row.right(10, &number::bytes(line.bytes), theme.strong());
            row.left(widths.kind, line.kind.name(), theme.dim());
            let verdict = match line.verdict {
                Verdict::Residue => theme.warning(),
                Verdict::Held => theme.good(),
                Verdict::Released => theme.dim(),
            };
            row.left(9, line.verdict.name(), verdict);
            row.right(8, &line.holders.to_string(), theme.text());
            row.left(widths.life, &life(line.begun, line.ended, self.from, self.to, widths.life), theme.total());
            row.left(widths.name, &line.name, theme.text());
            let frame = line.frame.and_then(|id| model.frame(id));
            row.rest_of_path(&frame.map_or_else(|| "–".to_owned(), |frame| place(frame, By::Line)), theme.dim());
        }
    }
}

/// Where in the span of time something lived, as a bar that begins and ends there.
pub(super) fn life(begun: Nanos, ended: Option<Nanos>, from: Nanos, to: Nanos, width: usize) -> String {
    let span = to.saturating_sub(from).0.max(1) as f64;
    let cell = |at: Nanos| {
        let share = at.saturating_sub(from).0 as f64 / span;
        ((share.min(1.0) * width as f64) as usize).min(width.saturating_sub(1))
    };
    let (first, last) = (cell(begun), cell(ended.unwrap_or(to)));
    (0..width).map(|at| if (first..=last).contains(&at) { '━' } else { '·' }).collect()
}

pub(in crate::screens) fn label(state: &State) -> String {
    match state.segment.name.as_deref() {
        Some(name) => text::head(name, 256).to_owned(),
        None => format!("({} {})", state.segment.kind.name(), state.segment.ino),
    }
}

struct Widths {
    kind: usize,
    life: usize,
    name: usize,
}

impl Widths {
    fn of(width: u16) -> Self {
        let (kind, life) = match width {
            0..76 => (0, 0),
            76..120 => (9, 10),
            _ => (9, 24),
        };
        let left = usize::from(width).saturating_sub(10 + 9 + 8 + kind + life + 5);
        Self { kind, life, name: left * 55 / 100 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_a_bar_within_its_room() {
        let bar = |begun, ended: Option<u64>| life(Nanos(begun), ended.map(Nanos), Nanos(10), Nanos(20), 5);
        assert_eq!(bar(10, None), "━━━━━");
        assert_eq!(bar(0, Some(12)), "━━···");
        assert_eq!(bar(16, Some(16)), "···━·");
        assert_eq!(bar(99, Some(200)), "····━");
        assert_eq!(life(Nanos(0), None, Nanos(0), Nanos(0), 0), "");
    }
}
