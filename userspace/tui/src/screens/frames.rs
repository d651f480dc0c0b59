//! Lines or functions with their own and total shares, or with their calls.

use pyobs_model::views::{self, By, FrameRow, FramesView};
use pyobs_model::{Frame, FrameId, FrameKind, Model, Pid, ProcessRef};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Outcome;
use super::calls::CallsTable;
use super::detail::Detail;
use crate::binding::Action;
use crate::draw::{Heading, Order, Row};
use crate::filter::Filter;
use crate::history::{Jump, Place};
use crate::list::{Listing, turned};
use crate::source::Sources;
use crate::theme::Theme;
use crate::ui::{Scope, Ui};
use crate::{number, text};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Own,
    Total,
    Name,
}

const SORTS: [Sort; 3] = [Sort::Own, Sort::Total, Sort::Name];

/// What a row is of, whatever place it has.
pub(super) type Key = (Option<ProcessRef>, FrameId);

/// What was open.
#[derive(Default)]
pub(crate) struct FramesAside {
    details: Vec<Detail>,
    shows_calls: bool,
}

#[derive(Default)]
pub(crate) struct FramesScreen {
    sort: Sort,
    split: bool,
    view: FramesView,
    listing: Listing<Key>,
    /// The last one is in sight; closing it goes back to the one before.
    details: Vec<Detail>,
    calls: CallsTable,
    shows_calls: bool,
}

impl FramesScreen {
    pub(crate) fn compute(&mut self, model: &Model, scope: &Scope, sources: &mut Sources) {
        if let Some(detail) = self.details.last_mut() {
            detail.compute(model, scope);
            detail.read_sources(model, sources);
        } else if self.shows_calls {
            self.calls.compute(model, &scope.selection, self.split);
        } else {
            self.view = views::frames(model, &scope.selection, scope.look, self.split);
        }
    }

    pub(crate) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, height: usize) {
        if let Some(detail) = self.details.last_mut() {
            detail.arrange(height);
            return;
        }
        if self.shows_calls {
            self.calls.arrange(model, filter, height);
            return;
        }
        let rows = &self.view.rows;
        let frame = |index: &usize| model.frame(rows[*index].frame);
        let mut shown: Vec<usize> = match filter {
            None => (0..rows.len()).collect(),
            Some(filter) => (0..rows.len()).filter(|index| frame(index).is_some_and(|f| matches(f, filter))).collect(),
        };
        match self.sort {
            Sort::Own => {}
            Sort::Total => shown.sort_by_key(|index| std::cmp::Reverse((rows[*index].total, rows[*index].own))),
            Sort::Name => shown.sort_by(|a, b| {
                let key = |index| frame(index).map(|f| (text::head(&f.function, 256), f.file.as_deref(), f.line));
                key(a).cmp(&key(b))
            }),
        }
        self.listing.show(shown, |row| key(&rows[row]), height);
    }

    /// Shows the frame that is meant, or the table.
    pub(crate) fn jump(&mut self, jump: Jump) {
        self.shows_calls = false;
        if let Place::Frame(frame) = jump.place {
            self.details.push(Detail::new(jump.process, frame));
        }
    }

    pub(crate) fn put_aside(&mut self) -> FramesAside {
        FramesAside { details: std::mem::take(&mut self.details), shows_calls: self.shows_calls }
    }

    pub(crate) fn put_back(&mut self, aside: FramesAside) {
        (self.details, self.shows_calls) = (aside.details, aside.shows_calls);
    }

    /// How many details are open, one behind the other.
    pub(crate) fn depth(&self) -> usize {
        self.details.len()
    }

    pub(crate) fn detail(&self) -> Option<&Detail> {
        self.details.last()
    }

    pub(crate) fn shows_calls(&self) -> bool {
        self.shows_calls
    }

    /// Whether there was one to close.
    pub(crate) fn close_detail(&mut self) -> bool {
        self.details.pop().is_some()
    }

    pub(crate) fn act(&mut self, action: Action, height: usize) -> Outcome {
        const DETAILS_MAX: usize = 64;
        if let Some(detail) = self.details.last_mut() {
            if let Some(next) = detail.act(action, height) {
                if self.details.len() == DETAILS_MAX {
                    self.details.remove(0);
                }
                self.details.push(next);
                return Outcome::View;
            }
            return Outcome::Nothing;
        }
        match action {
            Action::Calls => {
                self.shows_calls = !self.shows_calls;
                return Outcome::View;
            }
            Action::Split => {
                self.split = !self.split;
                return Outcome::View;
            }
            _ if self.shows_calls => return self.calls.act(action, height),
            _ => {}
        }
        if self.listing.step(action, height) {
            return Outcome::Nothing;
        }
        self.sort = match action {
            Action::SortOwn => Sort::Own,
            Action::SortTotal => Sort::Total,
            Action::SortName => Sort::Name,
            Action::SortNext | Action::SortPrevious => turned(&SORTS, self.sort, action),
            Action::Open => {
                if let Some((process, frame)) = self.listing.selected().copied() {
                    self.details.push(Detail::new(process, frame));
                    return Outcome::View;
                }
                return Outcome::Nothing;
            }
            _ => return Outcome::Nothing,
        };
        Outcome::Rows
    }

    /// Whether there are rows for a filter to hide.
    pub(crate) fn has_rows(&self) -> bool {
        if self.shows_calls { self.calls.has_rows() } else { !self.view.rows.is_empty() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.details.is_empty() && if self.shows_calls { self.calls.is_empty() } else { self.listing.is_empty() }
    }

    pub(crate) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        if let Some(detail) = self.details.last() {
            detail.draw(model, ui, area, buf);
            return;
        }
        if self.shows_calls {
            self.calls.draw(model, ui, self.split, area, buf);
            return;
        }
        let widths = Widths::of(area.width, self.split);
        let theme = ui.theme;
        let mut head = Heading::new(buf, area, theme);
        let sorted = |sort, order| (self.sort == sort).then_some(order);
        head.right(8, "OWN %", sorted(Sort::Own, Order::Falling));
        head.skip(widths.bar);
        head.right(8, "TOTAL %", sorted(Sort::Total, Order::Falling));
        head.skip(widths.bar);
        let counts_total = self.sort == Sort::Total;
        head.right(widths.samples, if counts_total { "TOTAL" } else { "OWN" }, None);
        if self.split {
            head.left(widths.process, "PROCESS", None);
        }
        head.left(widths.function, "FUNCTION", sorted(Sort::Name, Order::Rising));
        head.left(usize::MAX, if ui.look.by == By::Line { "LINE" } else { "DEFINED AT" }, None);

        for (index, line_area, is_selected) in self.listing.in_sight(area, &ui.hit_areas) {
            let Some((line, frame)) = self.view.rows.get(index).and_then(|line| Some((line, model.frame(line.frame)?)))
            else {
                continue;
            };
            let mut row = Row::new(buf, line_area);
            row.select(is_selected, theme);
            let own = number::share(line.own, self.view.total);
            let total = number::share(line.total, self.view.total);
            row.right(8, &number::percent(own), if line.own == 0 { theme.dim() } else { theme.strong() });
            row.bar(widths.bar, own / 100.0, theme.own());
            row.right(8, &number::percent(total), theme.text());
            row.bar(widths.bar, total / 100.0, theme.total());
            let amount = if counts_total { line.total } else { line.own };
            row.right(widths.samples, &number::amount(ui.look.weight, amount), theme.dim());
            if self.split {
                row.left(widths.process, &process_label(model, line.process), theme.dim());
            }
            draw_frame(&mut row, widths.function, frame, ui.look.by, theme);
        }
    }
}

fn key(row: &FrameRow) -> Key {
    (row.process, row.frame)
}

pub(super) fn matches(frame: &Frame, filter: &Filter) -> bool {
    let of = |text: &Option<std::sync::Arc<str>>| text.as_deref().is_some_and(|text| filter.matches(text));
    filter.matches(&frame.function) || of(&frame.file) || of(&frame.module)
}

/// The function's name, behind the mark of a kind that is not Python: colour alone would not tell everyone.
pub(super) fn name(frame: &Frame) -> String {
    let mark = match frame.kind {
        FrameKind::Python => "",
        FrameKind::Native => "n:",
        FrameKind::Kernel => "k:",
    };
    format!("{mark}{}", text::head(&frame.function, 4096))
}

/// The function and its place, as the last two columns of a row.
pub(super) fn draw_frame(row: &mut Row<'_>, width: usize, frame: &Frame, by: By, theme: Theme) {
    row.left(width, &name(frame), theme.kind(frame.kind));
    row.rest_of_path(&place(frame, by), theme.dim());
}

/// Where a frame is: its file and line, or what stands for them.
pub(super) fn place(frame: &Frame, by: By) -> String {
    let line = match by {
        By::Line => frame.line,
        By::Function => frame.first_line.or(frame.line),
    };
    // Of a long path the end tells, and it is never shown in more cells than a screen is wide.
    let tail = |text: &str| text[text.ceil_char_boundary(text.len().saturating_sub(4096))..].to_owned();
    match (&frame.file, line, &frame.module) {
        (Some(file), Some(line), _) => format!("{}:{line}", tail(file)),
        (Some(file), None, _) => tail(file),
        (None, _, Some(module)) => format!("[{}]", tail(module)),
        (None, _, None) if frame.kind == FrameKind::Kernel => "[kernel]".to_owned(),
        (None, _, None) => "–".to_owned(),
    }
}

pub(crate) fn process_label(model: &Model, process: Option<ProcessRef>) -> String {
    match process.and_then(|process| model.process(process)) {
        Some(state) => {
            format!("{} {}", state.process.pid, text::head(text::command(&state.process.command), 4096))
        }
        None => "(unknown process)".to_owned(),
    }
}

/// The latest process that had the number.
pub(super) fn process_of(model: &Model, pid: Pid) -> Option<ProcessRef> {
    model.processes().filter(|(_, state)| state.process.pid == pid).map(|(id, _)| id).last()
}

pub(super) struct Widths {
    pub(super) bar: usize,
    pub(super) samples: usize,
    pub(super) process: usize,
    pub(super) function: usize,
}

impl Widths {
    pub(super) fn of(width: u16, split: bool) -> Self {
        let (bar, samples) = match width {
            0..76 => (0, 0),
            76..110 => (6, 0),
            110..180 => (10, 9),
            _ => (16, 10),
        };
        let gaps = 2 + 2 * usize::from(bar > 0) + usize::from(samples > 0) + 1;
        let left = usize::from(width).saturating_sub(16 + 2 * bar + samples + gaps);
        let process = if split { left / 4 } else { 0 };
        let function = (left - process) * 45 / 100;
        Self { bar, samples, process, function }
    }
}
