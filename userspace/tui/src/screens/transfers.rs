//! Transfers of UCX and UCXX, how long their stages take, and the threads behind them.

mod detail;
mod summary;
mod workers;

use std::cmp::Reverse;

use pyobs_model::families::ucx::State;
use pyobs_model::findings::Target;
use pyobs_model::views::{self, By, Stage, own_line};
use pyobs_model::{FrameId, Model, Nanos, Operation, ProcessRef, TransferId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::detail::Detail;
use self::summary::Summary;
use self::workers::Workers;
use super::Outcome;
use super::frames::{place, process_label};
use crate::binding::Action;
use crate::draw::{Heading, Order, Row};
use crate::filter::Filter;
use crate::history::{Jump, Place};
use crate::list::{Listing, turned};
use crate::number;
use crate::ui::{Scope, Ui};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Latest,
    Size,
    Queued,
    Pending,
    Wake,
}

const SORTS: [Sort; 5] = [Sort::Latest, Sort::Size, Sort::Queued, Sort::Pending, Sort::Wake];
/// The summary stands above the table where there is room for both.
const SUMMARY_NEEDS: u16 = 18;

struct Line {
    id: TransferId,
    process: ProcessRef,
    operation: Operation,
    bytes: u64,
    begun: Nanos,
    queued: Option<Nanos>,
    pending: Option<Nanos>,
    /// From being over to the future's being set.
    wake: Option<Nanos>,
    status: Option<i32>,
    is_over: bool,
    frame: Option<FrameId>,
}

impl Line {
    fn of(model: &Model, (id, state, bytes): (TransferId, &State, u64)) -> Self {
        let length = |stage: Stage| stage.of(state).map(|(from, to)| to.saturating_sub(from));
        let transfer = &state.transfer;
        Self {
            id,
            process: transfer.process,
            operation: transfer.operation,
            bytes,
            begun: transfer.begun().unwrap_or_default(),
            queued: length(Stage::Queued),
            pending: length(Stage::Pending),
            wake: state.woken.zip(transfer.completed).map(|(woken, over)| woken.woken.saturating_sub(over)),
            status: transfer.status,
            is_over: transfer.completed.is_some(),
            frame: model.ucx().stack(state).and_then(|stack| own_line(model, stack)),
        }
    }

    /// What became of it.
    fn outcome(&self) -> String {
        match self.status {
            Some(0) => "ok".to_owned(),
            Some(status) => status.to_string(),
            None if self.is_over => "over".to_owned(),
            None => "pending".to_owned(),
        }
    }
}

/// What was open.
pub(crate) struct TransfersAside {
    shows_workers: bool,
    detail: Option<Detail>,
}

#[derive(Default)]
pub(crate) struct TransfersScreen {
    sort: Sort,
    rows: Vec<Line>,
    summary: Summary,
    listing: Listing<TransferId>,
    detail: Option<Detail>,
    workers: Workers,
    shows_workers: bool,
    /// The row to go to.
    wanted: Option<TransferId>,
}

impl TransfersScreen {
    pub(crate) fn shows_workers(&self) -> bool {
        self.shows_workers
    }

    pub(crate) fn compute(&mut self, model: &Model, scope: &Scope) {
        if self.shows_workers {
            return self.workers.compute(model, scope);
        }
        if let Some(detail) = &mut self.detail {
            detail.compute(model);
        }
        let rows = views::transfers(model, &scope.selection);
        self.summary = Summary::of(model, &scope.selection, &rows);
        self.rows = rows.into_iter().map(|row| Line::of(model, row)).collect();
    }

    pub(crate) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, body: Rect) {
        if self.shows_workers {
            return self.workers.arrange(model, filter, body);
        }
        if let Some(detail) = &mut self.detail {
            return detail.arrange(usize::from(body.height));
        }
        let rows = &self.rows;
        let is_shown = |index: &usize| {
            let row = &rows[*index];
            filter.is_none_or(|filter| {
                filter.matches(row.operation.name())
                    || filter.matches(&asked_at(model, row.frame))
                    || filter.matches(&process_label(model, Some(row.process)))
            })
        };
        let mut shown: Vec<usize> = (0..rows.len()).filter(is_shown).collect();
        match self.sort {
            Sort::Latest => shown.sort_by_key(|it| Reverse(rows[*it].begun)),
            Sort::Size => shown.sort_by_key(|it| Reverse(rows[*it].bytes)),
            Sort::Queued => shown.sort_by_key(|it| Reverse(rows[*it].queued)),
            Sort::Pending => shown.sort_by_key(|it| Reverse(rows[*it].pending)),
            Sort::Wake => shown.sort_by_key(|it| Reverse(rows[*it].wake)),
        }
        let height = usize::from(table(body).height.saturating_sub(1));
        self.listing.show(shown, |row| rows[row].id, height);
        if let Some(wanted) = self.wanted.take() {
            self.listing.seek(height, |id| *id == wanted);
        }
    }

    pub(crate) fn act(&mut self, action: Action, body: Rect) -> Outcome {
        if let Some(detail) = &mut self.detail {
            return detail.act(action, usize::from(body.height));
        }
        if action == Action::Measure {
            self.shows_workers = !self.shows_workers;
            return Outcome::View;
        }
        if self.shows_workers {
            return self.workers.act(action, body);
        }
        if self.listing.step(action, usize::from(table(body).height.saturating_sub(1))) {
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

    pub(crate) fn jump(&mut self, jump: Jump) {
        let (Place::Row(target) | Place::Detail(target)) = jump.place else { return };
        self.detail = None;
        self.shows_workers = matches!(target, Target::Worker(_));
        match target {
            Target::Transfers(Some(id)) if jump.is_into_detail() => {
                (self.detail, self.wanted) = (Some(Detail::new(id)), Some(id));
            }
            Target::Worker(tid) => self.workers.jump(jump.process, tid),
            Target::Transfers(id) => self.wanted = id,
            _ => {}
        }
    }

    pub(crate) fn put_aside(&mut self) -> TransfersAside {
        TransfersAside { shows_workers: self.shows_workers, detail: self.detail.take() }
    }

    pub(crate) fn put_back(&mut self, aside: TransfersAside) {
        (self.shows_workers, self.detail) = (aside.shows_workers, aside.detail);
    }

    /// Whether there was one to close.
    pub(crate) fn close_detail(&mut self) -> bool {
        self.detail.take().is_some()
    }

    pub(crate) fn shows_detail(&self) -> bool {
        self.detail.is_some()
    }

    pub(crate) fn has_rows(&self) -> bool {
        if self.shows_workers { self.workers.has_rows() } else { !self.rows.is_empty() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        if self.shows_workers { self.workers.is_empty() } else { self.detail.is_none() && self.listing.is_empty() }
    }

    pub(crate) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        if self.shows_workers {
            return self.workers.draw(model, ui, area, buf);
        }
        if let Some(detail) = &self.detail {
            return detail.draw(model, ui, area, buf);
        }
        if area.height >= SUMMARY_NEEDS {
            self.summary.draw(ui, Rect { height: summary::LINES, ..area }, buf);
        }
        self.draw_table(model, ui, table(area), buf);
    }

    fn draw_table(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let theme = ui.theme;
        let widths = Widths::of(area.width);
        let sorted = |sort| (self.sort == sort).then_some(Order::Falling);
        let mut head = Heading::new(buf, area, theme);
        head.right(10, "AT", sorted(Sort::Latest));
        head.left(11, "OPERATION", None);
        head.right(10, "SIZE", sorted(Sort::Size));
        head.right(widths.queued, "QUEUED", sorted(Sort::Queued));
        head.right(9, "PENDING", sorted(Sort::Pending));
        head.right(widths.wake, "WAKE", sorted(Sort::Wake));
        head.left(8, "STATUS", None);
        head.left(widths.process, "PROCESS", None);
        head.left(usize::MAX, "ASKED AT", None);
        for (index, line_area, is_selected) in self.listing.in_sight(area, &ui.hit_areas) {
            let Some(line) = self.rows.get(index) else { continue };
            let mut row = Row::new(buf, line_area);
            row.select(is_selected, theme);
            let time = |time: Option<Nanos>| time.map_or_else(|| "–".to_owned(), number::time);
            row.right(10, &format!("{:.3} s", line.begun.as_secs_f64()), theme.dim());
            row.left(11, line.operation.name(), theme.text());
            row.right(10, &number::bytes(line.bytes), theme.strong());
            row.right(widths.queued, &time(line.queued), theme.text());
            row.right(9, &time(line.pending), theme.text());
            row.right(widths.wake, &time(line.wake), theme.text());
            let style = if line.status.is_some_and(|status| status < 0) { theme.warning() } else { theme.dim() };
            row.left(8, &line.outcome(), style);
            row.left(widths.process, &process_label(model, Some(line.process)), theme.dim());
            row.rest_of_path(&asked_at(model, line.frame), theme.text());
        }
    }
}

/// Where the table goes.
fn table(area: Rect) -> Rect {
    let above = if area.height >= SUMMARY_NEEDS { summary::LINES } else { 0 };
    Rect { y: area.y + above, height: area.height - above, ..area }
}

fn asked_at(model: &Model, frame: Option<FrameId>) -> String {
    let frame = frame.and_then(|id| model.frame(id));
    frame.map_or_else(|| "–".to_owned(), |frame| place(frame, By::Line))
}

struct Widths {
    queued: usize,
    wake: usize,
    process: usize,
}

impl Widths {
    fn of(width: u16) -> Self {
        match width {
            0..76 => Self { queued: 0, wake: 0, process: 0 },
            76..96 => Self { queued: 0, wake: 9, process: 0 },
            96..120 => Self { queued: 9, wake: 9, process: 12 },
            _ => Self { queued: 9, wake: 9, process: 30 },
        }
    }
}
