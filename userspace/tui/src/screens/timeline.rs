//! Lanes of findings, sheds, threads, arenas, transfers and segments under one axis of time, with a cursor. The user can mark
//! a span of time, which restricts all screens.

mod chart;
mod facts;

use pyobs_model::findings::{self, Board, Finding, Target};
use pyobs_model::views::{self, Cells, Lane, LaneId, Slots, Timeline};
use pyobs_model::{Model, Nanos, Selection};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::facts::Facts;
use super::finding::evidence;
use crate::binding::{Action, Keys, bind};
use crate::hit_areas::Hit;
use crate::input::Key;
use crate::jump::{Destination, Effect, Jump};
use crate::list::Listing;
use crate::paint::{put, put_more};
use crate::scope::{Picked, Reach, Scope};
use crate::screen::{About, Screen};
use crate::ui::Ui;

static ABOUT: About = About {
    key: '9',
    title: "Timeline",
    short_title: "Time",
    filter: None,
    keys: &[Keys {
        title: "Timeline",
        bindings: &[
            bind(&[Key::Enter], Action::Open, "open", "end the span, or open the lane's screen"),
            bind(&[Key::Char('v')], Action::Mark, "span", "begin or end a span of time for all screens"),
            bind(&[Key::Char('t')], Action::SeekHere, "", "a replay: to the time at the cursor"),
            bind(&[Key::Char('+'), Key::Char('=')], Action::ZoomIn, "zoom in", "half the time, around the cursor"),
            bind(&[Key::Char('-')], Action::ZoomOut, "out", "twice the time"),
            bind(&[Key::Left], Action::Left, "", "cursor left; at the edge, scroll the zoomed view"),
            bind(&[Key::Right], Action::Right, "", "the cursor to the right"),
        ],
    }],
};

/// The shortest time to zoom in to.
const SHORTEST: Nanos = Nanos(1_000_000);
/// The lines of facts about the cursor, and the height from which they are shown.
const FACTS: u16 = 3;
const FACTS_NEED: u16 = 10;

#[derive(Default)]
pub(crate) struct TimelineScreen {
    timeline: Timeline,
    listing: Listing<LaneId>,
    /// The time that was zoomed in to. `None` shows all the time in scope.
    view: Option<(Nanos, Nanos)>,
    /// `None` until it is moved: it is at the end then.
    cursor: Option<Nanos>,
    /// Where the user began a span.
    mark: Option<Nanos>,
    facts: Facts,
    /// By index on the board, the slots with the evidence of each finding.
    marks: Vec<(usize, Vec<bool>)>,
}

impl TimelineScreen {
    /// Inserts the lane of findings as the first one, if the evidence of any has times.
    fn mark_findings(&mut self, model: &Model, scope: &Scope, board: &Board) {
        let slots = self.slots();
        // Waits that began in view may end after it.
        let within = Selection { from: Some(slots.from), ..scope.selection.clone() };
        let marks = board.entries().map(|entry| findings::marks(model, &within, slots, &entry.finding));
        self.marks = marks.enumerate().filter(|(_, marks)| marks.contains(&true)).collect();
        if !self.marks.is_empty() {
            let count = |slot: usize| self.marks.iter().filter(|(_, marks)| marks[slot]).count() as u64;
            let cells = Cells::Amounts((0..slots.count).map(count).collect());
            self.timeline.lanes.insert(0, Lane { id: LaneId::Findings, cells });
        }
    }

    /// The findings with evidence at the cursor.
    fn findings_at_cursor<'board>(&self, board: &'board Board) -> Vec<&'board Finding> {
        let column = self.column();
        let here = self.marks.iter().filter(|(_, marks)| marks.get(column) == Some(&true));
        here.filter_map(|(index, _)| board.get(*index)).map(|entry| &entry.finding).collect()
    }

    /// Updates the facts about the cursor.
    fn update_facts(&mut self, model: &Model, board: &Board) {
        let selected = self.listing.selected().copied();
        let lane = selected.and_then(|id| self.timeline.lanes.iter().find(|lane| lane.id == id));
        self.facts = match lane {
            None => Facts::default(),
            Some(Lane { id: LaneId::Findings, .. }) => Facts::of_findings(self.at(), &self.findings_at_cursor(board)),
            Some(lane) => Facts::of(model, board, lane, self.slots(), self.column()),
        };
    }

    fn slots(&self) -> Slots {
        self.timeline.slots
    }

    fn column(&self) -> usize {
        let slots = self.slots();
        let last = slots.count.saturating_sub(1);
        self.cursor.map_or(last, |at| slots.of(at.clamp(slots.from, slots.to)).unwrap_or(last))
    }

    /// The time at the cursor, which is the start of its slot.
    fn at(&self) -> Nanos {
        self.slots().start(self.column())
    }

    /// The middle of a slot, because rounding its start could lead into the slot before.
    fn middle(&self, column: usize) -> Nanos {
        let half = Nanos((self.slots().length() / 2.0) as u64);
        self.slots().start(column).saturating_add(half)
    }

    fn slot_end(&self) -> Nanos {
        self.slots().start(self.column() + 1).max(Nanos(self.at().0.saturating_add(1)))
    }

    /// Opens the screen that shows more of a lane. From the lane of findings, follows the first one at the cursor.
    fn open(&self, lane: LaneId, board: &Board) -> Effect {
        let jump = |process, target| Effect::Jump(Jump { process, destination: Destination::Row(target), why: "lane" });
        match lane {
            LaneId::Thread(process, tid) => Effect::Pick(Picked { process, tid: Some(tid) }),
            LaneId::Arenas(process, frame) => jump(Some(process), Target::Arenas(frame)),
            LaneId::Transfers(process, _) => jump(Some(process), Target::Transfers(None)),
            LaneId::Segment(id) => jump(None, Target::Segment(id)),
            LaneId::Shed => Effect::Nothing,
            LaneId::Findings => {
                self.findings_at_cursor(board).first().map_or(Effect::Nothing, |finding| evidence(finding))
            }
        }
    }

    fn end_span(&mut self) -> Effect {
        let Some(mark) = self.mark.take() else { return Effect::Nothing };
        let slot = self.slots().length() as u64;
        let to = self.slot_end().max(Nanos(mark.0.saturating_add(slot)));
        Effect::Span(mark.min(self.at()), to)
    }

    /// Moves the cursor by a column. At the edge of the zoomed time, moves the view along.
    fn step(&mut self, is_right: bool, model: &Model, board: &Board) -> Effect {
        let (slots, column) = (self.slots(), self.column());
        if slots.count == 0 {
            return Effect::Nothing;
        }
        let is_at_end = column == if is_right { slots.count - 1 } else { 0 };
        match self.view {
            Some((from, to)) if is_at_end => {
                let quarter = Nanos(to.saturating_sub(from).0 / 4);
                let length = to.saturating_sub(from);
                let from = if is_right { from.saturating_add(quarter) } else { from.saturating_sub(quarter) };
                let from = from.min(model.now().saturating_sub(length));
                self.view = Some((from, from.saturating_add(length)));
                self.cursor = Some(slots.start(column));
                Effect::View
            }
            _ => {
                let column = if is_right { (column + 1).min(slots.count - 1) } else { column.saturating_sub(1) };
                self.cursor = Some(self.middle(column));
                self.update_facts(model, board);
                Effect::Nothing
            }
        }
    }

    fn zoom(&mut self, is_in: bool, model: &Model) -> Effect {
        let slots = self.slots();
        let length = slots.to.saturating_sub(slots.from);
        let new = if is_in { Nanos(length.0 / 2) } else { length.saturating_add(length) };
        if is_in && new < SHORTEST {
            return Effect::Nothing;
        }
        let at = self.at();
        self.cursor = Some(at.saturating_add(Nanos((slots.length() / 2.0) as u64)));
        let share = at.saturating_sub(slots.from).0 as f64 / length.0.max(1) as f64;
        let from = at.saturating_sub(Nanos((new.0 as f64 * share) as u64));
        let from = from.min(model.now().saturating_sub(new));
        let is_all = new >= model.now();
        self.view = (!is_all).then(|| (from, from.saturating_add(new)));
        Effect::View
    }
}

impl Screen for TimelineScreen {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn reach(&self) -> Reach {
        Reach::Around
    }

    fn compute(&mut self, model: &Model, ui: &mut Ui) {
        let scope = ui.window_scope(model);
        let all = Slots::new(model, &scope.selection, chart::columns(ui.size.0));
        let begin = scope.selection.from.unwrap_or_else(|| oldest(model)).min(all.to);
        let (from, to) = self.view.unwrap_or((begin, all.to));
        self.timeline = views::timeline(model, &scope.selection, Slots { from, to, ..all });
        ui.update_findings(model);
        self.mark_findings(model, &scope, &ui.board);
    }

    fn arrange(&mut self, model: &Model, ui: &Ui) {
        let lanes = &self.timeline.lanes;
        self.listing.show((0..lanes.len()).collect(), |row| lanes[row].id, lane_rows(ui.body()));
        self.update_facts(model, &ui.board);
    }

    fn act(&mut self, action: Action, model: &Model, ui: &Ui) -> Effect {
        if self.listing.step(action, lane_rows(ui.body())) {
            self.update_facts(model, &ui.board);
            return Effect::Nothing;
        }
        match action {
            Action::Left | Action::Right => return self.step(action == Action::Right, model, &ui.board),
            Action::ZoomIn | Action::ZoomOut => return self.zoom(action == Action::ZoomIn, model),
            Action::Mark if self.mark.is_none() => self.mark = Some(self.at()),
            Action::Mark => return self.end_span(),
            Action::SeekHere => return Effect::Seek(self.at()),
            Action::Open if self.mark.is_some() => return self.end_span(),
            Action::Open => {
                return self.listing.selected().map_or(Effect::Nothing, |lane| self.open(*lane, &ui.board));
            }
            _ => {}
        }
        Effect::Nothing
    }

    /// Selects a lane, and moves the cursor to a column.
    fn click(&mut self, part: isize, column: u16, model: &Model, ui: &Ui) -> bool {
        let lane = usize::try_from(part).ok().and_then(|lane| self.timeline.lanes.get(lane)).map(|lane| lane.id);
        let was_selected = self.listing.selected().copied() == lane && self.column() == usize::from(column);
        self.listing.seek(lane_rows(ui.body()), |id| Some(*id) == lane);
        self.cursor = Some(self.middle(column.into()));
        self.update_facts(model, &ui.board);
        was_selected
    }

    fn hint(&self, action: Action, usual: &'static str, _model: &Model, _ui: &Ui) -> &'static str {
        if matches!(action, Action::Mark | Action::Open) && self.mark.is_some() { "end span" } else { usual }
    }

    fn is_empty(&self, _model: &Model, ui: &Ui) -> bool {
        self.timeline.lanes.is_empty() || !ui.has_begun()
    }

    fn is_inside(&self) -> bool {
        self.mark.is_some() || self.view.is_some()
    }

    /// Discards the mark, or zooms out.
    fn close(&mut self, _ui: &Ui) -> bool {
        self.mark.take().is_some() || self.view.take().is_some()
    }

    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let parts = TimelineLayout::of(area);
        let span = match self.mark {
            Some(mark) => Some((mark.min(self.at()), mark.max(self.slot_end()))),
            None => ui.span,
        };
        let chart = chart::Chart { timeline: &self.timeline, column: self.column(), span, theme: ui.theme };
        chart.draw_axis(parts.lanes, buf);
        for (index, line_area, is_selected) in self.listing.in_sight(parts.lanes, &ui.hit_areas) {
            let Some(lane) = self.timeline.lanes.get(index) else { continue };
            ui.hit_areas.add(chart.slots(line_area), Hit::Part(index as isize));
            chart.draw_lane(model, &ui.board, lane, is_selected, line_area, buf);
        }
        chart.draw_cursor(parts.lanes, buf);
        let below = self.timeline.others;
        put_more(buf, Rect { width: parts.lanes.width, ..parts.lanes }, below, ui.theme);
        let inside = Rect { y: parts.facts.y + 1, height: parts.facts.height.saturating_sub(1), ..parts.facts };
        for (line, y) in self.facts.lines(ui.theme).iter().zip(0..inside.height) {
            put(buf, inside, 1, y, &line.0, line.1);
        }
    }
}

struct TimelineLayout {
    /// The axis is the first line.
    lanes: Rect,
    /// Below a blank line.
    facts: Rect,
}

impl TimelineLayout {
    fn of(area: Rect) -> Self {
        let facts = if area.height >= FACTS_NEED { FACTS + 1 } else { 0 };
        let lanes = area.height - facts;
        Self { lanes: Rect { height: lanes, ..area }, facts: Rect { y: area.y + lanes, height: facts, ..area } }
    }
}

fn lane_rows(body: Rect) -> usize {
    usize::from(TimelineLayout::of(body).lanes.height.saturating_sub(1))
}

/// The earliest time that the model has kept anything about.
fn oldest(model: &Model) -> Nanos {
    let sample = model.cpu().samples().next().map(|sample| sample.at);
    let waits = model.offcpu().kept_since().max(model.gil().kept_since());
    sample.filter(|_| model.cpu().total() > 0).unwrap_or_default().min(waits)
}
