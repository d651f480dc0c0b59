//! Tables that the page's script sorts and filters.

use std::io::Write;

use maud::{Markup, Render, html};
use pyobs_model::Nanos;
use pyobs_model::number::{grouped, size, time};

use super::{INNER, put, text, write_around};
use crate::Error;

/// Texts up to this many characters do not wrap, so that wide neighbours cannot squeeze their column.
const SHORT: usize = 16;

pub(super) struct HtmlTable {
    id: &'static str,
    title: &'static str,
    rows: Vec<Vec<(&'static str, TableCell)>>,
    /// A sentence below the title.
    note: Option<String>,
}

/// The text that a cell shows, and the number to sort it by.
pub(super) struct TableCell {
    shown: String,
    value: Option<f64>,
}

impl TableCell {
    pub(super) fn text(shown: &str) -> Self {
        Self { shown: text(shown).into_owned(), value: None }
    }

    /// An identifier, such as a pid: without separators.
    pub(super) fn number(number: impl Into<u64>) -> Self {
        let number = number.into();
        Self { shown: number.to_string(), value: Some(number as f64) }
    }

    pub(super) fn count(count: u64) -> Self {
        Self { shown: grouped(count), value: Some(count as f64) }
    }

    pub(super) fn bytes(bytes: u64) -> Self {
        Self { shown: size(bytes), value: Some(bytes as f64) }
    }

    pub(super) fn share(share: f64) -> Self {
        Self { shown: format!("{:.1} %", share * 100.0), value: Some(share) }
    }

    /// A length in seconds.
    pub(super) fn time(seconds: f64) -> Self {
        Self { shown: time(Nanos::from_secs_f64(seconds)), value: Some(seconds) }
    }

    /// A moment, in seconds.
    pub(super) fn at(seconds: Option<f64>) -> Self {
        Self { shown: seconds.map(|at| format!("{at:.3} s")).unwrap_or_default(), value: seconds }
    }

    /// An empty cell for a value that is not known.
    pub(super) fn optional<T>(value: Option<T>, cell: impl FnOnce(T) -> Self) -> Self {
        value.map_or_else(|| Self::text(""), cell)
    }
}

impl Render for TableCell {
    fn render(&self) -> Markup {
        let is_short = || self.shown.chars().count() <= SHORT;
        let class = if self.value.is_some() { Some("n") } else { is_short().then_some("short") };
        html! { td class=[class] data-v=[self.value] { (self.shown) } }
    }
}

impl HtmlTable {
    /// `cells` gives a row's cells with the titles of their columns.
    pub(super) fn new<R, const N: usize>(
        id: &'static str,
        title: &'static str,
        rows: &[R],
        cells: impl Fn(&R) -> [(&'static str, TableCell); N],
    ) -> Self {
        Self { id, title, rows: rows.iter().map(|row| cells(row).into()).collect(), note: None }
    }

    pub(super) fn note(self, note: String) -> Self {
        Self { note: Some(note), ..self }
    }

    fn head(&self) -> Markup {
        let is_numeric = |at: usize| self.rows.iter().any(|row| row[at].1.value.is_some());
        let columns = self.rows.iter().take(1).flatten().enumerate();
        html! { tr { @for (at, (column, _)) in columns { th class=[is_numeric(at).then_some("n")] { (column) } } } }
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> Result<(), Error> {
        let section = html! {
            section id=(self.id) {
                h2 { (self.title) " " small { (self.rows.len()) } }
                @if let Some(note) = &self.note { p.note { (text(note)) } }
                @if self.rows.is_empty() { p { "Nothing was seen." } }
                @else { table { thead { (self.head()) } tbody { (INNER) } } }
            }
        };
        write_around(section, out, |out| {
            self.rows.iter().try_for_each(|row| put(html! { tr { @for (_, cell) in row { (cell) } } }, out))
        })
    }
}
