//! Measures how many times as long work takes while it is watched, by two twins, one of which is watched (`twins.py`).

use std::{path::Path, process::Command};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{script, table::Table};
use crate::process::output;

pub(super) const COLUMNS: &[&str] = &["workload", "watched by", "slowdown", "from", "to", "rounds", "peak RSS (MiB)"];
/// The milliseconds of a turn, each twin's turns in a round, and the number of rounds.
pub(super) type Rounds = [u32; 3];

pub(super) struct Watcher {
    pub(super) name: &'static str,
    /// How many times as long the work may take at most.
    pub(super) most: Option<f64>,
    pub(super) command: String,
    /// The command as a user would type it.
    pub(super) shown: String,
}

/// The effect of one watcher.
#[derive(Deserialize)]
struct Watched {
    /// For each round, how many times as long the work took.
    slower: Vec<f64>,
    peak_rss_bytes: f64,
}

/// Adds a row and a goal for each watcher; the first watches nothing. `script` has the work, and `workload` is its name
/// there. Returns the largest resident set of any watcher, in MiB.
pub(super) fn compare(
    table: &mut Table,
    python: &Path,
    (program, workload): (&Path, &str),
    rounds: Rounds,
    watchers: &[Watcher],
) -> Result<f64> {
    let mut twins = Command::new(python);
    twins.arg(script("twins.py")).arg(program).arg(workload);
    twins.args(rounds.map(|count| count.to_string())).args(watchers.iter().map(|watcher| &watcher.command));
    let printed = output(&mut twins)?;
    let all: Vec<Watched> = serde_json::from_str(&printed).with_context(|| format!("twins.py printed {printed:?}"))?;
    let nothing = all.first().map_or(1.0, |watched| around_mean(&watched.slower)[1]);
    for (watched, watcher) in all.iter().zip(watchers) {
        let [low, mean, high] = around_mean(&watched.slower);
        let figures = [mean, low, high].map(|figure| format!("{figure:.4}"));
        let more = [watched.slower.len().to_string(), format!("{:.0}", mib(watched))];
        table.row([&[workload.to_owned(), watcher.name.to_owned()], &figures[..], &more].concat(), &watcher.shown);
        if let Some(most) = watcher.most {
            let what = format!("{workload}: slowdown by {} beyond `nothing`", watcher.name);
            table.at_most(&what, mean / nothing, most);
        }
    }
    Ok(all.iter().map(mib).fold(0.0, f64::max))
}

fn mib(watched: &Watched) -> f64 {
    watched.peak_rss_bytes / 1024.0 / 1024.0
}

/// The mean, and twice its standard error below and above it.
fn around_mean(rounds: &[f64]) -> [f64; 3] {
    let count = rounds.len() as f64;
    let mean = rounds.iter().sum::<f64>() / count;
    let squares: f64 = rounds.iter().map(|round| (round - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    [mean - 2.0 * error, mean, mean + 2.0 * error]
}

#[cfg(test)]
mod tests {
    use super::around_mean;

    #[test]
    fn the_error_of_a_mean_is_right() {
        // The standard deviation of 2, 4, 4, 4, 5, 5, 7, 9 is the root of 32/7.
        let [low, mean, high] = around_mean(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        let error = (32.0_f64 / 7.0 / 8.0).sqrt();
        assert!((mean - 5.0).abs() < 1e-9);
        assert!((high - mean - 2.0 * error).abs() < 1e-9 && (mean - low - 2.0 * error).abs() < 1e-9);
    }
}
