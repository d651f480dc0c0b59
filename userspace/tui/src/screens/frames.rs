//! Lines or functions with their own and total shares, or functions with counted calls.

mod detail;
mod eval;

use pyobs_model::views::{self, By, FrameRow, Group};
use pyobs_model::{Family, FrameId, Model, ProcessRef};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::detail::FrameDetail;
use self::eval::EvalTable;
use super::names::{draw_frame, group_label, matches};
use super::stacks;
use crate::binding::{Action, BY, Binding, GROUP, Keys, MEASURE, SORT_NEXT, SORT_PREVIOUS, bind};
use crate::filter::Filter;
use crate::input::Key::{Char, Enter};
use crate::jump::{Destination, Effect, Jump};
use crate::paint::{HeadingPainter, RowPainter};
use crate::screen::{About, Chip, Screen};
use crate::table::{AnyList, List, NoDetail, Saved, Sorted, Table};
use crate::ui::Ui;
use crate::{number, text};

const DETAIL: &str = "callers, callees and lines of the frame";
const FOLD: Binding =
    bind(&[Char('f')], Action::Fold, "native", "native (n:), kernel (k:): of libraries, none, or all");
const CALLS: Binding = bind(&[Char('c')], Action::Calls, "calls", "counted calls, or samples");
const GROUPS: [Group; 6] = [Group::None, Group::Process, Group::Command, Group::Container, Group::User, Group::Task];

static ABOUT: About = About {
    key: '2',
    title: "Frames",
    short_title: "Frames",
    filter: stacks::FILTER,
    keys: &[
        Keys {
            title: "Frames",
            bindings: &[
                bind(&[Enter], Action::Open, "detail", DETAIL),
                bind(&[Char('o')], Action::SortOwn, "", "sort by own samples, or time"),
                bind(&[Char('t')], Action::SortTotal, "", "sort by total samples, or time"),
                bind(&[Char('n')], Action::SortName, "", "sort by name"),
                SORT_NEXT,
                SORT_PREVIOUS,
                MEASURE,
                BY,
                GROUP,
                FOLD,
                CALLS,
            ],
        },
        Keys {
            title: "A frame",
            bindings: &[
                bind(&[Enter], Action::Open, "follow", "go on to this caller, callee or line"),
                MEASURE,
                BY,
                FOLD,
            ],
        },
        Keys { title: "Calls", bindings: &[SORT_NEXT, SORT_PREVIOUS, GROUP, CALLS] },
    ],
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FrameSort {
    #[default]
    Own,
    Total,
    Name,
}

/// A frame, of one process or of all.
type FrameKey = (Option<ProcessRef>, FrameId);

/// The table of frames with their samples, or what else they weigh.
#[derive(Default)]
struct FrameTable {
    total: u64,
}

impl Table for FrameTable {
    type Row = FrameRow;
    type Key = FrameKey;
    type Sort = FrameSort;
    type Detail = NoDetail;

    const SORTS: &'static [FrameSort] = &[FrameSort::Own, FrameSort::Total, FrameSort::Name];

    fn compute(&mut self, model: &Model, ui: &Ui, _: Option<&mut NoDetail>) -> Option<Vec<FrameRow>> {
        let scope = ui.scope(model);
        let view = views::frames(model, &scope.selection, scope.look);
        self.total = view.total;
        Some(view.rows)
    }

    fn key(row: &FrameRow) -> FrameKey {
        (row.process, row.frame)
    }

    fn matches(&self, row: &FrameRow, filter: &Filter, model: &Model) -> bool {
        model.frame(row.frame).is_some_and(|frame| matches(frame, filter))
    }

    fn sort(&self, shown: &mut [usize], rows: &[FrameRow], sort: FrameSort, model: &Model) {
        match sort {
            FrameSort::Own => {}
            FrameSort::Total => shown.sort_by_key(|index| std::cmp::Reverse((rows[*index].total, rows[*index].own))),
            FrameSort::Name => shown.sort_by(|a, b| {
                let frame = |index: &usize| model.frame(rows[*index].frame);
                let key = |index| frame(index).map(|f| (text::head(&f.function, 256), f.file.as_deref(), f.line));
                key(a).cmp(&key(b))
            }),
        }
    }

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<FrameSort>, ui: &Ui) {
        let widths = FrameWidths::of(width, ui.look.group.splits_processes());
        head.right(8, "OWN %", sorted.descending(FrameSort::Own));
        head.skip(widths.bar);
        head.right(8, "TOTAL %", sorted.descending(FrameSort::Total));
        head.skip(widths.bar);
        head.right(widths.samples, if sorted.0 == FrameSort::Total { "TOTAL" } else { "OWN" }, None);
        head.left(widths.process, stacks::group_title(ui.look.group), None);
        head.left(widths.function, "FUNCTION", sorted.ascending(FrameSort::Name));
        head.left(usize::MAX, if ui.look.by == By::Line { "LINE" } else { "DEFINED AT" }, None);
    }

    fn draw_row(&self, row: &mut RowPainter<'_>, line: &FrameRow, width: u16, sort: FrameSort, model: &Model, ui: &Ui) {
        let Some(frame) = model.frame(line.frame) else { return };
        let (widths, theme) = (FrameWidths::of(width, ui.look.group.splits_processes()), ui.theme);
        let own = number::share(line.own, self.total);
        let total = number::share(line.total, self.total);
        row.right(8, &number::percent(own), if line.own == 0 { theme.dim() } else { theme.strong() });
        row.bar(widths.bar, own / 100.0, theme.own());
        row.right(8, &number::percent(total), theme.text());
        row.bar(widths.bar, total / 100.0, theme.total());
        let amount = if sort == FrameSort::Total { line.total } else { line.own };
        row.right(widths.samples, &number::amount(ui.look.weight, amount), theme.dim());
        let group = line.process.map(|process| group_label(model, ui.look.group, process));
        row.left(widths.process, &group.unwrap_or_default(), theme.dim());
        draw_frame(row, widths.function, frame, ui.look.by, theme);
    }
}

/// How rows can be grouped: by task only if there are tasks.
fn groups(model: &Model) -> &'static [Group] {
    if model.tasks().is_empty() { &GROUPS[..GROUPS.len() - 1] } else { &GROUPS }
}

/// What `save` returns.
#[derive(Default)]
struct OpenFrames {
    /// The last one is in sight. Closing it goes back to the one before.
    details: Vec<FrameDetail>,
    shows_calls: bool,
}

#[derive(Default)]
pub(super) struct FramesScreen {
    frames: List<FrameTable>,
    eval: List<EvalTable>,
    open: OpenFrames,
}

impl Screen for FramesScreen {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn keys(&self) -> &'static Keys {
        match (self.depth(), self.open.shows_calls) {
            (0, false) => &ABOUT.keys[0],
            (0, true) => &ABOUT.keys[2],
            _ => &ABOUT.keys[1],
        }
    }

    fn family(&self, ui: &Ui) -> Option<Family> {
        if self.open.shows_calls { Some(Family::Eval) } else { ui.look.weight.families().first().copied() }
    }

    fn list(&self) -> Option<&dyn AnyList> {
        Some(if self.open.shows_calls { &self.eval } else { &self.frames })
    }

    fn list_mut(&mut self) -> Option<&mut dyn AnyList> {
        Some(if self.open.shows_calls { &mut self.eval } else { &mut self.frames })
    }

    fn compute(&mut self, model: &Model, ui: &mut Ui) {
        if let Some(detail) = self.open.details.last_mut() {
            detail.compute(model, &ui.scope(model));
            detail.read_sources(model, &ui.sources);
        } else if let Some(list) = self.list_mut() {
            list.compute(model, ui);
        }
    }

    fn arrange(&mut self, model: &Model, ui: &Ui) {
        let filter = ui.filter(ABOUT.filter);
        if let Some(detail) = self.open.details.last_mut() {
            detail.arrange(ui.body().height.into());
        } else if let Some(list) = self.list_mut() {
            list.arrange(model, ui, filter);
        }
    }

    fn act(&mut self, action: Action, model: &Model, ui: &Ui) -> Effect {
        const DETAILS_MAX: usize = 64;
        if action == Action::Group && self.depth() == 0 {
            return stacks::next_group(ui.look, groups(model));
        }
        if let Some(look) = stacks::look_after(action, model, ui.look) {
            return Effect::Look(look);
        }
        let next = if let Some(detail) = self.open.details.last_mut() {
            detail.act(action, ui.body().height.into())
        } else {
            match action {
                Action::Calls => self.open.shows_calls = !self.open.shows_calls,
                _ if self.open.shows_calls => return self.eval.act(action, ui),
                Action::SortOwn => return self.frames.sort_by(FrameSort::Own),
                Action::SortTotal => return self.frames.sort_by(FrameSort::Total),
                Action::SortName => return self.frames.sort_by(FrameSort::Name),
                Action::Open => {}
                _ => return self.frames.act(action, ui),
            }
            if action != Action::Open {
                return Effect::View;
            }
            // The detail is of one process, or of all.
            let is_one = ui.look.group == Group::Process;
            self.frames.selected().map(|(process, frame)| FrameDetail::new(process.filter(|_| is_one), *frame))
        };
        let Some(next) = next else { return Effect::Nothing };
        if self.open.details.len() == DETAILS_MAX {
            self.open.details.remove(0);
        }
        self.open.details.push(next);
        Effect::View
    }

    fn hint(&self, action: Action, usual: &'static str, model: &Model, _ui: &Ui) -> &'static str {
        match action {
            Action::Calls if self.open.shows_calls => "samples",
            Action::Calls if !model.is_on(Family::Eval) => "",
            _ => stacks::hint(action, usual, model),
        }
    }

    fn chips(&self, ui: &Ui) -> Vec<Chip> {
        if self.open.shows_calls && self.depth() == 0 {
            return vec![Chip(4, "calls")];
        }
        let chips = stacks::chips(ui.look, stacks::native(ui.look.native)).into_iter();
        chips.chain(stacks::group_chip(ui.look, &GROUPS)).collect()
    }

    fn is_empty(&self, _model: &Model, _ui: &Ui) -> bool {
        self.depth() == 0 && self.list().is_some_and(AnyList::is_empty)
    }

    fn empty(&self, ui: &Ui) -> Option<(&'static str, &'static str)> {
        if self.open.shows_calls {
            return Some(("calls", "No function that is watched was called."));
        }
        stacks::empty(ui.look.weight)
    }

    fn depth(&self) -> usize {
        self.open.details.len()
    }

    fn close(&mut self, _ui: &Ui) -> bool {
        self.open.details.pop().is_some()
    }

    fn shows(&self, destination: Destination) -> bool {
        matches!(destination, Destination::Frame(_) | Destination::Thread(_) | Destination::Process)
    }

    /// Opens the frame's detail, or shows the table.
    fn jump(&mut self, jump: Jump) {
        self.open.shows_calls = false;
        if let Destination::Frame(frame) = jump.destination {
            self.open.details.push(FrameDetail::new(jump.process, frame));
        }
    }

    fn save(&mut self) -> Saved {
        let shows_calls = self.open.shows_calls;
        Box::new(std::mem::replace(&mut self.open, OpenFrames { details: Vec::new(), shows_calls }))
    }

    fn restore(&mut self, saved: Saved) {
        if let Ok(open) = saved.downcast::<OpenFrames>() {
            self.open = *open;
        }
    }

    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        if let Some(detail) = self.open.details.last() {
            detail.draw(model, ui, area, buf);
        } else if let Some(list) = self.list() {
            list.draw(model, ui, area, buf);
        }
    }
}

pub(super) struct FrameWidths {
    pub(super) bar: usize,
    pub(super) samples: usize,
    pub(super) process: usize,
    pub(super) function: usize,
}

impl FrameWidths {
    pub(super) fn of(width: u16, split: bool) -> Self {
        let (bar, samples) = match width {
            0..76 => (0, 0),
            76..110 => (6, 0),
            110..180 => (10, 9),
            _ => (16, 10),
        };
        let gaps = 2 + 2 * usize::from(bar > 0) + usize::from(samples > 0) + 1;
        let left = usize::from(width).saturating_sub(16 + 2 * bar + samples + gaps);
        let process = if split { left / 4 } else { 0 };
        let function = (left - process) * 45 / 100;
        Self { bar, samples, process, function }
    }
}
