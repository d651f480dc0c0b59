//! The threads that submit and complete transfers, and wake those who wait for them.

use pyobs_model::views::{self, Role, WorkerRow};
use pyobs_model::{Model, ProcessRef, Tid};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::binding::Action;
use crate::draw::{Heading, Row};
use crate::filter::Filter;
use crate::list::Listing;
use crate::number;
use crate::screens::Outcome;
use crate::screens::frames::process_label;
use crate::ui::{Scope, Ui};

#[derive(Default)]
pub(super) struct Workers {
    rows: Vec<WorkerRow>,
    listing: Listing<(ProcessRef, Tid, Role)>,
    /// The thread whose row to go to.
    wanted: Option<(Option<ProcessRef>, Tid)>,
}

impl Workers {
    pub(super) fn compute(&mut self, model: &Model, scope: &Scope) {
        self.rows = views::workers(model, &scope.selection);
    }

    pub(super) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, body: Rect) {
        let rows = &self.rows;
        let is_shown = |index: &usize| {
            let row = &rows[*index];
            filter.is_none_or(|filter| {
                filter.matches(row.role.name())
                    || filter.matches(row.mode)
                    || filter.matches(&process_label(model, Some(row.process)))
            })
        };
        let shown = (0..rows.len()).filter(is_shown).collect();
        let key = |row: usize| (rows[row].process, rows[row].tid, rows[row].role);
        let height = usize::from(body.height.saturating_sub(1));
        self.listing.show(shown, key, height);
        if let Some((process, tid)) = self.wanted.take() {
            self.listing.seek(height, |(of, thread, _)| process == Some(*of) && *thread == tid);
        }
    }

    pub(super) fn jump(&mut self, process: Option<ProcessRef>, tid: Tid) {
        self.wanted = Some((process, tid));
    }

    pub(super) fn act(&mut self, action: Action, body: Rect) -> Outcome {
        self.listing.step(action, usize::from(body.height.saturating_sub(1)));
        Outcome::Nothing
    }

    pub(super) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listing.is_empty()
    }

    pub(super) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let theme = ui.theme;
        let (is_wide, is_widest) = (area.width >= 76, area.width >= 120);
        let more = |width: usize| if is_wide { width } else { 0 };
        let mut head = Heading::new(buf, area, theme);
        head.right(9, "THREAD", None);
        head.left(11, "ROLE", None);
        head.left(15, "MODE", None);
        head.right(7, "BUSY %", None);
        head.right(if is_widest { 9 } else { 0 }, "PYTHON %", None);
        head.right(if is_widest { 11 } else { 0 }, "PROGRESS/S", None);
        head.right(more(9), "SUBMITS", None);
        head.right(more(10), "COMPLETES", None);
        head.right(more(6), "QUEUE", None);
        head.right(more(9), "GIL WAIT", None);
        head.left(usize::MAX, "PROCESS", None);
        for (index, line_area, is_selected) in self.listing.in_sight(area, &ui.hit_areas) {
            let Some(worker) = self.rows.get(index) else { continue };
            let mut row = Row::new(buf, line_area);
            row.select(is_selected, theme);
            row.right(9, &worker.tid.to_string(), theme.strong());
            row.left(11, worker.role.name(), theme.text());
            row.left(15, worker.mode, theme.text());
            row.right(7, &number::percent(worker.busy * 100.0), theme.text());
            let python = worker.python.map_or_else(|| "–".to_owned(), |share| number::percent(share * 100.0));
            row.right(if is_widest { 9 } else { 0 }, &python, theme.text());
            let progress = worker.progress.map_or_else(|| "–".to_owned(), |rate| number::short(rate as u64));
            row.right(if is_widest { 11 } else { 0 }, &progress, theme.text());
            row.right(more(9), &number::short(worker.thread.submitted), theme.dim());
            row.right(more(10), &number::short(worker.thread.completed), theme.dim());
            row.right(more(6), &number::short(worker.queue_max), theme.dim());
            let waited = worker.gil_wait.map_or_else(|| "–".to_owned(), number::time);
            row.right(more(9), &waited, theme.text());
            row.rest(&process_label(model, Some(worker.process)), theme.dim());
        }
    }
}
