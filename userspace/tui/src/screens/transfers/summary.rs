//! How long the stages of transfers take, and how many wait to be handed to UCX.

use pyobs_model::families::ucx::TransferState;
use pyobs_model::views::{self, BUCKETS, Spread, Stage};
use pyobs_model::{Model, Selection, TransferId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::number;
use crate::paint::{Heading, Row};
use crate::ui::Ui;

/// A heading, a line a stage, the queue, a blank.
pub(super) const LINES: u16 = 7;
/// As many as the histograms are wide.
const SLOTS: usize = BUCKETS;
/// What the columns before the histograms take.
const COLUMNS: u16 = 67;

#[derive(Default)]
pub(super) struct Summary {
    stages: Vec<(Stage, Spread)>,
    /// The most that waited at once, in each part of the time.
    queue: Vec<u64>,
    now_queued: u64,
}

impl Summary {
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
        // Two buckets are one where there is no room for all.
        let together = match area.width.saturating_sub(COLUMNS) {
            0..13 => 0,
            13..26 => 2,
            _ => 1,
        };
        let mut head = Heading::new(buf, area, theme);
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
            let mut row = Row::new(buf, Rect { y, height: 1, ..area });
            row.left(12, &format!(" {}", stage.name()), theme.text());
            row.right(9, &number::grouped(spread.count), theme.dim());
            for time in [spread.p50, spread.p90, spread.p99, spread.max] {
                let words = if spread.count == 0 { "–".to_owned() } else { number::time(time) };
                row.right(10, &words, theme.text());
            }
            row.blocks(&joined(&spread.histogram, together, |one, other| one + other), theme.total());
        }
        let y = area.y + 1 + self.stages.len() as u16;
        let mut row = Row::new(buf, Rect { y, height: 1, ..area });
        row.left(12, " queue", theme.text());
        row.right(9, &number::grouped(self.now_queued), theme.dim());
        let most = self.queue.iter().max().copied().unwrap_or(0);
        row.left(43, &format!(" now, {} at the most; over time:", number::grouped(most)), theme.dim());
        row.blocks(&joined(&self.queue, together, u64::max), theme.total());
    }
}

/// So many numbers are one; none of none.
fn joined(numbers: &[u64], together: usize, join: fn(u64, u64) -> u64) -> Vec<u64> {
    if together == 0 {
        return Vec::new();
    }
    numbers.chunks(together).map(|some| some.iter().copied().fold(0, join)).collect()
}
