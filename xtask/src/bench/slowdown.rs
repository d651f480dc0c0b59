//! By how much a program is slower while it is watched.

use std::process::Command;

use anyhow::{Context, Result};

use super::{Setting, overhead, table::Table};
use crate::{
    process::{output, progress},
    repo,
};

const ROUNDS: &str = "6";
/// Who watches, and the most that the work may take, of what it takes by itself.
const WATCHERS: [(&str, Option<f64>); 3] = [("nothing", None), ("pyobs-cpu", Some(1.005)), ("pyobs", Some(1.01))];

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Slowdown at 99 Hz",
        "How many times as long the work of `../shared/bench/overhead.py` takes while it is watched. Two twins of the program take\n\
         turns of five thousandths of a second, 1,600 times, then the other one is watched (`xtask/src/bench/twins.py`): a machine\n\
         whose speed changes hurts both. The mean of so many such rounds, and twice its standard error on either side. `nothing`\n\
         watches nothing, and a goal is what a watcher slows the program down beyond that: `pyobs-cpu`, which takes whole\n\
         stacks only, as py-spy does, by 0.5 % at the most; `pyobs`, which takes waits, the GIL and memory too, as it does by\n\
         default, by what its default `--budget` is.",
        &["workload", "watched by", "slowdown", "from", "to", "rounds"],
    );
    let profilers = overhead::profilers(setting)?;
    let watchers = WATCHERS.map(|(name, most)| {
        let found = profilers.iter().find(|(known, ..)| *known == name).context("no such profiler");
        found.map(|(_, command, shown)| (name, most, command, shown))
    });
    let watchers = watchers.into_iter().collect::<Result<Vec<_>>>()?;
    for workload in overhead::WORKLOADS {
        progress(format!("slowdown of the workload {workload}: about seven minutes"));
        let python = setting.python(overhead::VERSION)?;
        let mut twins = Command::new(python);
        twins.arg(repo::root().join("xtask/src/bench/twins.py")).arg(setting.shared.join("bench/overhead.py"));
        twins.args([workload, ROUNDS]).args(watchers.iter().map(|(_, _, command, _)| command));
        let said = output(&mut twins)?;
        let all: Vec<Vec<f64>> = serde_json::from_str(&said).with_context(|| format!("twins.py said {said:?}"))?;
        let nothing = all.first().map_or(1.0, |rounds| around_mean(rounds)[1]);
        for (rounds, (name, most, _, shown)) in all.iter().zip(&watchers) {
            let [low, mean, high] = around_mean(rounds);
            let figures = [mean, low, high].map(|figure| format!("{figure:.4}"));
            let count = rounds.len().to_string();
            table.row([vec![workload.to_owned(), (*name).to_owned()], figures.to_vec(), vec![count]].concat(), shown);
            if let Some(most) = most {
                table.at_most(&format!("{workload}: slowdown by {name} beyond `nothing`"), mean / nothing, *most);
            }
        }
    }
    Ok(table)
}

/// The mean, and twice its standard error below and above.
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
    fn the_error_of_a_mean_is_known() {
        // Of 2, 4, 4, 4, 5, 5, 7, 9 the standard deviation is the root of 32/7.
        let [low, mean, high] = around_mean(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        let error = (32.0_f64 / 7.0 / 8.0).sqrt();
        assert!((mean - 5.0).abs() < 1e-9);
        assert!((high - mean - 2.0 * error).abs() < 1e-9 && (mean - low - 2.0 * error).abs() < 1e-9);
    }
}
