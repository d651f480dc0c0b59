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
        "How many times as long the work of `xtask/src/bench/overhead.py` takes while it is watched. Two twins of the\n\
         program take turns of five thousandths of a second, 1,600 times, then the other one is watched\n\
         (`xtask/src/bench/twins.py`), so a changing machine speed affects both. The table has the mean of these rounds,\n\
         with twice its standard error on either side. `nothing` watches nothing, and a goal limits the slowdown beyond\n\
         it: `pyobs-cpu`, which records only whole stacks, as py-spy does, may cost 0.5 %; `pyobs`, which records waits,\n\
         the GIL and memory too, as by default, may cost its default `--budget`.",
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
