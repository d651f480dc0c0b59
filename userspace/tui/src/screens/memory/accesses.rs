//! What native code accesses, by the Python line that called it: those lines first that cost most.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyobs_model::families::redundancy::{Accesses, Line, PairOf, PairSum};
use pyobs_model::views::{By, own_line};
use pyobs_model::{FrameId, Model};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::births::share;
use crate::binding::Action;
use crate::draw::{Heading, Order, Row, put_more};
use crate::filter::Filter;
use crate::list::{Cursor, scroll, step, turned};
use crate::number;
use crate::screens::Outcome;
use crate::screens::frames::{draw_frame, place, process_label};
use crate::ui::{Scope, Ui};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Objects,
    Samples,
    Arrays,
    Equal,
}

const SORTS: [Sort; 4] = [Sort::Objects, Sort::Samples, Sort::Arrays, Sort::Equal];
/// Pairs of a line that are shown with their stacks.
const PAIRS_MAX: usize = 20;

struct Entry {
    line: Line,
    sum: Accesses,
    pairs: PairSum,
}

enum Part {
    Blank,
    Heading(String),
    Words(String),
    Frame(FrameId),
}

#[derive(Default)]
pub(super) struct AccessTable {
    sort: Sort,
    rows: Vec<Entry>,
    shown: Vec<usize>,
    cursor: Cursor<Line>,
    open: Option<Line>,
    detail: Vec<Part>,
    top: usize,
}

impl AccessTable {
    pub(super) fn compute(&mut self, model: &Model, scope: &Scope) {
        let family = model.redundancy();
        let mut pairs: BTreeMap<Line, PairSum> = BTreeMap::new();
        for (pair, sum) in family.pairs() {
            if let Some(line) = line_of(model, pair) {
                pairs.entry(line).or_default().add(sum);
            }
        }
        let lines = family.lines().filter(|(line, _)| scope.selection.has_process(line.process));
        self.rows = lines
            .map(|(line, sum)| Entry { line, sum: sum.clone(), pairs: pairs.get(&line).copied().unwrap_or_default() })
            .collect();
        if let Some(line) = self.open {
            self.detail = detail(model, line, self.rows.iter().find(|row| row.line == line));
        }
    }

    pub(super) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, body: Rect) {
        if self.open.is_some() {
            self.top = self.top.min(self.detail.len().saturating_sub(usize::from(body.height)));
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
            let Entry { sum, pairs, .. } = &rows[index];
            let part = |of: u64| sum.weight.saturating_mul(1000 * of) / sum.known().max(1);
            match self.sort {
                Sort::Objects => part(sum.objects()),
                Sort::Samples => sum.weight,
                Sort::Arrays => part(sum.array),
                Sort::Equal => pairs.equal,
            }
        };
        self.shown.sort_by_key(|index| Reverse(key(*index)));
        let height = usize::from(body.height.saturating_sub(1));
        self.cursor.follow(self.shown.len(), self.shown.iter().map(|index| rows[*index].line), height);
        self.cursor.hold(self.selected());
    }

    fn selected(&self) -> Option<Line> {
        self.shown.get(self.cursor.index()).and_then(|index| self.rows.get(*index)).map(|row| row.line)
    }

    pub(super) fn act(&mut self, action: Action, body: Rect) -> Outcome {
        if self.open.is_some() {
            self.top = scroll(self.top, action, self.detail.len(), usize::from(body.height));
            return Outcome::Nothing;
        }
        if let Some(step) = step(action) {
            self.cursor.step(step, self.shown.len(), usize::from(body.height.saturating_sub(1)));
            self.cursor.hold(self.selected());
            return Outcome::Nothing;
        }
        match action {
            Action::SortNext | Action::SortPrevious => {
                self.sort = turned(&SORTS, self.sort, action);
                Outcome::Rows
            }
            Action::Open => {
                (self.open, self.top) = (self.selected(), 0);
                Outcome::View
            }
            _ => Outcome::Nothing,
        }
    }

    pub(super) fn close_detail(&mut self) -> bool {
        self.open.take().is_some()
    }

    pub(super) fn shows_detail(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_none() && self.shown.is_empty()
    }

    pub(super) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        if self.open.is_some() {
            return self.draw_detail(model, ui, area, buf);
        }
        let theme = ui.theme;
        let process = if area.width < 76 { 12 } else { 24 };
        let sorted = |sort| (self.sort == sort).then_some(Order::Falling);
        let mut head = Heading::new(buf, area, theme);
        head.right(8, "SAMPLES", sorted(Sort::Samples));
        head.right(8, "OBJECTS", sorted(Sort::Objects));
        head.right(7, "ARRAYS", sorted(Sort::Arrays));
        head.right(12, "EQUAL PAIRS", sorted(Sort::Equal));
        head.left(process, "PROCESS", None);
        head.left(usize::MAX, "NATIVE CODE CALLED AT", None);
        let visible = self.cursor.visible(self.shown.len(), usize::from(area.height).saturating_sub(1));
        let first = visible.start;
        for (shown, index) in self.shown[visible].iter().zip(first..) {
            let Some(Entry { line, sum, pairs }) = self.rows.get(*shown) else { continue };
            let y = area.y + 1 + (index - first) as u16;
            let mut row = Row::new(buf, Rect { y, height: 1, ..area });
            let of = |count: u64| match sum.known() {
                0 => "–".to_owned(),
                known => share(count as f64 / known as f64),
            };
            let equal = match pairs.compared {
                0 => "–".to_owned(),
                compared => format!("{}/{}", number::count(pairs.equal), number::count(compared)),
            };
            row.select(index == self.cursor.index(), theme);
            row.right(8, &number::count(sum.samples), theme.strong());
            row.right(8, &of(sum.objects()), theme.text());
            row.right(7, &of(sum.array), theme.text());
            row.right(12, &equal, theme.text());
            row.left(process, &process_label(model, Some(line.process)), theme.dim());
            row.rest_of_path(&place_of(model, *line), theme.text());
        }
    }

    fn draw_detail(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let theme = ui.theme;
        let height = usize::from(area.height);
        for (part, y) in self.detail.iter().skip(self.top).take(height).zip(area.y..) {
            let mut row = Row::new(buf, Rect { y, height: 1, ..area });
            match part {
                Part::Blank => {}
                Part::Heading(heading) => row.rest(&format!(" {heading}"), theme.heading()),
                Part::Words(words) => row.rest(&format!(" {words}"), theme.text()),
                Part::Frame(id) => {
                    if let Some(frame) = model.frame(*id) {
                        row.skip(1);
                        draw_frame(&mut row, usize::from(area.width) * 45 / 100, frame, By::Line, theme);
                    }
                }
            }
        }
        put_more(buf, area, self.detail.len().saturating_sub(self.top + height), theme);
    }
}

fn line_of(model: &Model, pair: &PairOf) -> Option<Line> {
    Some(Line { process: pair.process, frame: own_line(model, pair.second)? })
}

fn place_of(model: &Model, line: Line) -> String {
    model.frame(line.frame).map_or_else(|| "–".to_owned(), |frame| place(frame, By::Line))
}

/// The pairs of a line, those that are equal most often first, each with both stacks.
fn detail(model: &Model, line: Line, row: Option<&Entry>) -> Vec<Part> {
    let mut parts = vec![
        Part::Words(format!("line      {}", place_of(model, line))),
        Part::Words(format!("process   {}", process_label(model, Some(line.process)))),
    ];
    if let Some(Entry { sum, .. }) = row {
        let count = number::count;
        parts.push(Part::Words(format!(
            "samples   {}, of {} the address is known",
            count(sum.samples),
            count(sum.known())
        )));
        parts.push(Part::Words(format!(
            "accessed  {} objects, {} arrays, {} static, {} unknown",
            count(sum.metadata),
            count(sum.array),
            count(sum.fixed),
            count(sum.unknown)
        )));
        let mut names: Vec<_> = sum.names.iter().collect();
        names.sort_by_key(|(_, count)| Reverse(**count));
        let names: Vec<String> = names.iter().take(5).map(|(name, of)| format!("{name} {}", count(**of))).collect();
        if !names.is_empty() {
            parts.push(Part::Words(format!("these     {}", names.join(", "))));
        }
    }
    let mut pairs: Vec<_> = model.redundancy().pairs().filter(|(pair, _)| line_of(model, pair) == Some(line)).collect();
    pairs.sort_by_key(|(_, sum)| Reverse((sum.equal, sum.compared)));
    for (pair, sum) in pairs.into_iter().take(PAIRS_MAX) {
        let of = pair.touched.detail().map(|detail| format!(" {detail}")).unwrap_or_default();
        let heading = format!(
            "{}S OF {}{of}: {} OF {} EQUAL",
            pair.kind.name().to_uppercase(),
            pair.touched.name().to_uppercase(),
            sum.equal,
            sum.compared
        );
        parts.extend([Part::Blank, Part::Heading(heading)]);
        for (title, stack) in [("first, innermost frame first", pair.first), ("second", pair.second)] {
            parts.push(Part::Words(title.to_owned()));
            parts.extend(model.stack(stack).iter().rev().map(|frame| Part::Frame(*frame)));
        }
    }
    parts
}
