//! Shared segments, the largest first, with what became of each.

use std::cmp::Reverse;

use pyobs_model::families::shm::SegmentVerdict;
use pyobs_model::views::{self, By, own_line};
use pyobs_model::{FrameId, Model, Nanos, SegmentId, SegmentKind};

use super::life::life;
use super::shm_detail::SegmentDetail;
use crate::filter::Filter;
use crate::number;
use crate::paint::{HeadingPainter, RowPainter};
use crate::screens::names::place;
use crate::screens::region::segment_label;
use crate::table::{Sorted, Table};
use crate::ui::Ui;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SegmentSort {
    #[default]
    Size,
    Age,
    Holders,
    Verdict,
    Name,
}

pub(super) struct SegmentRow {
    id: SegmentId,
    bytes: u64,
    kind: SegmentKind,
    verdict: SegmentVerdict,
    begun: Nanos,
    ended: Option<Nanos>,
    holders: usize,
    name: String,
    /// The innermost Python frame of the stack that made it.
    frame: Option<FrameId>,
}

#[derive(Default)]
pub(super) struct SegmentTable {
    /// The span of time that the bars cover.
    from: Nanos,
    to: Nanos,
}

impl Table for SegmentTable {
    type Row = SegmentRow;
    type Key = SegmentId;
    type Sort = SegmentSort;
    type Detail = SegmentDetail;

    const SORTS: &'static [SegmentSort] =
        &[SegmentSort::Size, SegmentSort::Age, SegmentSort::Holders, SegmentSort::Verdict, SegmentSort::Name];

    fn compute(&mut self, model: &Model, ui: &Ui, detail: Option<&mut SegmentDetail>) -> Option<Vec<SegmentRow>> {
        let selection = ui.scope(model).selection;
        self.to = selection.to.unwrap_or_else(|| model.now()).min(model.now());
        self.from = selection.from.unwrap_or(Nanos(0));
        if let Some(detail) = detail {
            detail.compute(model);
            return None;
        }
        let end = selection.end();
        let lines = views::segments(model, &selection).into_iter().map(|(id, state)| SegmentRow {
            id,
            bytes: state.segment.bytes,
            kind: state.segment.kind,
            verdict: state.verdict_at(end),
            begun: state.begun,
            ended: state.ended,
            holders: state.holders_at(end),
            name: segment_label(state),
            frame: state.stack.and_then(|stack| own_line(model, stack)),
        });
        Some(lines.collect())
    }

    fn key(row: &SegmentRow) -> SegmentId {
        row.id
    }

    fn matches(&self, line: &SegmentRow, filter: &Filter, model: &Model) -> bool {
        let frame = line.frame.and_then(|id| model.frame(id));
        filter.matches(&line.name)
            || filter.matches(line.verdict.name())
            || filter.matches(line.kind.name())
            || frame.is_some_and(|frame| filter.matches(&place(frame, By::Line)))
    }

    fn sort(&self, shown: &mut [usize], lines: &[SegmentRow], sort: SegmentSort, _model: &Model) {
        match sort {
            SegmentSort::Size => shown.sort_by_key(|it| (Reverse(lines[*it].bytes), lines[*it].id)),
            SegmentSort::Age => shown.sort_by_key(|it| lines[*it].begun),
            SegmentSort::Holders => shown.sort_by_key(|it| (Reverse(lines[*it].holders), lines[*it].id)),
            SegmentSort::Verdict => shown.sort_by_key(|it| (Reverse(lines[*it].verdict), Reverse(lines[*it].bytes))),
            SegmentSort::Name => shown.sort_by(|a, b| lines[*a].name.cmp(&lines[*b].name)),
        }
    }

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<SegmentSort>, _ui: &Ui) {
        let widths = SegmentWidths::of(width);
        head.right(10, "SIZE", sorted.descending(SegmentSort::Size));
        head.left(widths.kind, "KIND", None);
        head.left(9, "VERDICT", sorted.descending(SegmentSort::Verdict));
        head.right(8, "HOLDERS", sorted.descending(SegmentSort::Holders));
        head.left(widths.life, "LIFE", sorted.ascending(SegmentSort::Age));
        head.left(widths.name, "NAME", sorted.ascending(SegmentSort::Name));
        head.left(usize::MAX, "MADE AT", None);
    }

    fn draw_row(
        &self,
        row: &mut RowPainter<'_>,
        line: &SegmentRow,
        width: u16,
        _: SegmentSort,
        model: &Model,
        ui: &Ui,
    ) {
        let (widths, theme) = (SegmentWidths::of(width), ui.theme);
        row.right(10, &number::size(line.bytes), theme.strong());
        row.left(widths.kind, line.kind.name(), theme.dim());
        let verdict = match line.verdict {
            SegmentVerdict::Residue => theme.warning(),
            SegmentVerdict::Held => theme.good(),
            SegmentVerdict::Released => theme.dim(),
        };
        row.left(9, line.verdict.name(), verdict);
        row.right(8, &line.holders.to_string(), theme.text());
        row.left(widths.life, &life(line.begun, line.ended, self.from, self.to, widths.life), theme.total());
        row.left(widths.name, &line.name, theme.text());
        let frame = line.frame.and_then(|id| model.frame(id));
        row.rest_of_path(&frame.map_or_else(|| "–".to_owned(), |frame| place(frame, By::Line)), theme.dim());
    }
}

struct SegmentWidths {
    kind: usize,
    life: usize,
    name: usize,
}

impl SegmentWidths {
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
