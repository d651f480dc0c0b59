//! What threads wait for: how the GIL is shared, then a table of sleeps or of waits for the GIL.

mod detail;
mod shares;
mod tables;

use std::cmp::Reverse;

use pyobs_model::families::{Sampled, Times};
use pyobs_model::findings::Target;
use pyobs_model::views::{self, Weight};
use pyobs_model::{FrameId, Model, Nanos, ProcessRef, Reason, Selection, Tid, WaitReason, Waker};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Outcome;
use super::frames::matches;
use super::thread::thread_label;
use crate::binding::Action;
use crate::filter::Filter;
use crate::history::{Jump, Place};
use crate::list::{Listing, turned};
use crate::text;
use crate::ui::{Scope, Ui};
use detail::Detail;
use shares::Shares;

/// Which table is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Sleeps,
    Gil,
}

impl Table {
    /// What the rows of the table add up to.
    pub(crate) fn weight(self) -> Weight {
        match self {
            Self::Sleeps => Weight::OffCpu,
            Self::Gil => Weight::Gil,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Sleeps => Self::Gil,
            Self::Gil => Self::Sleeps,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Total,
    Count,
    Longest,
    /// The reason, or the holder of the GIL.
    Cause,
    Thread,
    Place,
}

const SORTS: [Sort; 6] = [Sort::Total, Sort::Count, Sort::Longest, Sort::Cause, Sort::Thread, Sort::Place];

/// What a row is of, whatever place it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wait {
    process: ProcessRef,
    tid: Tid,
    /// The innermost Python frame.
    frame: Option<FrameId>,
    cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Sleep {
        reason: WaitReason,
        /// The native or kernel function below the Python frame.
        inner: Option<FrameId>,
    },
    Gil {
        holder: Option<Tid>,
        /// The innermost Python frame of the holder.
        frame: Option<FrameId>,
    },
}

struct Line {
    wait: Wait,
    times: Times,
    sampled: Sampled,
    /// Of the thread's time.
    share: f64,
    waker: Option<Waker>,
}

/// What was open.
pub(crate) struct WaitsAside {
    table: Table,
    detail: Option<Detail>,
}

pub(crate) struct WaitsScreen {
    table: Table,
    sort: Sort,
    shares: Shares,
    lines: Vec<Line>,
    listing: Listing<Wait>,
    detail: Option<Detail>,
    /// The thread whose row to go to.
    wanted: Option<(Option<ProcessRef>, Tid)>,
}

impl WaitsScreen {
    pub(crate) fn new(model: &Model) -> Self {
        let has_sleeps = Weight::OffCpu.is_known(model) || !Weight::Gil.is_known(model);
        Self {
            table: if has_sleeps { Table::Sleeps } else { Table::Gil },
            sort: Sort::default(),
            shares: Shares::default(),
            lines: Vec::new(),
            listing: Listing::default(),
            detail: None,
            wanted: None,
        }
    }

    pub(crate) fn compute(&mut self, model: &Model, scope: &Scope) {
        if let Some(detail) = &mut self.detail {
            detail.compute(model, scope);
            return;
        }
        let (selection, by) = (&scope.selection, scope.look.by);
        // The GIL is the process's, whichever of its threads is selected.
        let processes = Selection { tid: None, ..selection.clone() };
        let shares = views::gil_shares(model, &processes);
        self.lines = match self.table {
            Table::Sleeps => views::sleeps(model, selection, by).into_iter().map(Line::of_sleep).collect(),
            Table::Gil => {
                let observed = |process| shares.get(&process).map_or(Nanos(0), |share| share.observed);
                let rows = views::gil_waits(model, selection, by).into_iter();
                rows.map(|row| Line::of_gil(&row, observed(row.process))).collect()
            }
        };
        let unseen = if self.table == Table::Sleeps { model.loss().get(Reason::SleepUnseen) } else { 0 };
        self.shares = Shares::new(model, &processes, shares, unseen);
    }

    pub(crate) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, body: Rect) {
        if let Some(detail) = &mut self.detail {
            detail.arrange(usize::from(body.height));
            return;
        }
        let lines = &self.lines;
        let is_shown = |index: &usize| filter.is_none_or(|filter| lines[*index].matches(model, filter));
        let mut shown: Vec<usize> = (0..lines.len()).filter(is_shown).collect();
        let wait = |index: &usize| lines[*index].wait;
        match self.sort {
            Sort::Total => {}
            Sort::Count => shown.sort_by_key(|it| Reverse(lines[*it].times.count)),
            Sort::Longest => shown.sort_by_key(|it| Reverse(lines[*it].times.max)),
            Sort::Cause => shown.sort_by_key(|it| match wait(it).cause {
                Cause::Sleep { reason, .. } => (Some(reason), None),
                Cause::Gil { holder, .. } => (None, holder),
            }),
            Sort::Thread => shown.sort_by_key(|it| (wait(it).process, wait(it).tid)),
            Sort::Place => shown.sort_by_key(|it| {
                let frame = wait(it).frame.and_then(|frame| model.frame(frame));
                frame.map(|frame| (text::head(&frame.function, 256), frame.file.as_deref(), frame.line))
            }),
        }
        let height = self.shares.rows_below(body);
        self.listing.show(shown, |row| lines[row].wait, height);
        if let Some((process, tid)) = self.wanted.take() {
            self.listing.seek(height, |wait| process == Some(wait.process) && wait.tid == tid);
        }
    }

    pub(crate) fn act(&mut self, action: Action, body: Rect) -> Outcome {
        if let Some(detail) = &mut self.detail {
            return detail.act(action, usize::from(body.height));
        }
        if self.listing.step(action, self.shares.rows_below(body)) {
            return Outcome::Nothing;
        }
        self.sort = match action {
            Action::SortNext | Action::SortPrevious => turned(&SORTS, self.sort, action),
            Action::Measure => {
                self.table = self.table.other();
                self.listing = Listing::default();
                return Outcome::View;
            }
            Action::Open => {
                self.detail = self.listing.selected().copied().map(Detail::new);
                return Outcome::View;
            }
            _ => return Outcome::Nothing,
        };
        Outcome::Rows
    }

    pub(crate) fn jump(&mut self, jump: Jump) {
        (self.table, self.detail) = (Table::Gil, None);
        if let Place::Row(Target::GilWaits(tid)) | Place::Detail(Target::GilWaits(tid)) = jump.place {
            self.wanted = Some((jump.process, tid));
        }
    }

    pub(crate) fn put_aside(&mut self) -> WaitsAside {
        WaitsAside { table: self.table, detail: self.detail.take() }
    }

    pub(crate) fn put_back(&mut self, aside: WaitsAside) {
        (self.table, self.detail) = (aside.table, aside.detail);
    }

    /// Whether there was one to close.
    pub(crate) fn close_detail(&mut self) -> bool {
        self.detail.take().is_some()
    }

    pub(crate) fn shows_detail(&self) -> bool {
        self.detail.is_some()
    }

    pub(crate) fn table(&self) -> Table {
        self.table
    }

    /// Whether there are rows for a filter to hide.
    pub(crate) fn has_rows(&self) -> bool {
        !self.lines.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.detail.is_none() && self.listing.is_empty()
    }

    /// The shares of the GIL; returns the room below them.
    pub(crate) fn draw_shares(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) -> Rect {
        if self.detail.is_some() {
            return area;
        }
        let height = self.shares.height(area);
        self.shares.draw(model, ui, area, buf);
        Rect { y: area.y + height, height: area.height - height, ..area }
    }

    /// The table, or the detail, in the room that [`Self::draw_shares`] left.
    pub(crate) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        match (&self.detail, self.table) {
            (Some(detail), _) => detail.draw(model, ui, area, buf),
            (None, Table::Sleeps) => self.draw_sleeps(model, ui, area, buf),
            (None, Table::Gil) => self.draw_gil(model, ui, area, buf),
        }
    }
}

impl Line {
    fn of_sleep(row: views::SleepRow) -> Self {
        let cause = Cause::Sleep { reason: row.reason, inner: row.inner };
        let wait = Wait { process: row.process, tid: row.tid, frame: row.frame, cause };
        Self { wait, times: row.times, sampled: row.sampled, share: row.share, waker: row.waker }
    }

    fn of_gil(row: &views::GilRow, observed: Nanos) -> Self {
        let cause = Cause::Gil { holder: row.holder, frame: row.holder_frame };
        let wait = Wait { process: row.process, tid: row.waiter, frame: row.frame, cause };
        let share = if observed == Nanos(0) { 0.0 } else { row.times.total.0 as f64 / observed.0 as f64 };
        Self { wait, times: row.times, sampled: row.sampled, share: share.min(1.0), waker: None }
    }

    fn matches(&self, model: &Model, filter: &Filter) -> bool {
        let Wait { process, tid, frame, cause } = self.wait;
        let has_frame =
            |id: Option<FrameId>| id.and_then(|id| model.frame(id)).is_some_and(|frame| matches(frame, filter));
        let has_thread = |tid| filter.matches(&thread_label(model, process, tid));
        let is_behind = match cause {
            Cause::Sleep { reason, inner } => filter.matches(reason.name()) || has_frame(inner),
            Cause::Gil { holder, frame } => holder.is_some_and(has_thread) || has_frame(frame),
        };
        let is_waker = self.waker.as_ref().is_some_and(|waker| filter.matches(&waker_label(waker)));
        has_thread(tid) || has_frame(frame) || is_behind || is_waker
    }
}

fn waker_label(waker: &Waker) -> String {
    format!("{} {}", waker.tid, text::head(&waker.name, 512))
}
