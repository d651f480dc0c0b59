//! Lists of rows: [`List`] is what all of them have in common, and [`Table`] is what each of them defines about its rows.

use std::any::Any;
use std::ops::Range;

use pyobs_model::Model;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::binding::Action;
use crate::filter::Filter;
use crate::jump::Effect;
use crate::list::{Listing, next_sort};
use crate::paint::{HeadingPainter, RowPainter, SortOrder};
use crate::ui::Ui;

/// The rows of one kind of list: how they are computed, filtered, sorted and drawn. The value holds what the rows share.
pub(crate) trait Table {
    type Row;
    /// Identifies a row, wherever it is in the list.
    type Key: Clone + PartialEq;
    type Sort: Copy + PartialEq + Default + 'static;
    type Detail: Detail<Self::Key> + 'static;

    const SORTS: &'static [Self::Sort];

    /// Computes the rows, and the open detail if there is one. `None` keeps the rows, for instance while a detail hides them.
    fn compute(&mut self, model: &Model, ui: &Ui, detail: Option<&mut Self::Detail>) -> Option<Vec<Self::Row>>;

    fn key(row: &Self::Row) -> Self::Key;

    fn matches(&self, row: &Self::Row, filter: &Filter, model: &Model) -> bool;

    /// Sorts the indices of the rows that are shown.
    fn sort(&self, shown: &mut [usize], rows: &[Self::Row], sort: Self::Sort, model: &Model);

    /// The indices of the rows to show, in order.
    fn shown(&self, rows: &[Self::Row], filter: Option<&Filter>, sort: Self::Sort, model: &Model) -> Vec<usize> {
        let is_shown = |index: &usize| filter.is_none_or(|filter| self.matches(&rows[*index], filter, model));
        let mut shown: Vec<usize> = (0..rows.len()).filter(is_shown).collect();
        self.sort(&mut shown, rows, sort, model);
        shown
    }

    /// Runs after the rows were arranged, to prepare what is drawn for the shown rows, or for those in sight.
    fn arranged(&mut self, _rows: &[Self::Row], _shown: &[usize], _in_sight: Range<usize>, _model: &Model, _ui: &Ui) {}

    /// The area for the heading and the rows.
    fn place(&self, area: Rect, _ui: &Ui) -> Rect {
        area
    }

    fn draw_heading(&self, heading: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<Self::Sort>, ui: &Ui);

    fn draw_row(
        &self,
        row: &mut RowPainter<'_>,
        line: &Self::Row,
        width: u16,
        sort: Self::Sort,
        model: &Model,
        ui: &Ui,
    );

    /// Draws what is around the rows. `last` is the line of the last row.
    fn draw_around(&self, _area: Rect, _last: Rect, _model: &Model, _ui: &Ui, _buf: &mut Buffer) {}
}

/// All about one row, on a page of its own.
pub(crate) trait Detail<Key>: Sized {
    fn of(key: Key) -> Option<Self>;
    fn arrange(&mut self, height: usize);
    fn act(&mut self, action: Action, height: usize) -> Effect;
    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer);
}

/// The detail type of lists whose rows have no details.
pub(crate) enum NoDetail {}

impl<Key> Detail<Key> for NoDetail {
    fn of(_: Key) -> Option<Self> {
        None
    }

    fn arrange(&mut self, _: usize) {}

    fn act(&mut self, _: Action, _: usize) -> Effect {
        Effect::Nothing
    }

    fn draw(&self, _: &Model, _: &Ui, _: Rect, _: &mut Buffer) {}
}

/// At this width, tables have all their columns.
const WIDEST: u16 = 1000;

/// The open details of a screen. Only the screen that saved them knows the type.
pub(crate) type Saved = Box<dyn Any>;

/// The current sort, for the heading.
#[derive(Clone, Copy)]
pub(crate) struct Sorted<S>(pub(crate) S);

impl<S: Copy + PartialEq> Sorted<S> {
    pub(crate) fn descending(&self, sort: S) -> Option<SortOrder> {
        (self.0 == sort).then_some(SortOrder::Descending)
    }

    pub(crate) fn ascending(&self, sort: S) -> Option<SortOrder> {
        (self.0 == sort).then_some(SortOrder::Ascending)
    }
}

/// A row to select once the rows are arranged.
struct PendingSelection<Key> {
    is_it: Box<dyn Fn(&Key) -> bool>,
    opens: bool,
}

/// A list of any kind of rows.
pub(crate) trait AnyList {
    fn compute(&mut self, model: &Model, ui: &Ui);
    fn arrange(&mut self, model: &Model, ui: &Ui, filter: Option<&Filter>);
    fn act(&mut self, action: Action, ui: &Ui) -> Effect;
    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer);
    fn is_empty(&self) -> bool;
    fn has_rows(&self) -> bool;
    /// The number of open details.
    fn depth(&self) -> usize;
    /// The texts of all shown rows, after the names of the columns. `None` while a detail is open.
    fn cells(&self, model: &Model, ui: &Ui) -> Option<Vec<Vec<String>>>;
    /// Closes the detail. Returns false if there is none.
    fn close(&mut self) -> bool;
    /// Closes the detail and returns it.
    fn save(&mut self) -> Saved;
    fn restore(&mut self, saved: Saved);
}

pub(crate) struct List<T: Table> {
    pub(crate) table: T,
    sort: T::Sort,
    rows: Vec<T::Row>,
    listing: Listing<T::Key>,
    detail: Option<T::Detail>,
    wanted: Option<PendingSelection<T::Key>>,
}

impl<T: Table + Default> Default for List<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Table> List<T> {
    pub(crate) fn new(table: T) -> Self {
        let (sort, listing) = (T::Sort::default(), Listing::default());
        Self { table, sort, rows: Vec::new(), listing, detail: None, wanted: None }
    }

    /// The number of rows in sight.
    fn height(&self, ui: &Ui) -> usize {
        usize::from(self.table.place(ui.body(), ui).height.saturating_sub(1))
    }

    pub(crate) fn sort_by(&mut self, sort: T::Sort) -> Effect {
        self.sort = sort;
        Effect::Rows
    }

    pub(crate) fn selected(&self) -> Option<&T::Key> {
        self.listing.selected()
    }

    /// Selects the first matching row when the rows are arranged next, and opens its detail if `opens`.
    pub(crate) fn seek(&mut self, is_it: impl Fn(&T::Key) -> bool + 'static, opens: bool) {
        self.wanted = Some(PendingSelection { is_it: Box::new(is_it), opens });
    }

    /// Selects the row of a key. If `opens`, opens its detail, even if there is no such row; otherwise closes any detail.
    pub(crate) fn go(&mut self, key: T::Key, opens: bool)
    where
        T::Key: 'static,
    {
        self.detail = opens.then(|| T::Detail::of(key.clone())).flatten();
        self.seek(move |other| *other == key, false);
    }

    fn open(&mut self, key: T::Key) {
        self.detail = T::Detail::of(key);
    }

    /// Selects the first matching row among the present ones.
    pub(crate) fn select_now(&mut self, ui: &Ui, is_it: impl Fn(&T::Key) -> bool) {
        self.listing.seek(self.height(ui), is_it);
    }

    /// Resets the selection.
    pub(crate) fn reset_selection(&mut self) {
        self.listing = Listing::default();
    }

    pub(crate) fn detail(&self) -> Option<&T::Detail> {
        self.detail.as_ref()
    }

    /// Draws the rows into `place`, a part of `area`.
    pub(crate) fn draw_table(&self, model: &Model, ui: &Ui, area: Rect, place: Rect, buf: &mut Buffer) {
        let mut heading = HeadingPainter::new(buf, place, ui.theme);
        self.table.draw_heading(&mut heading, place.width, Sorted(self.sort), ui);
        let mut last = Rect { height: 1, ..place };
        for (index, line, is_selected) in self.listing.in_sight(place, &ui.hit_areas) {
            let Some(of) = self.rows.get(index) else { continue };
            let mut row = RowPainter::new(buf, line);
            row.select(is_selected, ui.theme);
            self.table.draw_row(&mut row, of, place.width, self.sort, model, ui);
            last = line;
        }
        self.table.draw_around(area, last, model, ui, buf);
    }
}

impl<T: Table> AnyList for List<T> {
    fn compute(&mut self, model: &Model, ui: &Ui) {
        if let Some(rows) = self.table.compute(model, ui, self.detail.as_mut()) {
            self.rows = rows;
        }
    }

    fn arrange(&mut self, model: &Model, ui: &Ui, filter: Option<&Filter>) {
        if let Some(detail) = &mut self.detail {
            return detail.arrange(ui.body().height.into());
        }
        let height = self.height(ui);
        let shown = self.table.shown(&self.rows, filter, self.sort, model);
        self.listing.show(shown, |row| T::key(&self.rows[row]), height);
        if let Some(PendingSelection { is_it, opens }) = self.wanted.take() {
            self.listing.seek(height, &is_it);
            if let Some(key) = self.listing.selected().filter(|key| opens && is_it(key)) {
                self.open(key.clone());
                self.compute(model, ui);
                return self.arrange(model, ui, filter);
            }
        }
        let shown: Vec<usize> = self.listing.rows().collect();
        let in_sight = self.listing.visible(height);
        self.table.arranged(&self.rows, &shown, in_sight, model, ui);
    }

    fn act(&mut self, action: Action, ui: &Ui) -> Effect {
        if let Some(detail) = &mut self.detail {
            return detail.act(action, ui.body().height.into());
        }
        if self.listing.step(action, self.height(ui)) {
            return Effect::Nothing;
        }
        match (action, self.listing.selected()) {
            (Action::SortNext | Action::SortPrevious, _) if !T::SORTS.is_empty() => {
                self.sort_by(next_sort(T::SORTS, self.sort, action))
            }
            (Action::Open, Some(key)) => {
                self.open(key.clone());
                if self.detail.is_some() { Effect::View } else { Effect::Nothing }
            }
            _ => Effect::Nothing,
        }
    }

    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        if let Some(detail) = &self.detail {
            return detail.draw(model, ui, area, buf);
        }
        self.draw_table(model, ui, area, self.table.place(area, ui), buf);
    }

    fn is_empty(&self) -> bool {
        self.detail.is_none() && self.listing.is_empty()
    }

    fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    fn depth(&self) -> usize {
        usize::from(self.detail.is_some())
    }

    fn cells(&self, model: &Model, ui: &Ui) -> Option<Vec<Vec<String>>> {
        if self.detail.is_some() {
            return None;
        }
        let mut names = Vec::new();
        let mut heading = HeadingPainter::collecting(&mut names, ui.theme);
        self.table.draw_heading(&mut heading, WIDEST, Sorted(self.sort), ui);
        let rows = self.listing.rows().filter_map(|index| self.rows.get(index)).map(|of| {
            let mut cells = Vec::new();
            let mut row = RowPainter::collecting(&mut cells);
            self.table.draw_row(&mut row, of, WIDEST, self.sort, model, ui);
            cells
        });
        Some(std::iter::once(names).chain(rows).collect())
    }

    fn close(&mut self) -> bool {
        self.detail.take().is_some()
    }

    fn save(&mut self) -> Saved {
        Box::new(self.detail.take())
    }

    fn restore(&mut self, saved: Saved) {
        self.detail = saved.downcast().map_or(None, |detail| *detail);
    }
}
