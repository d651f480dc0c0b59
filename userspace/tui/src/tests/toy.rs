//! A toy screen with all that a screen of one list needs. docs/internals/extending.md refers to it.

use insta::assert_snapshot;
use pyobs_model::Model;

use super::{Bench, USUAL};
use crate::binding::{Keys, SORT_NEXT, SORT_PREVIOUS};
use crate::filter::Filter;
use crate::paint::{HeadingPainter, RowPainter};
use crate::screen::{About, Screen};
use crate::table::{AnyList, List, NoDetail, Sorted, Table};
use crate::ui::Ui;

static ABOUT: About = About {
    key: 'T',
    title: "Toy",
    short_title: "Toy",
    filter: Some("toys"),
    keys: &[Keys { title: "Toy", bindings: &[SORT_NEXT, SORT_PREVIOUS] }],
};

#[derive(Clone, Copy, Default, PartialEq)]
enum ToySort {
    #[default]
    Pid,
    Command,
}

#[derive(Default)]
struct ToyTable;

impl Table for ToyTable {
    type Row = (u32, String);
    type Key = u32;
    type Sort = ToySort;
    type Detail = NoDetail;

    const SORTS: &'static [ToySort] = &[ToySort::Pid, ToySort::Command];

    fn compute(&mut self, model: &Model, _ui: &Ui, _: Option<&mut NoDetail>) -> Option<Vec<Self::Row>> {
        let processes = model.processes().map(|(_, state)| &state.process);
        Some(processes.map(|process| (process.pid.0, process.command.to_string())).collect())
    }

    fn key(row: &Self::Row) -> u32 {
        row.0
    }

    fn matches(&self, row: &Self::Row, filter: &Filter, _model: &Model) -> bool {
        filter.matches(&row.1)
    }

    fn sort(&self, shown: &mut [usize], rows: &[Self::Row], sort: ToySort, _model: &Model) {
        match sort {
            ToySort::Pid => shown.sort_by_key(|it| rows[*it].0),
            ToySort::Command => shown.sort_by_key(|it| &rows[*it].1),
        }
    }

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, _width: u16, sorted: Sorted<ToySort>, _ui: &Ui) {
        head.right(8, "PID", sorted.ascending(ToySort::Pid));
        head.left(usize::MAX, "COMMAND", sorted.ascending(ToySort::Command));
    }

    fn draw_row(&self, row: &mut RowPainter<'_>, line: &Self::Row, _width: u16, _: ToySort, _model: &Model, ui: &Ui) {
        row.right(8, &line.0.to_string(), ui.theme.strong());
        row.rest(&line.1, ui.theme.text());
    }
}

#[derive(Default)]
struct ToyScreen(List<ToyTable>);

impl Screen for ToyScreen {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn list(&self) -> Option<&dyn AnyList> {
        Some(&self.0)
    }

    fn list_mut(&mut self) -> Option<&mut dyn AnyList> {
        Some(&mut self.0)
    }
}

#[test]
fn a_toy_screen_sorts_filters_and_has_help() {
    let mut bench = Bench::live(USUAL);
    bench.app.navigation.add(Box::<ToyScreen>::default());
    assert_snapshot!(bench.keys("TS").picture());
    assert!(!bench.keys("/gunicorn\n").picture().contains("idle.py"));
    assert!(bench.keys("/zzz\n").picture().contains("Nothing matches /gunicornzzz"));
    assert!(bench.keys("?").picture().contains("Toy"));
}
