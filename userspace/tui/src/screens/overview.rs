//! The first screen: the findings, the busiest lines, and the machine in five lines.

mod hottest;
mod lines;
mod quiet;

use pyobs_model::findings::{self, Board, Entry};
use pyobs_model::views::{self, By, CpuLines, Look, Machine, Native};
use pyobs_model::{Family, Model};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::quiet::Quiet;
use super::finding::{advice, cost, evidence, mark, summary};
use crate::binding::{Action, Keys, bind};
use crate::input::Key;
use crate::jump::Effect;
use crate::list::Listing;
use crate::paint::{HeadingPainter, RowPainter, SortOrder, put};
use crate::scope::Reach;
use crate::screen::{About, Screen};
use crate::text;
use crate::ui::Ui;

static ABOUT: About = About {
    key: '0',
    title: "Overview",
    short_title: "Over",
    filter: None,
    keys: &[Keys {
        title: "Overview",
        bindings: &[bind(
            &[Key::Enter],
            Action::Open,
            "evidence",
            "the screen and the row that show what a finding rests on",
        )],
    }],
};

/// The lines about the machine, with their heading.
const MACHINE: u16 = lines::COUNT + 1;
/// The width of the advice's label.
const LABEL: u16 = 5;
/// The widths from which a finding's process, and the check that found it, are shown.
const PROCESS_NEEDS: u16 = 100;
const CHECK_NEEDS: u16 = 130;

#[derive(Default)]
pub(crate) struct OverviewScreen {
    machine: Machine,
    hottest: CpuLines,
    quiet: Quiet,
    listing: Listing<findings::Key>,
}

/// The areas of the parts, from top to bottom.
struct OverviewLayout {
    findings: Rect,
    /// The full text of the selected finding, and its advice.
    detail: Rect,
    machine: Rect,
}

impl OverviewLayout {
    /// Divides `area`. The rows of findings come first; the detail gets what is left.
    fn of(area: Rect, findings: usize) -> Self {
        let machine = if area.height >= MACHINE + 4 { MACHINE + 1 } else { 0 };
        let least = match area.height {
            _ if findings == 0 => 0,
            0..18 => 0,
            18..30 => 6,
            _ => 8,
        };
        let room = area.height - machine - least;
        // Without findings, their area says what is not watched.
        let rows = if findings == 0 { room } else { room.min(findings.saturating_add(1).min(1 << 12) as u16) };
        let detail = if least > 0 { area.height - machine - rows } else { 0 };
        let part = |above, height| Rect { y: area.y + above, height, ..area };
        Self { findings: part(0, rows), detail: part(rows, detail), machine: part(area.height - machine, machine) }
    }
}

impl OverviewScreen {
    fn selected<'board>(&self, board: &'board Board) -> Option<&'board Entry> {
        let selected = self.listing.selected()?;
        let at = (0..board.entries().len()).find(|index| board.key(*index) == Some(selected))?;
        board.get(at)
    }

    fn draw_findings(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let theme = ui.theme;
        let process = if area.width >= PROCESS_NEEDS { 8 } else { 0 };
        let check = if area.width >= CHECK_NEEDS { 26 } else { 0 };
        let mut head = HeadingPainter::new(buf, area, theme);
        head.skip(3);
        head.right(9, "COST", Some(SortOrder::Descending));
        head.right(process, "PID", None);
        head.left(check, "CHECK", None);
        head.left(usize::MAX, "FINDING", None);
        for (index, line_area, is_selected) in self.listing.in_sight(area, &ui.hit_areas) {
            let Some(entry) = ui.board.get(index) else { continue };
            let finding = &entry.finding;
            let is_current = entry.is_current(&ui.board);
            let dim = |style| if is_current { style } else { theme.dim() };
            let (sign, style) = mark(theme, finding.severity);
            let mut row = RowPainter::new(buf, line_area);
            row.select(is_selected, theme);
            row.left(3, &format!(" {sign}"), dim(style));
            row.right(9, &cost(entry.cost), dim(theme.strong()));
            let pid = finding.process.and_then(|id| model.process(id)).map(|state| state.process.pid).or(finding.pid);
            row.right(process, &pid.map_or_else(|| "–".to_owned(), |pid| pid.to_string()), theme.dim());
            row.left(check, finding.id, theme.dim());
            let alike = match entry.others {
                0 => String::new(),
                others => format!(" (and {others} alike)"),
            };
            let gone = if is_current { "" } else { "no more: " };
            let used = 14 + [process, check].iter().filter(|width| **width > 0).map(|width| width + 1).sum::<usize>();
            let room = usize::from(area.width).saturating_sub(used + alike.len() + gone.len());
            row.rest(&format!("{gone}{}{alike}", text::fit(&summary(finding, room), room)), dim(theme.text()));
        }
    }
}

impl Screen for OverviewScreen {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn compute(&mut self, model: &Model, ui: &mut Ui) {
        let all_processes = ui.scope(model).all_processes();
        self.machine = views::machine(model, &all_processes, lines::points(ui.size.0));
        let look = Look { by: By::Line, native: Native::None, ..Look::default() };
        self.hottest = views::cpu_lines(model, &all_processes, look);
        ui.update_findings(model);
        self.quiet = if ui.board.is_empty() { Quiet::compute(model, &all_processes) } else { Quiet::default() };
    }

    fn arrange(&mut self, _model: &Model, ui: &Ui) {
        let rows = (0..ui.board.entries().len()).collect();
        let key = |row: usize| ui.board.key(row).cloned().unwrap_or_default();
        self.listing.show(rows, key, height(&ui.board, ui.body()));
    }

    fn act(&mut self, action: Action, _model: &Model, ui: &Ui) -> Effect {
        if self.listing.step(action, height(&ui.board, ui.body())) {
            return Effect::Nothing;
        }
        match (action, self.selected(&ui.board).map(|entry| &entry.finding)) {
            (Action::Open, Some(finding)) => evidence(finding),
            _ => Effect::Nothing,
        }
    }

    fn hint(&self, action: Action, usual: &'static str, _model: &Model, ui: &Ui) -> &'static str {
        if action == Action::Open && ui.board.is_empty() { "" } else { usual }
    }

    fn is_empty(&self, model: &Model, ui: &Ui) -> bool {
        !ui.has_begun() || model.processes().all(|(_, state)| state.process.python.is_none())
    }

    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let parts = OverviewLayout::of(area, ui.board.entries().len());
        let (said, used) = if ui.board.is_empty() {
            (parts.findings, draw_none(model, ui, parts.findings, buf))
        } else {
            self.draw_findings(model, ui, parts.findings, buf);
            let entry = self.selected(&ui.board);
            (parts.detail, entry.map_or(0, |entry| draw_detail(entry, ui, parts.detail, buf)))
        };
        let rest = Rect { y: said.y + used, height: said.height - used, ..said };
        // Without findings, there is room for what might be worth a look.
        let for_others = self.quiet.lines(rest.height.saturating_sub(hottest::LEAST));
        let for_lines = rest.height - for_others;
        let height = if for_others > 0 { for_lines.min(hottest::FEW) } else { for_lines };
        hottest::draw(&self.hottest, model, ui, Rect { height, ..rest }, buf);
        self.quiet.draw(model, ui, Rect { y: rest.y + height, height: for_others, ..rest }, buf);
        lines::draw(&self.machine, model, ui, below(parts.machine), buf);
    }
}

/// The area below a blank line.
fn below(area: Rect) -> Rect {
    let above = area.height.min(1);
    Rect { y: area.y + above, height: area.height - above, ..area }
}

/// The number of rows for findings.
fn height(board: &Board, body: Rect) -> usize {
    usize::from(OverviewLayout::of(body, board.entries().len()).findings.height.saturating_sub(1))
}

/// Returns the number of rows that it used.
fn draw_detail(entry: &Entry, ui: &Ui, whole: Rect, buf: &mut Buffer) -> u16 {
    let area = below(whole);
    let width = area.width.saturating_sub(4);
    let seen = text::wrap(&entry.finding.detail, width.into());
    let advice = advice(&entry.finding, width.saturating_sub(LABEL).into());
    // If there is no room for both, the advice stays whole.
    let advice_rows = advice.len() as u16;
    let room = area.height.saturating_sub(advice_rows);
    let rows = room.min(seen.len() as u16);
    for (line, y) in seen.iter().zip(0..rows) {
        let is_cut = y + 1 == rows && seen.len() > rows.into();
        put(buf, area, 3, y, &format!("{line}{}", if is_cut { " …" } else { "" }), ui.theme.text());
    }
    for ((label, line), y) in advice.zip(rows..) {
        put(buf, area, 3, y, label, ui.theme.dim());
        put(buf, area, 3 + LABEL, y, &line, ui.theme.text());
    }
    (1 + rows + advice_rows).min(whole.height)
}

/// Draws what there is to say without findings. Returns the number of rows that it used.
fn draw_none(model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) -> u16 {
    let theme = ui.theme;
    put(buf, area, 1, 0, &format!("No finding {}.", ui.when(Reach::Window)), theme.good());
    let width = usize::from(area.width).saturating_sub(2);
    let mut y = 2;
    for refusal in model.meta().refusals() {
        for line in text::wrap(&refusal, width) {
            put(buf, area, 1, y, &line, theme.warning());
            y += 1;
        }
    }
    let is_refused = |family: Family| model.meta().refused.iter().any(|refused| refused.family == family.name());
    let off = Family::ALL.into_iter().filter(|family| !model.is_on(*family) && !is_refused(*family));
    let off: Vec<Family> = off.collect();
    let Some(first) = off.first() else { return y.min(area.height) };
    let words = format!(
        "Not watched: {}. {}",
        off.iter().map(|family| family.name()).collect::<Vec<_>>().join(", "),
        ui.how_to_see(*first)
    );
    for line in text::wrap(&words, width) {
        put(buf, area, 1, y, &line, theme.dim());
        y += 1;
    }
    y.min(area.height)
}
