//! The columns of the two tables: sleeps, and waits for the GIL.

use pyobs_model::views::{By, Group};
use pyobs_model::{Frame, Model};

use super::wait::{WaitCause, WaitRow, WaitSort, waker_label};
use crate::paint::{HeadingPainter, RowPainter};
use crate::screens::names::{name, place, waiter_label};
use crate::screens::stacks::group_title;
use crate::table::Sorted;
use crate::theme::Theme;
use crate::ui::Ui;
use crate::{number, text};

/// The width of a reason.
const REASON: usize = 9;

pub(super) fn sleep_heading(head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<WaitSort>, group: Group) {
    let widths = SleepWidths::of(width);
    times_heading(head, widths.times, sorted);
    head.left(REASON, "REASON", sorted.ascending(WaitSort::Cause));
    let title = if group.splits_processes() { group_title(group) } else { "THREAD" };
    head.left(widths.thread, title, sorted.ascending(WaitSort::Thread));
    head.left(widths.place.function, "WAITS AT", sorted.ascending(WaitSort::Place));
    head.left(widths.place.path, "", None);
    head.left(widths.inner, "WAITS IN", None);
    head.left(widths.waker, "WOKEN BY", None);
}

pub(super) fn draw_sleep(row: &mut RowPainter<'_>, line: &WaitRow, width: u16, model: &Model, ui: &Ui) {
    let WaitCause::Sleep { reason, inner } = line.wait.cause else { return };
    let widths = SleepWidths::of(width);
    let (theme, by) = (ui.theme, ui.look.by);
    draw_times(row, line, widths.times, theme);
    row.left(REASON, reason.name(), theme.text());
    row.left(widths.thread, &waiter_label(model, ui.look.group, line.wait.process, line.wait.tid), theme.text());
    let inner = inner.and_then(|id| model.frame(id));
    let frame = line.wait.frame.and_then(|id| model.frame(id));
    // Without a Python frame, the native function is the place.
    let frame = frame.or(inner.filter(|_| widths.inner == 0));
    widths.place.draw(row, frame, by, theme);
    let (words, style) = inner.map_or(("–".to_owned(), theme.dim()), |it| (name(it), theme.kind(it.kind)));
    row.left(widths.inner, &words, style);
    row.left(widths.waker, &line.waker.as_ref().map_or("–".to_owned(), waker_label), theme.dim());
}

pub(super) fn gil_heading(head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<WaitSort>) {
    let widths = GilWidths::of(width);
    times_heading(head, widths.times, sorted);
    head.left(widths.thread, "WAITER", sorted.ascending(WaitSort::Thread));
    head.left(widths.place.function, "WAITS AT", sorted.ascending(WaitSort::Place));
    head.left(widths.place.path, "", None);
    head.left(1, "", None);
    head.left(widths.thread, "HOLDER", sorted.ascending(WaitSort::Cause));
    head.left(widths.place.function, "HELD IT AT", None);
    head.left(widths.place.path, "", None);
}

pub(super) fn draw_gil(row: &mut RowPainter<'_>, line: &WaitRow, width: u16, model: &Model, ui: &Ui) {
    let WaitCause::Gil { holder, frame } = line.wait.cause else { return };
    let widths = GilWidths::of(width);
    let (theme, by) = (ui.theme, ui.look.by);
    draw_times(row, line, widths.times, theme);
    row.left(widths.thread, &waiter_label(model, ui.look.group, line.wait.process, line.wait.tid), theme.text());
    widths.place.draw(row, line.wait.frame.and_then(|id| model.frame(id)), by, theme);
    row.left(1, "←", theme.dim());
    let holder = holder.map_or("–".to_owned(), |tid| waiter_label(model, ui.look.group, line.wait.process, tid));
    row.left(widths.thread, &holder, theme.text());
    widths.place.draw(row, frame.and_then(|id| model.frame(id)), by, theme);
}

fn times_heading(head: &mut HeadingPainter<'_>, widths: TimeWidths, sorted: Sorted<WaitSort>) {
    head.right(6, "TIME %", None);
    head.skip(widths.bar);
    head.right(8, "TOTAL", sorted.descending(WaitSort::Total));
    head.right(widths.count, "COUNT", sorted.descending(WaitSort::Count));
    head.right(widths.longest, "LONGEST", sorted.descending(WaitSort::Longest));
    head.right(widths.stacks, "STACKS", None);
}

fn draw_times(row: &mut RowPainter<'_>, line: &WaitRow, widths: TimeWidths, theme: Theme) {
    if !line.sampled.is_enough() {
        // Not enough data: the detail says so in words.
        row.right(6, "–", theme.dim());
        row.bar(widths.bar, 0.0, theme.own());
        row.right(8, "too few", theme.dim());
        row.right(widths.count, "–", theme.dim());
        row.right(widths.longest, "–", theme.dim());
        row.right(widths.stacks, &number::short(line.sampled.stacks), theme.dim());
        return;
    }
    row.right(6, &number::percent(line.share * 100.0), theme.strong());
    row.bar(widths.bar, line.share, theme.own());
    row.right(8, &number::time(line.times.total), theme.text());
    row.right(widths.count, &number::short(line.times.count), theme.dim());
    row.right(widths.longest, &number::time(line.times.max), theme.dim());
    row.right(widths.stacks, &number::short(line.sampled.stacks), theme.dim());
}

/// The widths for a function with its line: `receive:25`, or two columns if the path fits.
#[derive(Clone, Copy, Default)]
pub(super) struct PlaceWidths {
    function: usize,
    path: usize,
}

impl PlaceWidths {
    /// Divides `room`, on a screen of this width.
    pub(super) fn of(room: usize, width: u16) -> Self {
        const PATHS_NEED: u16 = 130;
        if width < PATHS_NEED {
            return Self { function: room, path: 0 };
        }
        let function = room * 45 / 100;
        Self { function, path: room.saturating_sub(function + 1) }
    }

    pub(super) fn sum(self) -> usize {
        self.function + self.path + usize::from(self.path > 0)
    }

    pub(super) fn draw(self, row: &mut RowPainter<'_>, frame: Option<&Frame>, by: By, theme: Theme) {
        let Some(frame) = frame else {
            row.left(self.function, "–", theme.dim());
            return row.skip(self.path);
        };
        let line = frame.line.filter(|_| by == By::Line && self.path == 0).map(|line| format!(":{line}"));
        // Never truncate the line, because it tells two rows of one function apart.
        let line = line.unwrap_or_default();
        let function = text::fit(&name(frame), self.function.saturating_sub(line.len()));
        row.left(self.function, &format!("{function}{line}"), theme.kind(frame.kind));
        row.left_path(self.path, &place(frame, by), theme.dim());
    }
}

#[derive(Clone, Copy)]
struct TimeWidths {
    bar: usize,
    count: usize,
    longest: usize,
    stacks: usize,
}

impl TimeWidths {
    fn of(width: u16) -> Self {
        match width {
            0..76 => Self { bar: 0, count: 0, longest: 0, stacks: 0 },
            76..130 => Self { bar: 0, count: 6, longest: 8, stacks: 0 },
            _ => Self { bar: 10, count: 6, longest: 8, stacks: 6 },
        }
    }

    /// The width of all columns, with the empty cell after each.
    fn sum(self) -> usize {
        let columns = [6, self.bar, 8, self.count, self.longest, self.stacks];
        columns.into_iter().filter(|width| *width > 0).map(|width| width + 1).sum()
    }
}

struct SleepWidths {
    times: TimeWidths,
    thread: usize,
    place: PlaceWidths,
    inner: usize,
    waker: usize,
}

impl SleepWidths {
    fn of(width: u16) -> Self {
        let times = TimeWidths::of(width);
        let left = usize::from(width).saturating_sub(times.sum() + REASON + 1);
        let percent = |percent: usize| (left * percent / 100).saturating_sub(1);
        let (thread, place, inner, waker) = match width {
            0..76 => (percent(40), percent(60), 0, 0),
            76..96 => (percent(30), percent(42), left, 0),
            96..130 => (percent(24), percent(33), percent(22), left),
            _ => (percent(18), percent(47), percent(20), left),
        };
        Self { times, thread, place: PlaceWidths::of(place, width), inner, waker }
    }
}

struct GilWidths {
    times: TimeWidths,
    thread: usize,
    place: PlaceWidths,
}

impl GilWidths {
    fn of(width: u16) -> Self {
        const THREADS_NEED: u16 = 76;
        let times = TimeWidths::of(width);
        // Two cells are for the arrow and the gap after it.
        let half = usize::from(width).saturating_sub(times.sum() + 2) / 2;
        let thread = if width < THREADS_NEED { 0 } else { (half * 40 / 100).min(24) };
        let place = half.saturating_sub(thread + usize::from(thread > 0) + 1);
        Self { times, thread, place: PlaceWidths::of(place, width) }
    }
}
