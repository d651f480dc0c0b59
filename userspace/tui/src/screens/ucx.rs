//! Transfers of UCX and UCXX, the times of their stages, and the threads that handle them.

mod detail;
mod summary;
mod workers;

use std::cmp::Reverse;

use pyobs_model::families::ucx::TransferState;
use pyobs_model::findings::Target;
use pyobs_model::views::{self, By, Stage, own_line};
use pyobs_model::{Family, FrameId, Model, Nanos, Operation, ProcessRef, TransferId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::detail::TransferDetail;
use self::summary::StageSummary;
use self::workers::WorkerTable;
use super::names::{place, process_label};
use crate::binding::{Action, FOLLOW, Keys, SORT_NEXT, SORT_PREVIOUS, bind};
use crate::filter::Filter;
use crate::input::Key;
use crate::jump::{Destination, Effect, Jump};
use crate::number;
use crate::paint::{HeadingPainter, RowPainter};
use crate::screen::{About, Screen};
use crate::table::{AnyList, List, Saved, Sorted, Table};
use crate::ui::Ui;

static ABOUT: About = About {
    key: '7',
    title: "Transfers",
    short_title: "Xfers",
    filter: Some("transfers"),
    keys: &[
        Keys {
            title: "Transfers",
            bindings: &[
                bind(&[Key::Enter], Action::Open, "detail", "the stages of the transfer, and who asked for it"),
                SORT_NEXT,
                SORT_PREVIOUS,
                bind(&[Key::Char('m')], Action::Measure, "threads", "transfers, or the threads behind them"),
            ],
        },
        Keys { title: "A transfer", bindings: &[FOLLOW] },
    ],
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TransferSort {
    #[default]
    Latest,
    Size,
    Queued,
    Pending,
    Wake,
}

/// The height from which the summary is shown above the table.
const SUMMARY_NEEDS: u16 = 18;

struct TransferRow {
    id: TransferId,
    process: ProcessRef,
    operation: Operation,
    bytes: u64,
    begun: Nanos,
    queued: Option<Nanos>,
    pending: Option<Nanos>,
    /// From completion until the waiter was woken.
    wake: Option<Nanos>,
    status: Option<i32>,
    is_over: bool,
    frame: Option<FrameId>,
}

impl TransferRow {
    fn of(model: &Model, (id, state, bytes): (TransferId, &TransferState, u64)) -> Self {
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

    /// How the transfer ended.
    fn status_words(&self) -> String {
        match self.status {
            Some(0) => "ok".to_owned(),
            Some(status) => status.to_string(),
            None if self.is_over => "over".to_owned(),
            None => "pending".to_owned(),
        }
    }
}

#[derive(Default)]
struct TransferTable {
    summary: StageSummary,
}

impl Table for TransferTable {
    type Row = TransferRow;
    type Key = TransferId;
    type Sort = TransferSort;
    type Detail = TransferDetail;

    const SORTS: &'static [TransferSort] =
        &[TransferSort::Latest, TransferSort::Size, TransferSort::Queued, TransferSort::Pending, TransferSort::Wake];

    fn compute(&mut self, model: &Model, ui: &Ui, detail: Option<&mut TransferDetail>) -> Option<Vec<TransferRow>> {
        if let Some(detail) = detail {
            detail.compute(model);
        }
        let selection = ui.scope(model).selection;
        let rows = views::transfers(model, &selection);
        self.summary = StageSummary::of(model, &selection, &rows);
        Some(rows.into_iter().map(|row| TransferRow::of(model, row)).collect())
    }

    fn key(row: &TransferRow) -> TransferId {
        row.id
    }

    fn matches(&self, row: &TransferRow, filter: &Filter, model: &Model) -> bool {
        filter.matches(row.operation.name())
            || filter.matches(&asked_at(model, row.frame))
            || filter.matches(&process_label(model, Some(row.process)))
    }

    fn sort(&self, shown: &mut [usize], rows: &[TransferRow], sort: TransferSort, _model: &Model) {
        match sort {
            TransferSort::Latest => shown.sort_by_key(|it| Reverse(rows[*it].begun)),
            TransferSort::Size => shown.sort_by_key(|it| Reverse(rows[*it].bytes)),
            TransferSort::Queued => shown.sort_by_key(|it| Reverse(rows[*it].queued)),
            TransferSort::Pending => shown.sort_by_key(|it| Reverse(rows[*it].pending)),
            TransferSort::Wake => shown.sort_by_key(|it| Reverse(rows[*it].wake)),
        }
    }

    /// The area below the summary.
    fn place(&self, area: Rect, _ui: &Ui) -> Rect {
        let above = if area.height >= SUMMARY_NEEDS { summary::LINES } else { 0 };
        Rect { y: area.y + above, height: area.height - above, ..area }
    }

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<TransferSort>, _ui: &Ui) {
        let widths = TransferWidths::of(width);
        head.right(10, "AT", sorted.descending(TransferSort::Latest));
        head.left(11, "OPERATION", None);
        head.right(10, "SIZE", sorted.descending(TransferSort::Size));
        head.right(widths.queued, "QUEUED", sorted.descending(TransferSort::Queued));
        head.right(9, "PENDING", sorted.descending(TransferSort::Pending));
        head.right(widths.wake, "WAKE", sorted.descending(TransferSort::Wake));
        head.left(8, "STATUS", None);
        head.left(widths.process, "PROCESS", None);
        head.left(usize::MAX, "ASKED AT", None);
    }

    fn draw_row(
        &self,
        row: &mut RowPainter<'_>,
        line: &TransferRow,
        width: u16,
        _: TransferSort,
        model: &Model,
        ui: &Ui,
    ) {
        let (widths, theme) = (TransferWidths::of(width), ui.theme);
        let time = |time: Option<Nanos>| time.map_or_else(|| "–".to_owned(), number::time);
        row.right(10, &format!("{:.3} s", line.begun.as_secs_f64()), theme.dim());
        row.left(11, line.operation.name(), theme.text());
        row.right(10, &number::size(line.bytes), theme.strong());
        row.right(widths.queued, &time(line.queued), theme.text());
        row.right(9, &time(line.pending), theme.text());
        row.right(widths.wake, &time(line.wake), theme.text());
        let style = if line.status.is_some_and(|status| status < 0) { theme.warning() } else { theme.dim() };
        row.left(8, &line.status_words(), style);
        row.left(widths.process, &process_label(model, Some(line.process)), theme.dim());
        row.rest_of_path(&asked_at(model, line.frame), theme.text());
    }

    fn draw_around(&self, area: Rect, _last: Rect, _model: &Model, ui: &Ui, buf: &mut Buffer) {
        if area.height >= SUMMARY_NEEDS {
            self.summary.draw(ui, Rect { height: summary::LINES, ..area }, buf);
        }
    }
}

#[derive(Default)]
pub(super) struct UcxScreen {
    transfers: List<TransferTable>,
    workers: List<WorkerTable>,
    shows_workers: bool,
}

impl Screen for UcxScreen {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn family(&self, _ui: &Ui) -> Option<Family> {
        Some(Family::Ucx)
    }

    fn list(&self) -> Option<&dyn AnyList> {
        Some(if self.shows_workers { &self.workers } else { &self.transfers })
    }

    fn list_mut(&mut self) -> Option<&mut dyn AnyList> {
        Some(if self.shows_workers { &mut self.workers } else { &mut self.transfers })
    }

    fn act(&mut self, action: Action, _model: &Model, ui: &Ui) -> Effect {
        if action == Action::Measure {
            self.shows_workers = !self.shows_workers;
            return Effect::View;
        }
        self.list_mut().map_or(Effect::Nothing, |list| list.act(action, ui))
    }

    fn hint(&self, action: Action, usual: &'static str, _model: &Model, _ui: &Ui) -> &'static str {
        if action == Action::Measure && self.shows_workers { "transfers" } else { usual }
    }

    fn empty(&self, _ui: &Ui) -> Option<(&'static str, &'static str)> {
        Some(("transfers", "No process has submitted one to UCX."))
    }

    fn shows(&self, destination: Destination) -> bool {
        matches!(destination.target(), Some(Target::Worker(_) | Target::Transfers(_)))
    }

    fn jump(&mut self, jump: Jump) {
        let Some(target) = jump.destination.target() else { return };
        self.transfers.close();
        self.shows_workers = matches!(target, Target::Worker(_));
        match target {
            Target::Transfers(Some(id)) => self.transfers.go(id, jump.is_into_detail()),
            Target::Worker(tid) => {
                self.workers.seek(move |(of, thread, _)| jump.process == Some(*of) && *thread == tid, false);
            }
            _ => {}
        }
    }

    fn save(&mut self) -> Saved {
        Box::new((self.shows_workers, self.transfers.save()))
    }

    fn restore(&mut self, saved: Saved) {
        if let Ok(saved) = saved.downcast::<(bool, Saved)>() {
            self.shows_workers = saved.0;
            self.transfers.restore(saved.1);
        }
    }
}

fn asked_at(model: &Model, frame: Option<FrameId>) -> String {
    let frame = frame.and_then(|id| model.frame(id));
    frame.map_or_else(|| "–".to_owned(), |frame| place(frame, By::Line))
}

struct TransferWidths {
    queued: usize,
    wake: usize,
    process: usize,
}

impl TransferWidths {
    fn of(width: u16) -> Self {
        match width {
            0..76 => Self { queued: 0, wake: 0, process: 0 },
            76..96 => Self { queued: 0, wake: 9, process: 0 },
            96..120 => Self { queued: 9, wake: 9, process: 12 },
            _ => Self { queued: 9, wake: 9, process: 30 },
        }
    }
}
