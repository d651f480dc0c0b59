//! One section of docs/BENCHMARKS.md: a table of medians, and the goals that it is measured against. Its single runs go
//! to docs/BENCHMARKS-RAW.md.

use anyhow::Result;

use super::machine;
use crate::process::progress;

pub(super) struct Table {
    title: &'static str,
    note: &'static str,
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
    raw: Raw,
    remarks: Vec<String>,
    goals: Vec<Goal>,
}

/// Single runs.
#[derive(Default)]
struct Raw {
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

struct Goal {
    sentence: String,
    met: bool,
}

impl Table {
    /// The last column is always the command.
    pub(super) fn new(title: &'static str, note: &'static str, columns: &'static [&'static str]) -> Self {
        Self { title, note, columns, rows: Vec::new(), raw: Raw::default(), remarks: Vec::new(), goals: Vec::new() }
    }

    /// Adds columns for a table of single runs, which also ends with the command.
    pub(super) fn with_raw(mut self, columns: &'static [&'static str]) -> Self {
        self.raw.columns = columns;
        self
    }

    pub(super) fn row(&mut self, cells: Vec<String>, command: &str) {
        progress(cells.join("  "));
        self.rows.push(with_command(cells, command));
    }

    /// A single run.
    pub(super) fn raw_row(&mut self, cells: Vec<String>, command: &str) {
        progress(cells.join("  "));
        self.raw.rows.push(with_command(cells, command));
    }

    /// A sentence below the table.
    pub(super) fn remark(&mut self, sentence: String) {
        self.remarks.push(sentence);
    }

    pub(super) fn at_most(&mut self, what: &str, value: f64, limit: f64) {
        self.goal(format!("{what}: {value:.3}, at most {limit}"), value <= limit);
    }

    pub(super) fn at_least(&mut self, what: &str, value: f64, limit: f64) {
        self.goal(format!("{what}: {value:.3}, at least {limit}"), value >= limit);
    }

    pub(super) fn goal(&mut self, sentence: String, met: bool) {
        self.goals.push(Goal { sentence, met });
    }

    pub(super) fn markdown(&self) -> Result<String> {
        let mut text = format!("## {}\n\n{}\nMeasured {}.\n\n", self.title, self.note, machine::when()?);
        text += &grid(self.columns, &self.rows);
        text.push('\n');
        for remark in &self.remarks {
            text += &format!("- {remark}\n");
        }
        for goal in &self.goals {
            text += &format!("- {}: {}\n", if goal.met { MET } else { MISSED }, goal.sentence);
        }
        Ok(text)
    }

    /// The section of the single runs; `None` if there are none.
    pub(super) fn raw_markdown(&self) -> Result<Option<String>> {
        if self.raw.rows.is_empty() {
            return Ok(None);
        }
        let heading = format!("## {}\n\nMeasured {}.\n\n", self.title, machine::when()?);
        Ok(Some(heading + &grid(self.raw.columns, &self.raw.rows)))
    }
}

/// The start of a goal's line.
pub(super) const MET: &str = "met";
pub(super) const MISSED: &str = "**missed**";

fn with_command(cells: Vec<String>, command: &str) -> Vec<String> {
    cells.into_iter().chain([format!("`{command}`")]).collect()
}

fn grid(columns: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = line(columns.iter().copied().chain(["command"]));
    text += &line(std::iter::repeat_n("---", columns.len() + 1));
    for row in rows {
        // An unescaped bar inside a command would end its cell.
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text += &line(cells.iter().map(String::as_str));
    }
    text
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<&str> = cells.collect();
    format!("| {} |\n", cells.join(" | "))
}

/// The median; 0 for an empty list.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_two() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(vec![]).abs() < 1e-9);
    }

    #[test]
    fn a_missed_goal_stands_out_and_a_bar_stays_in_its_cell() {
        let mut table = Table::new("T", "n", &["a"]);
        table.row(vec!["1|2".to_owned()], "x | y");
        table.at_most("cost", 2.0, 1.0);
        let text = table.markdown().unwrap();
        assert!(text.contains("| 1\\|2 | `x \\| y` |"), "{text}");
        assert!(text.contains("**missed**: cost: 2.000, at most 1"), "{text}");
    }
}
