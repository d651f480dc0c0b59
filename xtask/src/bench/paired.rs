//! Compares the cost of work while it is watched with the cost just before and just after (`paired.py`).

use std::{path::Path, process::Command};

use anyhow::{Context, Result};

use super::{Setting, record::shown, script, table::median};
use crate::{process::output, repo};

/// The number of rounds, and the seconds of each part.
pub(super) type Rounds = (u32, &'static str);
pub(super) const USUAL: Rounds = (15, "1.0");

/// The seconds that the same work took in a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) without: f64,
    pub(super) with: f64,
}

/// The rounds of each watcher. `workload` is one of the script's, or the words of a command.
pub(super) fn run(
    python: &Path,
    workload: &[&str],
    (rounds, seconds): Rounds,
    watchers: &[&[&str]],
) -> Result<Vec<Vec<Pair>>> {
    let mut command = Command::new(python);
    command.arg(script("paired.py"));
    command.args([&serde_json::to_string(workload)?, &rounds.to_string(), seconds]);
    command.args(watchers.join(&"--"));
    let printed = output(&mut command)?;
    let all: Vec<Vec<[f64; 2]>> =
        serde_json::from_str(&printed).with_context(|| format!("paired.py printed {printed:?}"))?;
    let pairs = |rounds: Vec<[f64; 2]>| rounds.into_iter().map(|[without, with]| Pair { without, with }).collect();
    Ok(all.into_iter().map(pairs).collect())
}

/// The rounds beside BPF programs that do nothing at these raw tracepoints (`empty.py`), and the command of these.
pub(super) fn beside_nothing(
    setting: &Setting,
    python: &Path,
    workload: &[&str],
    rounds: Rounds,
    tracepoints: &[&str],
) -> Result<(Vec<Pair>, String)> {
    let words = [python, &script("empty.py"), &setting.folder.join("empty")];
    let [python_word, script, made] = words.map(|path| path.display().to_string());
    let watcher = [&[&python_word[..], &script], tracepoints, &[&made]].concat();
    let rounds = run(python, workload, rounds, &[&watcher])?;
    let rounds = rounds.into_iter().next().context("paired.py left rounds out")?;
    Ok((rounds, format!("empty.py {}", tracepoints.join(" "))))
}

/// Rounds with a watcher, between rounds without one, which show the noise.
pub(super) struct Compared {
    pub(super) nobody: Vec<Pair>,
    pub(super) watched: Vec<Pair>,
    /// The watcher's command, as a user would type it.
    watcher: String,
}

impl Compared {
    /// `watch` has the arguments of `pyobs record`, with PID for the program's process id.
    pub(super) fn one(
        setting: &Setting,
        python: &Path,
        words: &[&str],
        watch: &[&str],
        rounds: Rounds,
    ) -> Result<Self> {
        let all = Self::measure(setting, python, words, &[watch], rounds)?;
        all.into_iter().next().context("paired.py left rounds out")
    }

    /// The same for several watchers in turn, which share the rounds without one.
    pub(super) fn measure(
        setting: &Setting,
        python: &Path,
        words: &[&str],
        watches: &[&[&str]],
        rounds: Rounds,
    ) -> Result<Vec<Self>> {
        let file = setting.folder.join("paired.pyobs").display().to_string();
        let pyobs = repo::pyobs().display().to_string();
        let commands: Vec<Vec<&str>> =
            watches.iter().map(|watch| [&[&pyobs[..], "record"], *watch, &["-o", &file]].concat()).collect();
        let watchers: Vec<&[&str]> = std::iter::once(&["none"][..]).chain(commands.iter().map(Vec::as_slice)).collect();
        let mut all = run(python, words, rounds, &watchers)?.into_iter();
        let nobody = all.next().context("paired.py left rounds out")?;
        let compared = |(watched, watch): (Vec<Pair>, &&[&str])| {
            let words: Vec<String> = watch.iter().map(|word| (*word).to_owned()).collect();
            Self { nobody: nobody.clone(), watched, watcher: shown(&words) }
        };
        Ok(all.zip(watches).map(compared).collect())
    }

    /// Two rows, without and with pyobs: the watcher, the cost of the work, its range, and the command.
    pub(super) fn rows(&self) -> [[String; 4]; 2] {
        [row("nobody", &self.nobody, "paired.py"), row("pyobs", &self.watched, &self.watcher)]
    }

    /// By which share of its time the work took longer, beyond the difference without a watcher.
    pub(super) fn longer_share(&self) -> f64 {
        (longer(&self.watched)[1] - longer(&self.nobody)[1]) / 100.0
    }

    /// How much longer the work took, in microseconds.
    pub(super) fn longer_by(&self) -> f64 {
        micros(&self.watched, |pair| pair.with - pair.without)
    }
}

/// A row: the watcher, the cost of the work without and with it, the range, and the watcher's command.
pub(super) fn row(who: &str, pairs: &[Pair], command: &str) -> [String; 4] {
    let [low, middle, high] = longer(pairs);
    let (without, with) = (micros(pairs, |pair| pair.without), micros(pairs, |pair| pair.with));
    let figure = format!("{without:.2} to {with:.2} µs, {middle:+.2} %");
    [who.to_owned(), figure, format!("{low:+.2} to {high:+.2} %"), command.to_owned()]
}

/// The median of the rounds, in microseconds.
fn micros(pairs: &[Pair], seconds: impl Fn(&Pair) -> f64) -> f64 {
    median(pairs.iter().map(seconds).collect()) * 1e6
}

/// How much longer it took, in percent: the tenth percentile, the median and the ninetieth.
pub(super) fn longer(pairs: &[Pair]) -> [f64; 3] {
    let mut percent: Vec<f64> = pairs.iter().map(|pair| (pair.with / pair.without - 1.0) * 100.0).collect();
    percent.sort_by(f64::total_cmp);
    let at = |share: f64| percent.get((share * percent.len() as f64) as usize).copied().unwrap_or(0.0);
    [at(0.1), median(percent.clone()), at(0.9)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_is_in_percent() {
        let pairs: Vec<Pair> =
            (0..11).map(|number| Pair { without: 2.0, with: 2.0 + f64::from(number) * 0.02 }).collect();
        let [low, middle, high] = longer(&pairs);
        assert!((low - 1.0).abs() < 1e-9 && (middle - 5.0).abs() < 1e-9 && (high - 9.0).abs() < 1e-9);
        assert!(longer(&[]).iter().all(|share| share.abs() < 1e-9));
    }
}
