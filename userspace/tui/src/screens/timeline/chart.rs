//! Draws the timeline's axis, lanes and cursor.

use pyobs_model::findings::{Board, Target};
use pyobs_model::views::{Cells, Doing, Lane, LaneId, Timeline};
use pyobs_model::{FrameKind, Model, Nanos, WaitReason};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::paint::{RowPainter, put};
use crate::screens::names::thread_label;
use crate::screens::region::segment_label;
use crate::text;
use crate::theme::{BoxKind, Emphasis, Theme};

/// The width of the lanes' names.
fn names(width: u16) -> u16 {
    match width {
        0..70 => 14,
        70..110 => 20,
        110..180 => 30,
        _ => 40,
    }
}

/// The number of slots that fit.
pub(super) fn columns(width: u16) -> usize {
    usize::from(width.saturating_sub(names(width) + 1))
}

pub(super) struct Chart<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) column: usize,
    pub(super) span: Option<(Nanos, Nanos)>,
    pub(super) theme: Theme,
}

impl Chart<'_> {
    /// The part of an area that the slots take.
    pub(super) fn slots(&self, area: Rect) -> Rect {
        let names = (names(area.width) + 1).min(area.width);
        let room = usize::from(area.width - names).min(self.timeline.slots.count);
        Rect { x: area.x + names, width: room as u16, ..area }
    }

    /// Draws times at regular columns, and the span.
    pub(super) fn draw_axis(&self, area: Rect, buf: &mut Buffer) {
        const STEP: usize = 12;
        let slots = self.timeline.slots;
        let line = Rect { height: area.height.min(1), ..self.slots(area) };
        put(buf, Rect { height: line.height, ..area }, 1, 0, "TIME", self.theme.heading());
        let decimals = match slots.length() * STEP as f64 {
            step if step >= 1e9 => 1,
            step if step >= 1e8 => 2,
            step if step >= 1e6 => 4,
            _ => 6,
        };
        for column in (0..usize::from(line.width)).step_by(STEP) {
            let at = slots.start(column).as_secs_f64();
            let room = Rect { width: line.width.min((column + STEP - 1) as u16), ..line };
            put(buf, room, column as u16, 0, &format!("╷{at:.decimals$} s"), self.theme.dim());
        }
        let columns = self.span.and_then(|(from, to)| slots.ends(from, Nanos(to.0.saturating_sub(1))));
        if let Some((first, last)) = columns.filter(|_| slots.length() > 0.0) {
            let (first, last) = (first as u16, (last as u16).min(line.width.saturating_sub(1)));
            if first <= last {
                let marked = Rect { x: line.x + first, width: last - first + 1, ..line };
                buf.set_style(marked.intersection(buf.area), self.theme.chip());
            }
        }
    }

    pub(super) fn draw_cursor(&self, area: Rect, buf: &mut Buffer) {
        let slots = self.slots(area);
        if self.column < usize::from(slots.width) {
            let column = Rect { x: slots.x + self.column as u16, width: 1, ..slots };
            buf.set_style(column.intersection(buf.area), self.theme.cursor());
        }
    }

    pub(super) fn draw_lane(
        &self,
        model: &Model,
        board: &Board,
        lane: &Lane,
        is_selected: bool,
        area: Rect,
        buf: &mut Buffer,
    ) {
        let theme = self.theme;
        let width = names(area.width);
        let mut row = RowPainter::new(buf, Rect { width: width.min(area.width), ..area });
        row.select(is_selected, theme);
        let has_finding = board.entries().any(|entry| is_of(lane.id, entry.finding.process, entry.finding.target));
        row.left(1, if has_finding { "!" } else { "" }, theme.warning());
        row.rest(&label(model, lane.id), theme.text());
        let slots = self.slots(area);
        match &lane.cells {
            Cells::Doing(cells) => self.draw_thread(model, cells, slots, buf),
            Cells::Amounts(amounts) if lane.id == LaneId::Findings => {
                let marks: String = amounts.iter().map(|count| if *count > 0 { '!' } else { ' ' }).collect();
                put(buf, slots, 0, 0, &marks, theme.warning());
            }
            Cells::Amounts(amounts) => {
                let style = match lane.id {
                    LaneId::Transfers(..) => theme.own(),
                    LaneId::Shed => theme.warning(),
                    _ => theme.total(),
                };
                RowPainter::new(buf, slots).blocks(amounts, style);
            }
        }
    }

    /// Draws one box for consecutive slots with the same activity, with its name.
    fn draw_thread(&self, model: &Model, cells: &[Option<Doing>], area: Rect, buf: &mut Buffer) {
        let mut at = 0;
        for run in cells.chunk_by(|a, b| a == b) {
            let line_area = Rect { x: area.x + (at as u16).min(area.width), ..area };
            let room = usize::from(area.width).saturating_sub(at).min(run.len());
            at += run.len();
            let Some(doing) = run[0] else { continue };
            let (words, style) = self.words(model, doing, room);
            put(buf, Rect { width: room as u16, ..line_area }, 0, 0, &words, style);
        }
    }

    fn words(&self, model: &Model, doing: Doing, room: usize) -> (String, Style) {
        let theme = self.theme;
        match doing {
            Doing::Waited(reason) => {
                let name = if reason == WaitReason::Gil { "GIL" } else { reason.name() };
                let style = if reason == WaitReason::Gil { theme.warning() } else { theme.dim() };
                let name: String = name.chars().take(room).collect();
                (filled(name, '·', room), style)
            }
            Doing::Ran(frame) => {
                let (id, frame) = (frame, frame.and_then(|id| model.frame(id)));
                let kind = frame.map_or(FrameKind::Native, |frame| frame.kind);
                let shade = id.map_or(0, |id| id.0);
                let style = theme.flame(BoxKind::Frame(kind), Emphasis::Plain, shade);
                let name = frame.map_or("?", |frame| text::head(&frame.function, 256));
                let words = if room < 3 { "▌".to_owned() } else { format!("▌{}", beginning(name, room - 1)) };
                (filled(words, theme.fill(), room), style)
            }
        }
    }
}

/// The beginning of a name without an ellipsis, because in so little room every letter counts.
fn beginning(name: &str, room: usize) -> String {
    let mut words = text::fit(name, room + 2);
    while text::width(&words, room + 3) > room {
        words.pop();
    }
    words
}

fn filled(mut words: String, fill: char, room: usize) -> String {
    let used = text::width(&words, room + 1);
    words.extend(std::iter::repeat_n(fill, room.saturating_sub(used)));
    words
}

/// Whether a finding with this process and target is about a lane.
pub(super) fn is_of(lane: LaneId, process: Option<pyobs_model::ProcessRef>, target: Option<Target>) -> bool {
    let Some(target) = target else { return false };
    match (lane, target) {
        (LaneId::Thread(of, tid), Target::GilWaits(other) | Target::Worker(other)) => {
            process == Some(of) && tid == other
        }
        (LaneId::Arenas(of, frame), Target::Arenas(other)) => process == Some(of) && frame == other,
        (LaneId::Transfers(of, _), Target::Transfers(_)) => process == Some(of),
        (LaneId::Segment(id), Target::Segment(other)) => id == other,
        _ => false,
    }
}

pub(super) fn label(model: &Model, lane: LaneId) -> String {
    let pid = |process| model.process(process).map_or(0, |state| state.process.pid.0);
    match lane {
        LaneId::Thread(process, tid) => thread_label(model, process, tid),
        LaneId::Arenas(process, frame) => {
            let frame = frame.and_then(|id| model.frame(id));
            let file = frame.and_then(|frame| frame.file.as_deref()).map_or("?", text::base_name);
            let line = frame.and_then(|frame| frame.line).map(|line| format!(":{line}")).unwrap_or_default();
            format!("{} arenas {}{line}", pid(process), text::head(file, 64))
        }
        LaneId::Transfers(process, stage) => format!("{} {}", pid(process), stage.name()),
        LaneId::Segment(id) => model.shm().get(id).map_or_else(String::new, segment_label),
        LaneId::Findings => "findings".to_owned(),
        LaneId::Shed => "shed".to_owned(),
    }
}
