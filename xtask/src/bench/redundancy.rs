//! Measures what the family `redundancy` costs the program that it watches.

use anyhow::Result;

use super::{
    Setting,
    overhead::{VERSION, quoted},
    script,
    table::Table,
    twins::{self, Rounds, Watcher},
    workload,
};
use crate::{process::progress, repo, venvs};

/// Wasteful programs, and two of `overhead.py`: one that computes with NumPy, and one with eight threads.
const WASTEFUL: [&str; 5] = ["slice_bad", "repeat_bad", "algorithm_bad", "api_bad", "invariant_bad"];
const OTHERS: [&str; 2] = ["numpy", "threads"];
const ROUNDS: Rounds = [20, 150, 3];
/// The rates, and how much each may slow a program down.
const RATES: [(&str, u32, f64); 2] = [("pyobs-100Hz", 100, 1.02), ("pyobs-1kHz", 1000, 1.06)];

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Watchpoints",
        "How many times as long work takes while its accesses of memory are watched: that of\n\
         `tests/workloads/inefficiencies.py`, and `numpy` and `threads` of `overhead.py`. As in “Slowdown at 99 Hz”, one\n\
         of two twins that take turns is watched (`xtask/src/bench/twins.py`), for 150 turns of a fiftieth of a second\n\
         each and three rounds. `nothing` watches nothing, which shows the noise.",
        twins::COLUMNS,
    );
    let folder = repo::target().join("venvs/bench-numpy");
    let pins = repo::root().join("tests/requirements.txt");
    let python = venvs::ensure(setting.python(VERSION)?, VERSION, &folder, &pins)?;
    let recording = quoted(&setting.folder.join("redundancy.pyobs"));
    let nothing = "sleep 1000";
    let mut watchers =
        vec![Watcher { name: "nothing", most: None, command: nothing.to_owned(), shown: nothing.to_owned() }];
    for (name, rate, most) in RATES {
        let arguments = format!("record --pid {{pid}} --rate {rate} --probe +redundancy -o");
        let command = format!("{} {arguments} {recording}", quoted(&repo::pyobs()));
        let shown = format!("pyobs {arguments} redundancy.pyobs");
        watchers.push(Watcher { name, most: Some(most), command, shown });
    }
    let (wasteful, judge) = (workload("inefficiencies.py"), script("overhead.py"));
    let all = WASTEFUL.map(|name| (&wasteful, name)).into_iter().chain(OTHERS.map(|name| (&judge, name)));
    let mut peak = 0.0_f64;
    for (script, workload) in all {
        progress(format!("watchpoints in the workload {workload}: about three minutes"));
        let memory = twins::compare(&mut table, &python, (script, workload), ROUNDS, &watchers)?;
        peak = peak.max(memory);
    }
    table.at_most("memory at its largest (MiB)", peak, 80.0);
    Ok(table)
}
