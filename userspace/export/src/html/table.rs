//! Tables that the page's script sorts and filters.

use std::io::Write;

use pyobs_model::Nanos;
use pyobs_model::number::{grouped, size, time};

use super::text;
use crate::Error;

/// No longer texts are kept on one line, so that their columns are not squeezed.
const SHORT: usize = 16;

pub(super) struct Table {
    id: &'static str,
    title: &'static str,
    columns: Vec<&'static str>,
    /// Of each column whether it has numbers.
    numbers: Vec<bool>,
    rows: String,
    count: usize,
    /// A sentence below the title.
    note: String,
}

/// Something in a table, as markup, and the number that it is sorted by.
pub(super) struct Cell {
    shown: String,
    value: Option<f64>,
}

impl Cell {
    pub(super) fn text(shown: &str) -> Self {
        Self { shown: text(shown), value: None }
    }

    /// A name for something, as it is.
    pub(super) fn number(number: u64) -> Self {
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
}

impl Table {
    pub(super) fn new(id: &'static str, title: &'static str, columns: &[&'static str]) -> Self {
        Self {
            id,
            title,
            columns: columns.to_vec(),
            numbers: vec![false; columns.len()],
            rows: String::new(),
            count: 0,
            note: String::new(),
        }
    }

    pub(super) fn note(mut self, note: String) -> Self {
        self.note = note;
        self
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.count += 1;
        self.rows += "<tr>";
        for (cell, is_number) in cells.into_iter().zip(&mut self.numbers) {
            *is_number |= cell.value.is_some();
            let shown = cell.shown;
            self.rows += &match cell.value {
                Some(value) => format!("<td class=\"n\" data-v=\"{value}\">{shown}</td>"),
                None if shown.chars().count() <= SHORT => format!("<td class=\"short\">{shown}</td>"),
                None => format!("<td>{shown}</td>"),
            };
        }
        self.rows += "</tr>\n";
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> Result<(), Error> {
        let Self { id, title, columns, numbers, rows, count, note } = self;
        let head = |(column, is_number): (&&str, &bool)| {
            let class = if *is_number { " class=\"n\"" } else { "" };
            format!("<th{class}>{column}</th>")
        };
        let heads: String = columns.iter().zip(numbers).map(head).collect();
        let body = if *count == 0 {
            "<p>Nothing was seen.</p>".to_owned()
        } else {
            format!("<table><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table>")
        };
        let note = if note.is_empty() { String::new() } else { format!("<p class=\"note\">{}</p>", text(note)) };
        let section = format!("<section id=\"{id}\"><h2>{title} <small>{count}</small></h2>{note}{body}</section>\n");
        Ok(out.write_all(section.as_bytes())?)
    }
}
