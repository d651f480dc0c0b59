//! The threads that submit and complete transfers and wake the waiting threads.

use pyobs_model::views::{self, Role, WorkerRow};
use pyobs_model::{Model, ProcessRef, Tid};

use crate::filter::Filter;
use crate::number;
use crate::paint::{HeadingPainter, RowPainter};
use crate::screens::names::process_label;
use crate::table::{NoDetail, Sorted, Table};
use crate::ui::Ui;

#[derive(Default)]
pub(super) struct WorkerTable;

impl Table for WorkerTable {
    type Row = WorkerRow;
    type Key = (ProcessRef, Tid, Role);
    type Sort = ();
    type Detail = NoDetail;

    const SORTS: &'static [()] = &[];

    fn compute(&mut self, model: &Model, ui: &Ui, _: Option<&mut NoDetail>) -> Option<Vec<WorkerRow>> {
        Some(views::workers(model, &ui.scope(model).selection))
    }

    fn key(row: &WorkerRow) -> Self::Key {
        (row.process, row.tid, row.role)
    }

    fn matches(&self, row: &WorkerRow, filter: &Filter, model: &Model) -> bool {
        filter.matches(row.role.name())
            || filter.matches(row.mode)
            || filter.matches(&process_label(model, Some(row.process)))
    }

    fn sort(&self, _: &mut [usize], _: &[WorkerRow], (): (), _: &Model) {}

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, width: u16, _: Sorted<()>, _ui: &Ui) {
        let (wide, widest) = widths_from(width);
        head.right(9, "THREAD", None);
        head.left(11, "ROLE", None);
        head.left(15, "MODE", None);
        head.right(7, "BUSY %", None);
        head.right(widest(9), "PYTHON %", None);
        head.right(widest(11), "PROGRESS/S", None);
        head.right(wide(9), "SUBMITS", None);
        head.right(wide(10), "COMPLETES", None);
        head.right(wide(6), "QUEUE", None);
        head.right(wide(9), "GIL WAIT", None);
        head.left(usize::MAX, "PROCESS", None);
    }

    fn draw_row(&self, row: &mut RowPainter<'_>, worker: &WorkerRow, width: u16, (): (), model: &Model, ui: &Ui) {
        let theme = ui.theme;
        let (wide, widest) = widths_from(width);
        row.right(9, &worker.tid.to_string(), theme.strong());
        row.left(11, worker.role.name(), theme.text());
        row.left(15, worker.mode, theme.text());
        row.right(7, &number::percent(worker.busy * 100.0), theme.text());
        let python = worker.python.map_or_else(|| "–".to_owned(), |share| number::percent(share * 100.0));
        row.right(widest(9), &python, theme.text());
        let progress = worker.progress.map_or_else(|| "–".to_owned(), |rate| number::short(rate as u64));
        row.right(widest(11), &progress, theme.text());
        row.right(wide(9), &number::short(worker.thread.submitted), theme.dim());
        row.right(wide(10), &number::short(worker.thread.completed), theme.dim());
        row.right(wide(6), &number::short(worker.queue_max), theme.dim());
        let waited = worker.gil_wait.map_or_else(|| "–".to_owned(), number::time);
        row.right(wide(9), &waited, theme.text());
        row.rest(&process_label(model, Some(worker.process)), theme.dim());
    }
}

/// Two functions that give a column its width, or 0 if the terminal is not wide (76 cells) or not very wide (120 cells).
fn widths_from(width: u16) -> (impl Fn(usize) -> usize, impl Fn(usize) -> usize) {
    let room = move |needed: u16| move |columns: usize| if width >= needed { columns } else { 0 };
    (room(76), room(120))
}
