//! Measures how much slower a program is while it is watched.

use anyhow::{Context, Result};

use super::{
    Setting, overhead, script,
    table::Table,
    twins::{self, Rounds, Watcher},
};
use crate::process::progress;

const ROUNDS: Rounds = [5, 800, 6];
/// The watchers, and how many times as long the work may take at most.
const WATCHERS: [(&str, Option<f64>); 3] = [("nothing", None), ("pyobs-cpu", Some(1.005)), ("pyobs", Some(1.01))];

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Slowdown at 99 Hz",
        "How many times as long the work of `xtask/src/bench/overhead.py` takes while it is watched. Two twins of the program take\n\
         turns of five thousandths of a second, 1,600 times, then the other one is watched (`xtask/src/bench/twins.py`): a machine\n\
         whose speed changes hurts both. The mean of so many such rounds, and twice its standard error on either side. `nothing`\n\
         watches nothing, and a goal is what a watcher slows the program down beyond that: `pyobs-cpu`, which takes whole\n\
         stacks only, as py-spy does, by 0.5 % at the most; `pyobs`, which takes waits, the GIL and memory too, as it does by\n\
         default, by what its default `--budget` is.",
        twins::COLUMNS,
    );
    let profilers = overhead::profilers(setting)?;
    let watchers = WATCHERS.map(|(name, most)| {
        let found = profilers.iter().find(|(known, ..)| *known == name).context("unknown profiler");
        found.map(|(_, command, shown)| Watcher { name, most, command: command.clone(), shown: shown.clone() })
    });
    let watchers = watchers.into_iter().collect::<Result<Vec<_>>>()?;
    let (python, script) = (setting.python(overhead::VERSION)?, script("overhead.py"));
    for workload in overhead::WORKLOADS {
        progress(format!("slowdown of the workload {workload}: about seven minutes"));
        twins::compare(&mut table, python, (&script, workload), ROUNDS, &watchers)?;
    }
    Ok(table)
}
