//! What threads wait for: how processes share the GIL, then a table of sleeps or of waits for the GIL.

mod detail;
mod shares;
mod tables;
mod wait;

use std::cmp::Reverse;

use pyobs_model::findings::Target;
use pyobs_model::views::{self, Group, Weight};
use pyobs_model::{Family, Model, Nanos, Reason, Selection, Tid};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::binding::{Action, BY, FOLLOW, GROUP, Keys, SORT_NEXT, SORT_PREVIOUS, bind};
use crate::filter::Filter;
use crate::input::Key;
use crate::jump::{Destination, Effect, Jump};
use crate::paint::{HeadingPainter, RowPainter};
use crate::screen::{About, Chip, Screen};
use crate::screens::stacks;
use crate::table::{self, AnyList, List, Saved, Sorted, Table};
use crate::text;
use crate::ui::Ui;
use detail::WaitDetail;
use shares::GilShares;
use wait::{WaitCause, WaitKey, WaitRow, WaitSort};

const GROUPS: [Group; 5] = [Group::None, Group::Process, Group::Command, Group::Container, Group::User];

static ABOUT: About = About {
    key: '4',
    title: "Waits",
    short_title: "Waits",
    filter: Some("waits"),
    keys: &[
        Keys {
            title: "Waits",
            bindings: &[
                bind(&[Key::Enter], Action::Open, "detail", "the stacks of the wait, and who ended it"),
                SORT_NEXT,
                SORT_PREVIOUS,
                bind(
                    &[Key::Char('m')],
                    Action::Measure,
                    "GIL waits",
                    "all waits, or those for the GIL and who held it",
                ),
                BY,
                GROUP,
            ],
        },
        Keys { title: "A wait", bindings: &[FOLLOW] },
    ],
};

/// What the rows stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WaitKind {
    #[default]
    Sleeps,
    Gil,
}

impl WaitKind {
    /// The weight that the rows add up to.
    fn weight(self) -> Weight {
        match self {
            Self::Sleeps => Weight::OffCpu,
            Self::Gil => Weight::Gil,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Sleeps => Self::Gil,
            Self::Gil => Self::Sleeps,
        }
    }
}

#[derive(Default)]
struct WaitTable {
    shown: WaitKind,
    shares: GilShares,
}

impl Table for WaitTable {
    type Row = WaitRow;
    type Key = WaitKey;
    type Sort = WaitSort;
    type Detail = WaitDetail;

    const SORTS: &'static [WaitSort] =
        &[WaitSort::Total, WaitSort::Count, WaitSort::Longest, WaitSort::Cause, WaitSort::Thread, WaitSort::Place];

    fn compute(&mut self, model: &Model, ui: &Ui, detail: Option<&mut WaitDetail>) -> Option<Vec<WaitRow>> {
        let scope = ui.scope(model);
        if let Some(detail) = detail {
            detail.compute(model, &scope);
            return None;
        }
        let (selection, by, group) = (&scope.selection, scope.look.by, scope.look.group);
        // The GIL belongs to the process, whichever of its threads is picked.
        let processes = Selection { tid: None, ..selection.clone() };
        let shares = views::gil_shares(model, &processes);
        let lines = match self.shown {
            WaitKind::Sleeps => views::sleeps(model, selection, by, group).into_iter().map(WaitRow::of_sleep).collect(),
            WaitKind::Gil => {
                let observed = |process| shares.get(&process).map_or(Nanos(0), |share| share.observed);
                let rows = views::gil_waits(model, selection, by, group).into_iter();
                rows.map(|row| WaitRow::of_gil(&row, observed(row.process))).collect()
            }
        };
        let unseen = if self.shown == WaitKind::Sleeps { model.loss().get(Reason::SleepUnseen) } else { 0 };
        self.shares = GilShares::new(model, &processes, shares, unseen);
        Some(lines)
    }

    fn key(row: &WaitRow) -> WaitKey {
        row.wait
    }

    fn matches(&self, line: &WaitRow, filter: &Filter, model: &Model) -> bool {
        line.matches(model, filter)
    }

    fn sort(&self, shown: &mut [usize], lines: &[WaitRow], sort: WaitSort, model: &Model) {
        let wait = |index: &usize| lines[*index].wait;
        match sort {
            WaitSort::Total => {}
            WaitSort::Count => shown.sort_by_key(|it| Reverse(lines[*it].times.count)),
            WaitSort::Longest => shown.sort_by_key(|it| Reverse(lines[*it].times.max)),
            WaitSort::Cause => shown.sort_by_key(|it| match wait(it).cause {
                WaitCause::Sleep { reason, .. } => (Some(reason), None),
                WaitCause::Gil { holder, .. } => (None, holder),
            }),
            WaitSort::Thread => shown.sort_by_key(|it| (wait(it).process, wait(it).tid)),
            WaitSort::Place => shown.sort_by_key(|it| {
                let frame = wait(it).frame.and_then(|frame| model.frame(frame));
                frame.map(|frame| (text::head(&frame.function, 256), frame.file.as_deref(), frame.line))
            }),
        }
    }

    /// The area below the shares of the GIL.
    fn place(&self, area: Rect, _ui: &Ui) -> Rect {
        let above = self.shares.height(area);
        Rect { y: area.y + above, height: area.height - above, ..area }
    }

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<WaitSort>, ui: &Ui) {
        match self.shown {
            WaitKind::Sleeps => tables::sleep_heading(head, width, sorted, ui.look.group),
            WaitKind::Gil => tables::gil_heading(head, width, sorted),
        }
    }

    fn draw_row(&self, row: &mut RowPainter<'_>, line: &WaitRow, width: u16, _: WaitSort, model: &Model, ui: &Ui) {
        match line.wait.cause {
            WaitCause::Sleep { .. } => tables::draw_sleep(row, line, width, model, ui),
            WaitCause::Gil { .. } => tables::draw_gil(row, line, width, model, ui),
        }
    }
}

pub(super) struct WaitsScreen {
    list: List<WaitTable>,
}

impl WaitsScreen {
    pub(super) fn new(model: &Model) -> Self {
        let has_sleeps = Weight::OffCpu.is_known(model) || !Weight::Gil.is_known(model);
        let shown = if has_sleeps { WaitKind::Sleeps } else { WaitKind::Gil };
        Self { list: List::new(WaitTable { shown, ..WaitTable::default() }) }
    }
}

impl Screen for WaitsScreen {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn family(&self, _ui: &Ui) -> Option<Family> {
        self.list.table.shown.weight().families().first().copied()
    }

    fn list(&self) -> Option<&dyn AnyList> {
        Some(&self.list)
    }

    fn list_mut(&mut self) -> Option<&mut dyn AnyList> {
        Some(&mut self.list)
    }

    fn act(&mut self, action: Action, model: &Model, ui: &Ui) -> Effect {
        match action {
            Action::Measure => {
                self.list.table.shown = self.list.table.shown.other();
                self.list.reset_selection();
                Effect::View
            }
            // A detail is of one thread.
            Action::Open if self.list.selected().is_some_and(|wait| wait.tid == Tid(0)) => Effect::Nothing,
            Action::Group => stacks::next_group(ui.look, &GROUPS),
            Action::By => stacks::look_after(action, model, ui.look).map_or(Effect::Nothing, Effect::Look),
            _ => self.list.act(action, ui),
        }
    }

    fn hint(&self, action: Action, usual: &'static str, _model: &Model, ui: &Ui) -> &'static str {
        match action {
            Action::Measure if self.list.table.shown == WaitKind::Gil => "all waits",
            Action::Open if self.depth() == 0 && ui.look.group.splits_processes() => "",
            _ => usual,
        }
    }

    fn chips(&self, ui: &Ui) -> Vec<Chip> {
        std::iter::once(stacks::by_chip(ui.look.by)).chain(stacks::group_chip(ui.look, &GROUPS)).collect()
    }

    fn empty(&self, _ui: &Ui) -> Option<(&'static str, &'static str)> {
        stacks::empty(self.list.table.shown.weight())
    }

    fn shows(&self, destination: Destination) -> bool {
        matches!(destination.target(), Some(Target::GilWaits(_)))
    }

    fn jump(&mut self, jump: Jump) {
        self.list.close();
        self.list.table.shown = WaitKind::Gil;
        if let Some(Target::GilWaits(tid)) = jump.destination.target() {
            self.list.seek(move |wait| jump.process == Some(wait.process) && wait.tid == tid, false);
        }
    }

    /// A waiting thread uses no CPU.
    fn weight(&self) -> Option<Weight> {
        Some(self.list.table.shown.weight())
    }

    fn save(&mut self) -> Saved {
        Box::new((self.list.table.shown, self.list.save()))
    }

    fn restore(&mut self, saved: Saved) {
        if let Ok(saved) = saved.downcast::<(WaitKind, Saved)>() {
            self.list.table.shown = saved.0;
            self.list.restore(saved.1);
        }
    }

    /// Draws the shares of the GIL.
    fn draw_above(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) -> Rect {
        let are_known = [Weight::OffCpu, Weight::Gil].iter().any(|weight| weight.is_known(model));
        if self.depth() > 0 || !ui.has_begun() || !are_known {
            return area;
        }
        self.list.table.shares.draw(model, ui, area, buf);
        self.list.table.place(area, ui)
    }

    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        match self.list.detail() {
            Some(detail) => table::Detail::draw(detail, model, ui, area, buf),
            None => self.list.draw_table(model, ui, area, area, buf),
        }
    }
}
