//! What the family `redundancy` costs the program that it watches.

use anyhow::Result;

use super::{
    Setting,
    overhead::{VERSION, measure, quoted},
    table::Table,
};
use crate::{process::progress, repo, venvs};

const WORKLOADS: [&str; 4] = ["mixed", "calls", "threads", "numpy"];
const COLUMNS: &[&str] = &["workload", "watched by", "slowdown", "10th to 90th percentile", "CPU (cores)", "RSS (MiB)"];
/// The rates, and the most that each may slow a program down.
const RATES: [(u32, f64); 2] = [(100, 1.02), (1000, 1.06)];

pub(super) fn run(setting: &Setting) -> Result<Table> {
    let mut table = Table::new(
        "Watchpoints",
        "The work that a CPython 3.12 program does while its accesses of memory are watched, against what it does just before\n\
         and after (`../shared/bench/overhead.py`). `nothing` watches nothing: it shows the noise.",
        COLUMNS,
    );
    let folder = repo::target().join("venvs/bench-numpy");
    let pins = repo::root().join("tests/requirements.txt");
    let python = venvs::ensure(setting.python(VERSION)?, VERSION, &folder, &pins)?;
    let recording = setting.folder.join("redundancy.pyobs");
    let mut profilers = vec![("nothing", "sleep 1000".to_owned(), "sleep 1000".to_owned())];
    for (rate, _) in RATES {
        let arguments = format!("record --pid {{pid}} --rate {rate} --probe +redundancy -o");
        let name = if rate == 100 { "pyobs-100Hz" } else { "pyobs-1kHz" };
        let command = format!("{} {arguments} {}", quoted(&repo::pyobs()), quoted(&recording));
        profilers.push((name, command, format!("pyobs {arguments} redundancy.pyobs")));
    }
    for workload in WORKLOADS {
        progress(format!("watchpoints in the workload {workload}: about two minutes"));
        let rows = measure(setting, &python, workload, &profilers)?;
        for (row, (_, _, shown)) in rows.iter().zip(&profilers) {
            table.row(row.cells(workload), shown);
        }
        let Some(nothing) = rows.first() else { continue };
        for (row, (rate, most)) in rows.iter().skip(1).zip(RATES) {
            let beyond = row.slowdown / nothing.slowdown;
            table.at_most(&format!("{workload}: slowdown at {rate} Hz beyond `nothing`"), beyond, most);
        }
    }
    Ok(table)
}
