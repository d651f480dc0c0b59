//! Work between Python and native code that changes nothing: the findings, then the lines whose native code accesses memory,
//! those first that cost most.

mod detail;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyobs_model::Model;
use pyobs_model::families::redundancy::{Accesses, CallSum, DISPATCH, Line, PairOf, PairSum, least_trials};
use pyobs_model::findings::{self, Finding, Target};
use pyobs_model::views::{self, By, own_line};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::detail::Detail;
use crate::binding::Action;
use crate::draw::{Heading, Order, Row};
use crate::filter::Filter;
use crate::history::{Jump, Place};
use crate::hit_areas::Hit;
use crate::list::{Cursor, step, turned};
use crate::number;
use crate::screens::Outcome;
use crate::screens::finding::{mark, summary};
use crate::screens::frames::{place, process_label};
use crate::source::Sources;
use crate::ui::{Scope, Ui};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Objects,
    Samples,
    Arrays,
    Again,
    Equal,
}

const SORTS: [Sort; 5] = [Sort::Objects, Sort::Samples, Sort::Arrays, Sort::Again, Sort::Equal];
/// Findings that are shown above the lines, where there is room for some lines as well.
const FINDINGS_MAX: usize = 4;
const LINES_MIN: u16 = 6;
/// Cells from which on there is room for all columns, and for the lines' text.
const ALL_NEED: u16 = 76;
const SOURCE_NEEDS: u16 = 140;

struct Entry {
    line: Line,
    sum: Accesses,
    pairs: PairSum,
    calls: CallSum,
}

/// What was open.
pub(crate) struct RedundancyAside {
    open: Option<Line>,
    page: Detail,
}

#[derive(Default)]
pub(crate) struct RedundancyScreen {
    findings: Vec<Finding>,
    sort: Sort,
    rows: Vec<Entry>,
    shown: Vec<usize>,
    cursor: Cursor<Line>,
    open: Option<Line>,
    /// The row to go to.
    wanted: Option<Line>,
    detail: Detail,
}

impl RedundancyScreen {
    pub(crate) fn compute(&mut self, model: &Model, scope: &Scope, sources: &mut Sources, width: u16) {
        let view = views::redundancy(model, &scope.selection);
        let mut pairs: BTreeMap<Line, PairSum> = BTreeMap::new();
        for (pair, sum) in &view.pairs {
            if let Some(line) = line_of(model, pair) {
                pairs.entry(line).or_default().add(sum);
            }
        }
        let mut calls: BTreeMap<Line, CallSum> = BTreeMap::new();
        for (call, sum) in &view.calls {
            calls.entry(call.line).or_default().add(sum);
        }
        self.findings = findings::find(model, &scope.selection);
        self.findings.retain(|finding| finding.id.starts_with("redundancy/"));
        let entry = |(line, sum): (&Line, &Accesses)| Entry {
            line: *line,
            sum: sum.clone(),
            pairs: pairs.get(line).copied().unwrap_or_default(),
            calls: calls.get(line).copied().unwrap_or_default(),
        };
        self.rows = view.lines.iter().map(entry).collect();
        if let Some(line) = self.open {
            let source = sources.read(model, line.process, line.frame);
            self.detail.compute(model, &view, line, source, &self.findings, width.into());
        }
    }

    pub(crate) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, body: Rect, sources: &mut Sources) {
        if self.open.is_some() {
            self.detail.arrange(usize::from(body.height));
            return;
        }
        let rows = &self.rows;
        let is_shown = |index: &usize| {
            let row = &rows[*index];
            filter.is_none_or(|filter| {
                filter.matches(&place_of(model, row.line))
                    || filter.matches(&process_label(model, Some(row.line.process)))
            })
        };
        self.shown = (0..rows.len()).filter(is_shown).collect();
        let key = |index: usize| {
            let Entry { sum, pairs, calls, .. } = &rows[index];
            let part = |of: f64| (sum.weight as f64 * 1000.0 * of) as u64;
            match self.sort {
                Sort::Objects => part(sum.objects_share()),
                Sort::Samples => sum.weight,
                Sort::Arrays => part(sum.array_share()),
                Sort::Again => calls.same,
                Sort::Equal => pairs.equal,
            }
        };
        self.shown.sort_by_key(|index| Reverse(key(*index)));
        let height = usize::from(self.table(body).height.saturating_sub(1));
        self.cursor.follow(self.shown.len(), self.shown.iter().map(|index| rows[*index].line), height);
        if let Some(wanted) = self.wanted.take()
            && let Some(at) = self.shown.iter().position(|index| self.rows[*index].line == wanted)
        {
            self.cursor.go(at, self.shown.len(), height);
        }
        self.cursor.hold(self.selected());
        if body.width >= SOURCE_NEEDS {
            for index in &self.shown[self.cursor.visible(self.shown.len(), height)] {
                if let Some(Entry { line, .. }) = self.rows.get(*index) {
                    sources.read(model, line.process, line.frame);
                }
            }
        }
    }

    /// What is said where there is no finding.
    fn note(&self) -> String {
        let few = self.rows.iter().filter(|row| row.sum.known() > 0 && !row.sum.is_enough()).count();
        let least = least_trials(DISPATCH);
        match few {
            0 => "No finding.".to_owned(),
            few => format!(
                "No finding. Not enough data of {few} of {} lines: fewer than {least} addresses.",
                self.rows.len()
            ),
        }
    }

    /// How many findings are shown, and a blank line below them.
    fn findings_in(&self, area: Rect) -> usize {
        self.findings.len().min(FINDINGS_MAX).min(usize::from(area.height.saturating_sub(LINES_MIN + 1)))
    }

    fn table(&self, area: Rect) -> Rect {
        let has_room = area.height > LINES_MIN + 1;
        let above = if has_room { self.findings_in(area).max(1) as u16 + 1 } else { 0 };
        Rect { y: area.y + above, height: area.height - above, ..area }
    }

    fn selected(&self) -> Option<Line> {
        self.shown.get(self.cursor.index()).and_then(|index| self.rows.get(*index)).map(|row| row.line)
    }

    pub(crate) fn act(&mut self, action: Action, body: Rect) -> Outcome {
        if self.open.is_some() {
            return self.detail.act(action, usize::from(body.height));
        }
        if let Some(step) = step(action) {
            self.cursor.step(step, self.shown.len(), usize::from(self.table(body).height.saturating_sub(1)));
            self.cursor.hold(self.selected());
            return Outcome::Nothing;
        }
        match action {
            Action::SortNext | Action::SortPrevious => {
                self.sort = turned(&SORTS, self.sort, action);
                Outcome::Rows
            }
            Action::Open => {
                (self.open, self.detail) = (self.selected(), Detail::default());
                Outcome::View
            }
            _ => Outcome::Nothing,
        }
    }

    pub(crate) fn jump(&mut self, jump: Jump) {
        let (Place::Row(target) | Place::Detail(target)) = jump.place else { return };
        self.open = None;
        if let (Some(process), Target::Line(frame)) = (jump.process, target) {
            let line = Line { process, frame };
            (self.wanted, self.open) = (Some(line), jump.is_into_detail().then_some(line));
        }
    }

    pub(crate) fn put_aside(&mut self) -> RedundancyAside {
        RedundancyAside { open: self.open.take(), page: std::mem::take(&mut self.detail) }
    }

    pub(crate) fn put_back(&mut self, aside: RedundancyAside) {
        (self.open, self.detail) = (aside.open, aside.page);
    }

    pub(crate) fn close_detail(&mut self) -> bool {
        self.open.take().is_some()
    }

    pub(crate) fn shows_detail(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_none() && self.shown.is_empty()
    }

    pub(crate) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        if self.open.is_some() {
            return self.detail.draw(model, ui, area, buf);
        }
        let theme = ui.theme;
        for (finding, y) in self.findings.iter().take(self.findings_in(area)).zip(area.y..) {
            let (mark, style) = mark(theme, finding.severity);
            let mut row = Row::new(buf, Rect { y, height: 1, ..area });
            row.left(2, mark, style);
            row.rest(&summary(finding, usize::from(area.width).saturating_sub(3)), theme.text());
        }
        if self.findings.is_empty() && area.height > LINES_MIN + 1 {
            Row::new(buf, Rect { height: 1, ..area }).rest(&format!(" {}", self.note()), theme.dim());
        }
        let area = self.table(area);
        // Where there is little room, only what they are sorted by.
        let is_wide = area.width >= ALL_NEED;
        let column =
            |sort, width| if is_wide || matches!(sort, Sort::Samples) || sort == self.sort { width } else { 0 };
        let process = if is_wide { 24 } else { 0 };
        let place = if area.width >= SOURCE_NEEDS { usize::from(area.width) / 4 } else { usize::MAX };
        let sorted = |sort| (self.sort == sort).then_some(Order::Falling);
        let mut head = Heading::new(buf, area, theme);
        head.right(column(Sort::Samples, 8), "SAMPLES", sorted(Sort::Samples));
        head.right(column(Sort::Objects, 8), "OBJECTS", sorted(Sort::Objects));
        head.right(column(Sort::Arrays, 7), "ARRAYS", sorted(Sort::Arrays));
        head.right(column(Sort::Again, 12), "SAME CALLS", sorted(Sort::Again));
        head.right(column(Sort::Equal, 12), "EQUAL PAIRS", sorted(Sort::Equal));
        head.left(process, "PROCESS", None);
        head.left(place, "NATIVE CODE CALLED AT", None);
        head.left(usize::MAX, if place == usize::MAX { "" } else { "SOURCE" }, None);
        let visible = self.cursor.visible(self.shown.len(), usize::from(area.height).saturating_sub(1));
        let first = visible.start;
        for (shown, index) in self.shown[visible].iter().zip(first..) {
            let Some(Entry { line, sum, pairs, calls }) = self.rows.get(*shown) else { continue };
            let line_area = Rect { y: area.y + 1 + (index - first) as u16, height: 1, ..area };
            ui.hit_areas.add(line_area, Hit::row(index, self.cursor.index()));
            let mut row = Row::new(buf, line_area);
            let of = |share: f64| match sum.known() {
                0 => "–".to_owned(),
                _ if !sum.is_enough() => "few".to_owned(),
                _ => number::percent(100.0 * share),
            };
            let part = |of: u64, all: u64| match all {
                0 => "–".to_owned(),
                all => format!("{}/{}", number::count(of), number::count(all)),
            };
            row.select(index == self.cursor.index(), theme);
            let style = |is_enough| if is_enough { theme.text() } else { theme.dim() };
            row.right(column(Sort::Samples, 8), &number::count(sum.samples), theme.strong());
            row.right(column(Sort::Objects, 8), &of(sum.objects_share()), style(sum.is_enough()));
            row.right(column(Sort::Arrays, 7), &of(sum.array_share()), style(sum.is_enough()));
            row.right(column(Sort::Again, 12), &part(calls.same, calls.compared), style(calls.is_enough()));
            row.right(column(Sort::Equal, 12), &part(pairs.equal, pairs.compared), style(pairs.is_enough()));
            row.left(process, &process_label(model, Some(line.process)), theme.dim());
            row.left_path(place, &place_of(model, *line), theme.text());
            row.rest(ui.sources.known(line.process, line.frame).unwrap_or_default(), theme.dim());
        }
    }
}

fn line_of(model: &Model, pair: &PairOf) -> Option<Line> {
    Some(Line { process: pair.process, frame: own_line(model, pair.second)? })
}

fn place_of(model: &Model, line: Line) -> String {
    model.frame(line.frame).map_or_else(|| "–".to_owned(), |frame| place(frame, By::Line))
}
