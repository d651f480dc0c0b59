//! One section of docs/BENCHMARKS.md: a table, and the goals it is measured against.

use anyhow::Result;

use super::machine;
use crate::process::progress;

pub(super) struct Table {
    title: &'static str,
    note: &'static str,
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
    remarks: Vec<String>,
    goals: Vec<Goal>,
}

struct Goal {
    sentence: String,
    met: bool,
}

impl Table {
    /// The last column is always the command.
    pub(super) fn new(title: &'static str, note: &'static str, columns: &'static [&'static str]) -> Self {
        Self { title, note, columns, rows: Vec::new(), remarks: Vec::new(), goals: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: Vec<String>, command: &str) {
        progress(cells.join("  "));
        self.rows.push(cells.into_iter().chain([format!("`{command}`")]).collect());
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
        text += &line(self.columns.iter().copied().chain(["command"]));
        text += &line(std::iter::repeat_n("---", self.columns.len() + 1));
        for row in &self.rows {
            // A bar inside a command would end its cell.
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            text += &line(cells.iter().map(String::as_str));
        }
        text.push('\n');
        for remark in &self.remarks {
            text += &format!("- {remark}\n");
        }
        for goal in &self.goals {
            text += &format!("- {}: {}\n", if goal.met { "met" } else { "**missed**" }, goal.sentence);
        }
        Ok(text)
    }
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<&str> = cells.collect();
    format!("| {} |\n", cells.join(" | "))
}

/// The middle value; 0 of none.
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
