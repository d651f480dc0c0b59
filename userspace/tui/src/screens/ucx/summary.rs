//! The times of the stages of transfers, and the number of transfers that wait to be submitted to UCX.

use pyobs_model::families::ucx::TransferState;
use pyobs_model::views::{self, BUCKETS, Spread, Stage};
use pyobs_model::{Model, Selection, TransferId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::number;
use crate::paint::{HeadingPainter, RowPainter};
use crate::ui::Ui;

/// The heading, a line per stage, the queue and a blank line.
pub(super) const LINES: u16 = 7;
/// The queue's points in time: as many as the histograms are wide.
const SLOTS: usize = BUCKETS;
/// The width of the columns before the histograms.
const COLUMNS: u16 = 67;

#[derive(Default)]
pub(super) struct StageSummary {
    stages: Vec<(Stage, Spread)>,
    /// The longest queue in each slot of time.
    queue: Vec<u64>,
    now_queued: u64,
}

impl StageSummary {
    pub(super) fn of(model: &Model, selection: &Selection, rows: &[(TransferId, &TransferState, u64)]) -> Self {
        let queue = views::queue(model, selection);
        Self {
            stages: views::stages(&rows.iter().map(|(_, state, _)| *state)).into(),
            queue: views::queue_over_time(&queue, SLOTS),
            now_queued: queue.last().map_or(0, |(_, depth)| *depth),
        }
    }

    pub(super) fn draw(&self, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let theme = ui.theme;
        // If not all buckets fit, pairs of them are merged.
        let together = match area.width.saturating_sub(COLUMNS) {
            0..13 => 0,
            13..26 => 2,
            _ => 1,
        };
        let mut head = HeadingPainter::new(buf, area, theme);
        head.left(12, " STAGE", None);
        head.right(9, "COUNT", None);
        for name in ["HALF", "90 %", "99 %", "LONGEST"] {
            head.right(10, name, None);
        }
        match together {
            1 => head.left(SLOTS, " 1µs       1ms       1s", None),
            2 => head.left(SLOTS / 2, "1µs  1ms  1s", None),
            _ => {}
        }
        for ((stage, spread), y) in self.stages.iter().zip(area.y + 1..) {
            let mut row = RowPainter::new(buf, Rect { y, height: 1, ..area });
            row.left(12, &format!(" {}", stage.name()), theme.text());
            row.right(9, &number::grouped(spread.count), theme.dim());
            for time in [spread.p50, spread.p90, spread.p99, spread.max] {
                let words = if spread.count == 0 { "–".to_owned() } else { number::time(time) };
                row.right(10, &words, theme.text());
            }
            row.blocks(&merged(&spread.histogram, together, |one, other| one + other), theme.total());
        }
        let y = area.y + 1 + self.stages.len() as u16;
        let mut row = RowPainter::new(buf, Rect { y, height: 1, ..area });
        row.left(12, " queue", theme.text());
        row.right(9, &number::grouped(self.now_queued), theme.dim());
        let most = self.queue.iter().max().copied().unwrap_or(0);
        row.left(43, &format!(" now, {} at the most; over time:", number::grouped(most)), theme.dim());
        row.blocks(&merged(&self.queue, together, u64::max), theme.total());
    }
}

/// Merges each `together` numbers into one. Returns none if `together` is 0.
fn merged(numbers: &[u64], together: usize, join: fn(u64, u64) -> u64) -> Vec<u64> {
    if together == 0 {
        return Vec::new();
    }
    numbers.chunks(together).map(|some| some.iter().copied().fold(0, join)).collect()
}
