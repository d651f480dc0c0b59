//! Functions with their counted calls, and the times of the calls whose return was seen.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyobs_model::families::eval::EvalSum;
use pyobs_model::views::{By, Groups};
use pyobs_model::{FrameId, Model, Nanos, ProcessRef};

use crate::filter::Filter;
use crate::paint::{HeadingPainter, RowPainter};
use crate::screens::names::{draw_frame, group_label, matches};
use crate::screens::stacks;
use crate::table::{NoDetail, Sorted, Table};
use crate::ui::Ui;
use crate::{number, text};

/// A function, of one process or of all.
type EvalKey = (Option<ProcessRef>, FrameId);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum EvalSort {
    #[default]
    Count,
    Total,
    Mean,
    Longest,
    Unseen,
    Name,
}

/// Adds up a function's calls in all processes, or in each process or group of them.
#[derive(Default)]
pub(super) struct EvalTable;

impl Table for EvalTable {
    type Row = (EvalKey, EvalSum);
    type Key = EvalKey;
    type Sort = EvalSort;
    type Detail = NoDetail;

    const SORTS: &'static [EvalSort] =
        &[EvalSort::Count, EvalSort::Total, EvalSort::Mean, EvalSort::Longest, EvalSort::Unseen, EvalSort::Name];

    fn compute(&mut self, model: &Model, ui: &Ui, _: Option<&mut NoDetail>) -> Option<Vec<Self::Row>> {
        let mut sums: BTreeMap<EvalKey, EvalSum> = BTreeMap::new();
        let groups = Groups::new(model, ui.look.group);
        for (key, sum) in model.eval().sums(&ui.scope(model).selection) {
            let merged = sums.entry((groups.split(key.process), key.function)).or_default();
            merged.times.add(sum.times);
            merged.timed = merged.timed.saturating_add(sum.timed);
        }
        Some(sums.into_iter().collect())
    }

    fn key(row: &Self::Row) -> EvalKey {
        row.0
    }

    fn matches(&self, row: &Self::Row, filter: &Filter, model: &Model) -> bool {
        model.frame(row.0.1).is_some_and(|frame| matches(frame, filter))
    }

    fn sort(&self, shown: &mut [usize], rows: &[Self::Row], sort: EvalSort, model: &Model) {
        let sum = |index: &usize| rows[*index].1;
        match sort {
            EvalSort::Count => shown.sort_by_key(|it| Reverse(sum(it).times.count)),
            EvalSort::Total => shown.sort_by_key(|it| Reverse(sum(it).times.total)),
            EvalSort::Mean => shown.sort_by_key(|it| Reverse(mean(sum(it)))),
            EvalSort::Longest => shown.sort_by_key(|it| Reverse(sum(it).times.max)),
            EvalSort::Unseen => shown.sort_by_key(|it| Reverse(unseen(sum(it)))),
            EvalSort::Name => shown.sort_by_key(|it| {
                model.frame(rows[*it].0.1).map(|frame| (text::head(&frame.function, 256), frame.line))
            }),
        }
    }

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<EvalSort>, ui: &Ui) {
        let widths = EvalWidths::of(width, ui.look.group.splits_processes());
        head.right(widths.count, "CALLS", sorted.descending(EvalSort::Count));
        head.right(9, "TOTAL", sorted.descending(EvalSort::Total));
        head.right(9, "MEAN", sorted.descending(EvalSort::Mean));
        head.right(widths.longest, "LONGEST", sorted.descending(EvalSort::Longest));
        head.right(10, "NO RETURN", sorted.descending(EvalSort::Unseen));
        head.left(widths.process, stacks::group_title(ui.look.group), None);
        head.left(widths.function, "FUNCTION", sorted.ascending(EvalSort::Name));
        head.left(usize::MAX, "DEFINED AT", None);
    }

    fn draw_row(
        &self,
        row: &mut RowPainter<'_>,
        (key, sum): &Self::Row,
        width: u16,
        _: EvalSort,
        model: &Model,
        ui: &Ui,
    ) {
        let Some(frame) = model.frame(key.1) else { return };
        let (widths, theme) = (EvalWidths::of(width, ui.look.group.splits_processes()), ui.theme);
        let time = |time: Nanos| if sum.timed > 0 { number::time(time) } else { "–".to_owned() };
        let calls = sum.times.count;
        let calls = if widths.count > 8 { number::grouped(calls) } else { number::short(calls) };
        row.right(widths.count, &calls, theme.strong());
        row.right(9, &time(sum.times.total), theme.text());
        row.right(9, &time(mean(*sum)), theme.text());
        row.right(widths.longest, &time(sum.times.max), theme.dim());
        let (unseen, style) = match unseen(*sum) {
            0 => ("–".to_owned(), theme.dim()),
            count => (number::short(count), theme.warning()),
        };
        row.right(10, &unseen, style);
        let group = key.0.map(|process| group_label(model, ui.look.group, process));
        row.left(widths.process, &group.unwrap_or_default(), theme.dim());
        draw_frame(row, widths.function, frame, By::Function, theme);
    }
}

/// The mean time of the calls whose return was seen.
fn mean(sum: EvalSum) -> Nanos {
    Nanos(sum.times.total.0.checked_div(sum.timed).unwrap_or(0))
}

/// The number of calls whose return was not seen.
fn unseen(sum: EvalSum) -> u64 {
    sum.times.count.saturating_sub(sum.timed)
}

struct EvalWidths {
    count: usize,
    longest: usize,
    process: usize,
    function: usize,
}

impl EvalWidths {
    fn of(width: u16, split: bool) -> Self {
        let (count, longest, function) = match width {
            0..76 => (7, 0, 65),
            76..110 => (8, 9, 45),
            _ => (12, 9, 45),
        };
        let left = usize::from(width).saturating_sub(count + longest + 28 + 4 + usize::from(longest > 0));
        let process = if split { left / 4 } else { 0 };
        Self { count, longest, process, function: (left - process) * function / 100 }
    }
}
